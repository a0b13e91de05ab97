"""What faults are put into, by subject, and the tests that are asked about them."""

from __future__ import annotations

from typing import NamedTuple


class Subject(NamedTuple):
    """Modules with the functions that are looked at, and the test files that are run."""

    modules: dict[str, tuple[str, ...]]
    tests: tuple[str, ...]


ALL = ("*",)

SUBJECTS = {
    "rights": Subject(
        {
            "runs/rights.py": ALL,
            "runs/actions/common.py": ALL,
            "runs/actions/copying.py": ("_check_copying", "_forked", "_first_answer", "_question", "replay"),
            "runs/actions/launching.py": ("start_run", "new_run", "check_launch", "_check_parts"),
            "runs/actions/mending.py": ALL,
            "runs/actions/site.py": ("halt_site", "unhalt_site", "_check_halting"),
            "runs/actions/steering.py": ALL,
            "runs/models/run.py": ("RunQuerySet.*",),
        },
        (
            "tests/runs/test_actions.py",
            "tests/runs/test_at_the_deed.py",
            "tests/runs/test_forks.py",
            "tests/runs/test_gate_bookkeeping.py",
            "tests/runs/test_halting.py",
            "tests/runs/test_hints.py",
            "tests/runs/test_mending.py",
            "tests/runs/test_pages_launch.py",
            "tests/runs/test_prepared_answers.py",
            "tests/runs/test_replays.py",
            "tests/runs/test_restored.py",
            "tests/runs/test_shared_limits.py",
        ),
    ),
    "gates": Subject(
        {
            "runs/engine/gates.py": ALL,
            "runs/engine/kernel.py": ALL,
            "runs/driver/journey.py": (
                "Journey.travel",
                "Journey._wait",
                "Journey._parked",
                "Journey._lost_call",
                "Journey._find_out",
                "Journey._heard_of",
                "Journey._perform",
                "Journey._call_tool",
                "Journey._without_room",
            ),
            "runs/driver/ledger.py": (
                "Ledger._park",
                "Ledger._child",
                "Ledger._for_child",
                "Ledger._can_wait",
            ),
            "runs/store/people.py": (
                "check_*",
                "_check_*",
                "_apply*",
                "_decided_before",
                "unanswered",
                "decide",
            ),
        },
        (
            "tests/engine/test_gates.py",
            "tests/engine/test_kernel.py",
            "tests/engine/test_context.py",
            "tests/engine/test_outward.py",
            "tests/machines/test_laws.py",
            "tests/machines/test_checklist.py",
            "tests/machines/test_context.py",
            "tests/runs/test_actions.py",
            "tests/runs/test_at_the_deed.py",
            "tests/runs/test_children.py",
            "tests/runs/test_crashes.py",
            "tests/runs/test_driver.py",
            "tests/runs/test_gate_bookkeeping.py",
            "tests/runs/test_limit_cards.py",
            "tests/runs/test_lost_calls.py",
            "tests/runs/test_outward.py",
            "tests/runs/test_prepared_answers.py",
            "tests/runs/test_replies.py",
            "tests/runs/test_restored.py",
            "tests/runs/test_shared_limits.py",
            "tests/runs/test_windows.py",
            "tests/runs/test_draining.py",
            "tests/runs/test_halting.py",
        ),
    ),
    "locks": Subject(
        {
            "runs/store/leases.py": ALL,
            "runs/store/log.py": ALL,
            "runs/store/people.py": ALL,
            "runs/store/halting.py": ALL,
            "runs/store/late.py": ALL,
            "runs/store/purse.py": ("reserve", "take_over", "raise_shared"),
            "runs/store/moment.py": ALL,
            "runs/store/again.py": ALL,
            "runs/store/patience.py": ALL,
        },
        (
            "tests/runs/test_actions.py",
            "tests/runs/test_at_the_deed.py",
            "tests/runs/test_children.py",
            "tests/runs/test_crashes.py",
            "tests/runs/test_draining.py",
            "tests/runs/test_driver.py",
            "tests/runs/test_forks.py",
            "tests/runs/test_halting.py",
            "tests/runs/test_late_answers.py",
            "tests/runs/test_limit_cards.py",
            "tests/runs/test_locked_rows.py",
            "tests/runs/test_locks.py",
            "tests/runs/test_lost_calls.py",
            "tests/runs/test_missing_machines.py",
            "tests/runs/test_moments.py",
            "tests/runs/test_outward.py",
            "tests/runs/test_shared_limits.py",
            "tests/runs/test_store.py",
            "tests/runs/test_store_races.py",
            "tests/runs/test_verify.py",
        ),
    ),
    "money": Subject(
        {
            "runs/store/purse.py": ALL,
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
            "runs/store/birth.py": ("open_budgets",),
            "runs/store/people.py": ("_added", "_raise_limit"),
            "runs/driver/ledger.py": ("Ledger._budget",),
            "runs/driver/journey.py": ("Journey._reserved", "Journey._look", "Journey._summarise"),
            "runs/engine/kernel.py": ("_weighed", "_settle", "cost_of"),
        },
        (
            "tests/adapters/test_openai_compatible.py",
            "tests/adapters/test_prices.py",
            "tests/engine/test_gates.py",
            "tests/engine/test_kernel.py",
            "tests/engine/test_values.py",
            "tests/runs/test_actions.py",
            "tests/runs/test_children.py",
            "tests/runs/test_driver.py",
            "tests/runs/test_families.py",
            "tests/runs/test_late_answers.py",
            "tests/runs/test_limit_cards.py",
            "tests/runs/test_restored.py",
            "tests/runs/test_shared_limits.py",
            "tests/runs/test_store.py",
            "tests/runs/test_windows.py",
        ),
    ),
}
"""Named twice is what belongs to two subjects."""
