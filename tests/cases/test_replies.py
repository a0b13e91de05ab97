"""What the model said, played by `launch --batch` on every machine: the slip in the first reply, good ones after it.

The files of ../shared/cases/replies are played too where that folder is there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from agentsite.environment import ROOT
from tests.machines.replies import ALLOW, NAMES, SETTINGS, call, end

pytestmark = pytest.mark.usefixtures("every_run_verifies")

SHARED = Path(ROOT).parent / "shared" / "cases" / "replies"
PURGE = {
    "params": {"path": "string", "older_than_days": "integer", "dry_run": "boolean"},
    "required": ["path"],
    "effects": "write",
    "results": [{"output": "deleted"}],
}
UNREAD = {"decision_invalid", "action_selection_failed", "ruled.reply.unread", "planned.plan.unread"}
Data = dict[str, Any]


# --- what came out ----------------------------------------------------------------------------------------


class Played:
    """A run's export, as far as a case asks."""

    def __init__(self, exported: Data) -> None:
        assert "error" not in exported, exported
        self.facts = [fact for step in exported["steps"] for fact in step["facts"]]
        self.kinds = [step["kind"] for step in exported["steps"]]
        told = [fact for fact in self.facts if fact["kind"] == "react.tool.call"]
        self.calls = [(fact["tool"], fact["args"]) for fact in told if fact["tool"] != "final_answer"]
        notices = [fact for fact in self.facts if fact["kind"] == "react.notice"]
        self.notices = {fact["code"].removeprefix("protocol_violation."): fact for fact in notices}
        self.summaries = [fact["text"] for fact in self.facts if fact["kind"] == "conv.range.summary"]

    @property
    def unread(self) -> bool:
        """Whether a reply could not be read."""
        told = {
            *self.notices,
            *(fact["kind"] for fact in self.facts),
            *(fact.get("why") for fact in self.facts),
        }
        return bool(told & UNREAD)


def the_draft_is_thrown_away(run: Played) -> None:
    assert [tool for tool, _ in run.calls] == ["calculator"]
    assert not run.unread


def the_reply_is_read(run: Played) -> None:
    assert {tool for tool, _ in run.calls} == {"calculator"}
    assert not run.unread


def one_action_is_taken(run: Played) -> None:
    the_reply_is_read(run)
    assert "calculator" in run.notices["one_action_per_reply"]["rest"]


def nothing_is_left_out(run: Played) -> None:
    refused = {"type_mismatch", "unknown_param"} & set(run.notices)
    whole = {"path": "/var/log/app", "older_than_days": 30}
    assert run.calls == ([] if refused else [("delete_logs", whole)])


def no_summary_is_made(run: Played) -> None:
    assert (run.summaries, "compaction" in run.kinds) == ([], False)
    assert "none of the sections" in run.notices["compaction_failed"]["message"]


def the_summary_is_whole(run: Played) -> None:
    assert run.summaries
    assert all("code-077" in text and "parts 0-3 read" in text for text in run.summaries)


RIGHT: dict[str, Callable[[Played], None]] = {
    "think_rejected_draft": the_draft_is_thrown_away,
    "think_with_braces": the_reply_is_read,
    "prose_brace_no_fence": the_reply_is_read,
    "raw_newline_in_string": the_reply_is_read,
    "two_objects": one_action_is_taken,
    "dropped_limiting_argument": nothing_is_left_out,
    "summary_toolcall": no_summary_is_made,
    "summary_good": the_summary_is_whole,
}


def played(batch: str) -> list[Played]:
    out = io.StringIO()
    call_command("launch", "--batch", batch, stdout=out)
    return [Played(json.loads(line)) for line in out.getvalue().splitlines()]


# --- our own ----------------------------------------------------------------------------------------------


def launch(name: str, *replies: str) -> Data:
    """A run of the machine with a calculator and a tool that deletes, which nobody is asked about."""
    script = {
        "replies": {"decision": [*replies, *[end(name)] * 4], "fallback": ["none"]},
        "tools": {"delete_logs": PURGE},
    }
    settings = {"tools": ["calculator"], "rules": ALLOW, "on_limit": "stop", **SETTINGS[name]}
    return {"machine": name, "goal": "Work out 12*7+9", "settings": settings, "script": script}


def add(name: str) -> str:
    return call(name, "calculator", expression="12 * 7 + 9")


def purge(name: str, **more: Any) -> str:
    return call(name, "delete_logs", path="/var/log/app", **more)


SLIPS: dict[str, Callable[[str], list[str]]] = {
    "think_rejected_draft": lambda name: [
        form.replace("{}", f"Perhaps {purge(name)}? It destroys them: no.") + f"\n{add(name)}"
        for form in ("<think>{}</think>", "{}</think>", "[THINK]{}[/THINK]", "◁think▷{}◁/think▷")
    ],
    "think_with_braces": lambda name: [
        f"<thinking>The set {draft} is small.</thinking>{add(name)}" for draft in ('{"a": {', "{a, b}", '}{"')
    ],
    "prose_brace_no_fence": lambda name: [f"With {{a, b}} and {{n}}, so: {add(name)} That is {{it}}."],
    "raw_newline_in_string": lambda name: [
        add(name).replace('12 *', '12\n*'),
        f"```js\n{add(name)[:-1]},}}\n```",
        f"[{add(name)}]",
    ],
    "two_objects": lambda name: [f"{add(name)}\n{add(name)}", f'{add(name)}{{"output": 5}}{purge(name)} {add(name)}'],
    "dropped_limiting_argument": lambda name: [
        purge(name, **more)
        for more in (
            {"older_than_days": "30"},
            {"older_than_days": 30.0},
            {"older_than_days": 30, "dry_run": "true"},
            {"older_than": 30},
            {"older_than_days": [30]},
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", SLIPS)
def test_a_slip_in_a_reply_does_no_harm_on_any_machine(case: str) -> None:
    items = [launch(name, slip) for name in NAMES for slip in SLIPS[case](name)]
    found = played(json.dumps(items))
    assert len(found) == len(items)
    for run in found:
        RIGHT[case](run)


def summarising(reply: Any) -> Data:
    results = [{"output": f"part {number} " + "lorem ipsum " * 50 + "code-077"} for number in range(10)]
    part = {"params": {"n": "integer"}, "required": ["n"], "effects": "read", "results": results}
    reads = [call("ruled", "part", n=number) for number in range(10)]
    script = {
        "replies": {"decision": [*reads, end("ruled")], "summary": [reply] * 12},
        "tools": {"part": part},
    }
    settings = {"context": {"limit_tokens": 1400}}
    return {"machine": "ruled", "goal": "Count", "settings": settings, "script": script}


GOOD = {"goal": "count", "progress": "parts 0-3 read", "decisions": "none", "critical": "code-077"}


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        (GOOD, the_summary_is_whole),
        ({"progress": {"done": "parts 0-3 read"}, "critical": ["code-077"]}, the_summary_is_whole),
        ("<think>No.</think>\n## Progress\nparts 0-3 read\n## Critical\ncode-077", the_summary_is_whole),
        (call("ruled", "part", n=1), no_summary_is_made),
        ("I'm sorry, but I can't help with that.", no_summary_is_made),
    ],
)  # fmt: skip
def test_a_summary_is_kept_whole_or_is_none(reply: Any, right: Callable[[Played], None]) -> None:
    [run] = played(json.dumps([summarising(reply)]))
    right(run)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"$reply": GOOD, "ended": "length"}, "The reply was cut off at its limit."),
        ({"$reply": GOOD, "ended": "content_filter"}, "The provider's content filter stopped the reply."),
        ({"$reply": "", "reasoning": json.dumps(GOOD)}, "The reply holds only reasoning."),
        (json.dumps(GOOD)[:-3], "The reply is cut off: the object that begins at line 1 is never closed."),
    ],
)
def test_a_summary_that_was_cut_is_none(reply: Any, why: str) -> None:
    [run] = played(json.dumps([summarising(reply)]))
    assert (run.summaries, "compaction" in run.kinds) == ([], False)
    assert run.notices["compaction_failed"]["message"].startswith(why)


# --- those of the shared folder ---------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize("case", RIGHT)
def test_a_shared_case_comes_out_right(case: str) -> None:
    found = played(str(SHARED / f"{case}.json"))
    assert found
    for run in found:
        RIGHT[case](run)
