"""What faults are put into, by subject, and the tests that are asked about them."""

from __future__ import annotations

ALL = ("*",)

SUBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    "rights": {
        "runs/rights.py": ALL,
        "runs/actions/common.py": ALL,
        "runs/actions/copying.py": ("check_copying", "_forked", "_first_answer", "_question", "replay"),
        "runs/actions/launching.py": ("start_run", "new_run", "check_launch", "_check_parts"),
        "runs/actions/mending.py": ALL,
        "runs/actions/site.py": ("halt_site", "unhalt_site", "_check_halting"),
        "runs/actions/steering.py": ALL,
        "runs/models/run.py": ("RunQuerySet.*",),
    },
    "gates": {
        "runs/engine/gates.py": ALL,
        "runs/engine/kernel.py": ALL,
        "runs/engine/settling.py": ALL,
        "runs/engine/worker_questions.py": ALL,
        "runs/driver/worker.py": ("Worker.drive", "Worker._parked", "Worker._without_room"),
        "runs/driver/performing.py": (
            "Performer.perform",
            "Performer._is_lost",
            "Performer._find_out",
            "Performer._heard_of",
            "Performer._call_tool",
        ),
        "runs/driver/parking.py": ("park", "_child", "_for_child"),
        "runs/driver/batches.py": ("can_be_held_back",),
        "runs/store/decisions.py": (
            "check_*",
            "_check_*",
            "_apply*",
            "_decided_before",
            "unanswered",
            "decide",
        ),
    },
    "locks": {
        "runs/store/leases.py": ALL,
        "runs/store/log.py": ALL,
        "runs/store/decisions.py": ALL,
        "runs/store/halting.py": ALL,
        "runs/store/late_answers.py": ALL,
        "runs/store/shared_limits.py": ("reserve", "take_over", "raise_shared"),
        "runs/store/db.py": ALL,
    },
    "money": {
        "runs/store/shared_limits.py": ALL,
        "runs/adapters/prices.py": ALL,
        "runs/engine/gates.py": (
            "limits",
            "_lines",
            "_reached",
            "least_reply",
            "room_for_reply",
            "reply_within",
            "_cost_rules",
        ),
        "runs/engine/snapshot.py": ALL,
        "runs/engine/values.py": ("add_cost",),
        "runs/store/log.py": (
            "pay",
            "charge",
            "add_beside",
            "tell_parent",
            "_write_budget",
            "_take_the_seat",
        ),
        "runs/store/creating.py": ("open_budgets",),
        "runs/store/decisions.py": ("_added", "_raise_limit"),
        "runs/driver/attempts.py": ("Attempts.reserve",),
        "runs/driver/batches.py": ("_budget",),
        "runs/driver/performing.py": ("Performer._summarise",),
        "runs/driver/worker.py": ("Worker._look",),
        "runs/engine/kernel.py": ("_weighed",),
        "runs/engine/settling.py": ("settle", "cost_of"),
    },
}
"""By module the functions that are looked at. Named twice is what belongs to two subjects."""

TESTS = (
    "tests/actions",
    "tests/driver",
    "tests/engine",
    "tests/store",
    "tests/adapters/test_openai_compatible.py",
    "tests/adapters/test_prices.py",
    "tests/machines/test_checklist.py",
    "tests/machines/test_context.py",
    "tests/machines/test_laws.py",
    "tests/reading/test_limit_cards.py",
    "tests/views/test_pages_launch.py",
)
"""The folders and files whose tests are asked about every fault; of them those that run its line."""
