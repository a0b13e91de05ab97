"""The runs that are kept of each version: how each is made, up to where it waits, and what is decided then."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from runs import actions, forms
from runs.models import Interrupt, Run
from tests.launching import ALLOW, FINAL, SEARCH, SEND, launch, script, think
from tests.running import transitions, work
from tests.workers import die_in, kill


@dataclass(frozen=True)
class Story:
    """One golden: `begin` makes the run and leaves it waiting; the verdicts are given in order, then it ends."""

    name: str
    begin: Callable[[], Run]
    verdicts: tuple[dict[str, Any], ...] = ({"verdict": "approve"},)


def demonstration(machine: str) -> Callable[[], Run]:
    """The machine's own demonstration, as the form launches it, without its slow pace."""

    def begin() -> Run:
        given = dict(forms.DEMONSTRATIONS[machine])
        played = json.loads(given["script"])
        played.pop("pace")
        given["script"] = json.dumps(played)
        form = forms.LaunchForm(_as_posted(given))
        assert form.is_valid(), form.errors
        run = actions.start_run(
            machine=machine,
            goal=form.cleaned_data["goal"],
            settings=form.settings(),
            owner=None,
            script=form.script_given,
        )
        return work(run)

    return begin


def _as_posted(given: dict[str, Any]) -> QueryDict:
    """The fields as a browser sends them."""
    posted = QueryDict(mutable=True)
    for name, value in given.items():
        if isinstance(value, bool):
            if value:
                posted[name] = "on"
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            posted.setlist(name, value)
        elif isinstance(value, list):
            for number, row in enumerate(value):
                for column, text in row.items():
                    posted[f"{name}-{number}-{column}"] = text
        elif value is not None:
            posted[name] = str(value)
    return posted


def went_back() -> Run:
    """It has dead rows, and its question is open again."""
    run = work(launch(think("search", q="tides"), think("send", to="bob"), think("send", to="eve"), FINAL))
    actions.rewind(run, to=transitions(run)[-2], by=None, message="once more")
    return work(run)


def family() -> Run:
    """A parent waits for its child, which waits for a person."""
    inner = [think("send", to="bob"), {"thought": "FINAL ANSWER: inner", "action": None}]
    played = script(
        think("agent.inner", goal="Write to bob"),
        FINAL,
        subgraphs={"inner": {"replies": {"decision": inner}}},
    )
    return work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}}))


def uncertain() -> Run:
    """A worker was lost in the middle of a deed."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    return work(run)


def limited() -> Run:
    """It has spent what it may."""
    return work(launch(think("search", q="tides"), FINAL, limits={"cost_usd": 0.001}, on_limit="ask"))


def compacted() -> Run:
    """Its window was too small: a summary stands for its beginning, and a person has corrected it."""
    results = [{"output": f"result {number} " + "of the tide tables " * 47} for number in range(20)]
    tools = {"search": SEARCH | {"results": results}, "send": SEND}
    searches = [think("search", q=f"tides {number}") for number in range(9)]
    decisions = [*searches[:5], think("send", to="bob"), *searches[5:], think("send", to="eve"), FINAL]
    played = {
        "replies": {
            "decision": decisions,
            "summary": ["Done: paid 40 pounds.", "Done: second.", "Done: third."],
        },
        "tools": tools,
    }
    run = work(launch(played=played, max_steps=80, context={"limit_tokens": 1000}))
    seq = run.steps.filter(kind="compaction").latest("seq").seq
    actions.edit_summary(run, seq=seq, version=1, text="Done: paid 45 pounds.", reason="A digit.", by=None)
    return run


STORIES = (
    Story("ruled", demonstration("ruled")),
    Story("contract", demonstration("contract")),
    Story("checklist", demonstration("checklist")),
    Story("planned", demonstration("planned")),
    Story("went_back", went_back, ({"verdict": "approve"}, {"verdict": "reject", "message": "not to her"})),
    Story("family", family),
    Story("uncertain", uncertain, ({"verdict": "respond", "message": "It is in the outbox."},)),
    Story("compacted", compacted, ({"verdict": "approve"}, {"verdict": "approve"})),
    Story("limited", limited, ({"verdict": "top_up", "args": {"cost_usd": 1.0}},)),
)


def go_on(run: Run, verdicts: tuple[dict[str, Any], ...]) -> None:
    """Answer what is open in the run or its children, as often as there are verdicts, and let workers go on."""
    for verdict in verdicts:
        question = Interrupt.objects.get(status=Interrupt.Status.PENDING)
        actions.decide(question.pk, by=None, channel="command", **verdict)
        work(Run.objects.get(pk=question.run_id))
        work(run)
