"""What was decided on the way of a run and of its children, as `settings.answers` gives it beforehand.

The answers of a child stand in its own settings, which every call of it has: they are told where the calls were
answered alike, as far as each went. See docs/commands.md, "Scripts".
"""

from __future__ import annotations

import json
from typing import Any

from runs.models import Decision, Interrupt, Run
from runs.reading.live_way import Untold, called_by, family, live_asks

Data = dict[str, Any]

HEARD = ("respond", "reject", "abort")
"""The verdicts whose message is more than a remark: the run goes on with it."""


def settings_of(run: Run) -> Data:
    """The run's settings with the answers that it and its children were given; `Untold` where they can't be told."""
    _check_limits(run)
    return _with_answers(run.settings, [run])


def _with_answers(settings: Data, runs: list[Run]) -> Data:
    """The settings that all these runs have, with what was answered to them."""
    asked = _common_answers(runs)
    if asked:
        settings = {name: value for name, value in settings.items() if name != "answers"}
        if answers := [answer for answer in asked if answer is not None]:
            settings["answers"] = answers
    called = [child for run in runs for child in called_by(run)]
    subgraphs = dict(settings.get("subgraphs") or {})
    for name in subgraphs:
        own = subgraphs[name].get("settings") or {}
        children = [child for child in called if child.child_name == name]
        if children and (told := _with_answers(own, children)) != own:
            subgraphs[name] = {**subgraphs[name], "settings": told}
    return {**settings, "subgraphs": subgraphs} if subgraphs else settings


def _common_answers(runs: list[Run]) -> list[Data | None]:
    """The answers that do for each of the runs, in the order of its questions; None stands for one that is open."""
    told_by, told = runs[0], _asked(runs[0])
    for run in runs[1:]:
        asked = _asked(run)
        if any(_weight(one) != _weight(other) for one, other in zip(told, asked, strict=False)):
            why = (
                f"its child {run.child_name} went otherwise in run {told_by.pk} than in run {run.pk}, and"
                " settings.answers would answer every call of it alike"
            )
            raise Untold(why)
        if len(asked) > len(told):
            told_by, told = run, asked
    return told


def _weight(answer: Data | None) -> Data | None:
    """The answer as far as the run hears it."""
    if answer is None or answer["verdict"] in HEARD:
        return answer
    return {name: value for name, value in answer.items() if name != "message"}


# --- one run --------------------------------------------------------------------------------------------------------


def _questions(run: Run) -> list[Interrupt]:
    """What the run asked on its way; but for what became of a call, which nobody asks where no worker is lost."""
    found = run.interrupts.filter(seq__in=live_asks(run)).exclude(kind="may_have_happened")
    return list(found.select_related("decision").order_by("seq"))


def _asked(run: Run) -> list[Data | None]:
    """What was answered to each question of the run; who stopped it at one has answered so."""
    stopped: Data | None = (
        {"verdict": "abort"} if run.exit_reason == "aborted" and not run.replayed_only else None
    )
    decisions = [getattr(question, "decision", None) for question in _questions(run)]
    return [stopped if decision is None else _answer(decision) for decision in decisions]


def _answer(decision: Decision) -> Data | None:
    """The decision as it is given beforehand; a going back that has not been carried out leaves its question open."""
    if decision.verdict == "rollback":
        return None
    answer: Data = {"verdict": decision.verdict}
    if decision.args_json is not None:
        answer["args"] = json.loads(decision.args_json)
    if decision.message:
        answer["message"] = decision.message
    if decision.allow_host:
        answer["allow_host"] = True
    return answer


def _check_limits(run: Run) -> None:
    """What was spent on rows that were gone back over counts against a limit, and a launch does not spend it again."""
    runs = list(family(run))
    if not any(one.steps.filter(live=False).exists() for one in runs):
        return
    for one in runs:
        for question in _questions(one):
            if question.kind == "limit":
                why = (
                    f"step {question.seq} of run {one.pk} asked about the limit {question.limit}, against which"
                    " steps counted that were rolled back"
                )
                raise Untold(why)
