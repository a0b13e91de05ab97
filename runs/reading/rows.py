"""Steps of the timeline: read in windows, rendered by the one template of page and socket.

A step's picture does not depend on later steps, so a growing page and one painted at once are the same. Exceptions:
`live`, a child's progress, and the late end of a call in flight when the run was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import QuerySet
from django.template import loader

from runs.models import Exchange, Run, Step
from runs.reading import words
from runs.reading.children import child_html, children_of
from runs.reading.in_flight import unheard_html, unheard_of
from runs.reading.lines import line_of
from runs.reading.phrases import Line

WINDOW = 200
"""Steps that a page shows at first, and adds at a time."""

LEAD_IN = 12
"""Steps read before the first shown one, to find the ask behind it."""

CONCLUDING = ("transition", "stop", "decision", "compaction")

NO_ASK_AFTER = (*CONCLUDING, "rewind")
"""Kinds of steps after which no earlier ask is concluded any more: rolled-back ones never are."""


@dataclass(frozen=True)
class RowView:
    """One step as it is shown. The columns at right are empty if nothing was spent."""

    seq: int
    kind: str
    live: bool
    node: str
    edge: str
    to: str
    line: Line
    at: datetime
    since: str
    """Time since the run began."""
    duration: str = ""
    tokens: str = ""
    cost: str = ""
    rewind_to: int | None = None
    child: str = ""
    """Progress of the child run that the step started: a small panel in the step, as HTML."""
    unheard: str = ""
    """The end of the call in flight when this step stopped the run: a small panel too."""

    @property
    def summary(self) -> str:
        """Return the step as one plain line; the export has the same."""
        return self.line.plain


def row_views(run: Run, *, after: int = 0, before: int | None = None, limit: int = WINDOW) -> list[RowView]:
    """Return steps in order: those after `after`, oldest first; else the newest `limit` ones (below `before`)."""
    steps = Step.objects.filter(run=run).only(
        "run_id", "seq", "kind", "live", "node", "edge", "to", "facts_json", "at", "ms"
    )
    if after:
        found = list(steps.filter(seq__gt=after - LEAD_IN).order_by("seq")[: limit + LEAD_IN])
        shown = [step for step in found if step.seq > after][:limit]
    else:
        found = _newest(steps if before is None else steps.filter(seq__lt=before), limit + LEAD_IN)
        shown = found[-limit:]
    if not shown:
        return []
    asked = _asked_before(run, found, shown[0].seq)
    exchanges = _exchanges(run, asked or found[0].seq, shown[-1].seq)
    concluded = _concluded(found, asked)
    children = _children(run, exchanges)
    unheard = _unheard(run, shown)
    return [
        _view(
            run,
            step,
            exchanges,
            exchanges.get(concluded.get(step.seq, 0)),
            child=children.get(step.seq, ""),
            unheard=unheard if step.kind == Step.Kind.STOP else "",
        )
        for step in shown
    ]


def _newest(steps: QuerySet[Step], limit: int) -> list[Step]:
    return list(reversed(steps.order_by("-seq")[:limit]))


def _exchanges(run: Run, first: int, last: int) -> dict[int, Exchange]:
    found = Exchange.objects.filter(run=run, seq__gte=first, seq__lte=last)
    return {exchange.seq: exchange for exchange in found.defer("answer_json", "key", "prompt_hash")}


def _children(run: Run, exchanges: dict[int, Exchange]) -> dict[int, str]:
    """Return the progress of the children that these steps started; queried only if there are any."""
    if not any(exchange.kind == "child_run" for exchange in exchanges.values()):
        return {}
    return {child.parent_seq: child_html(child) for child in children_of(run) if child.parent_seq}


def _unheard(run: Run, shown: list[Step]) -> str:
    """Return the end of the call in flight when the run was stopped; queried only if its step is one of these."""
    if not any(step.kind == Step.Kind.STOP for step in shown):
        return ""
    unheard = unheard_of(run)
    return unheard_html(unheard) if unheard else ""


def _asked_before(run: Run, found: list[Step], first: int) -> int:
    """Return the ask that one of these steps concludes, even beyond the lead-in; 0 if none does."""
    telling = next((step for step in found if step.kind in ("ask", *NO_ASK_AFTER)), None)
    if telling is None or telling.kind in ("ask", "rewind") or telling.seq < first or found[0].seq == 1:
        return 0
    before = Step.objects.filter(run=run, seq__lt=found[0].seq, kind__in=("ask", *NO_ASK_AFTER))
    before = before.order_by("-seq")
    last = before.values_list("seq", "kind").first()
    return last[0] if last is not None and last[1] == "ask" else 0


def _concluded(steps: Iterable[Step], asked: int) -> dict[int, int]:
    """Return, for each step that concludes an ask, the ask's seq. `asked` is an ask before these steps, 0 if none is
    open."""
    pairs = {}
    for step in steps:
        if step.kind == "ask":
            asked = step.seq
        elif step.kind in NO_ASK_AFTER:
            if asked and step.kind in CONCLUDING:
                pairs[step.seq] = asked
            asked = 0
    return pairs


def row_view(run: Run, seq: int) -> RowView | None:
    """Return the step `seq`, exactly as the timeline shows it."""
    rows = row_views(run, before=seq + 1, limit=1)
    return rows[0] if rows and rows[0].seq == seq else None


def _view(
    run: Run,
    step: Step,
    exchanges: dict[int, Exchange],
    concludes: Exchange | None,
    *,
    child: str,
    unheard: str,
) -> RowView:
    facts = json.loads(step.facts_json)
    own = exchanges.get(step.seq)
    asked = json.loads(own.request_json) if own else None
    spent = _spent(facts)
    about = words.ESTIMATED if spent and spent.get("estimated") else ""
    ends = run.ends_replay(step.seq)
    return RowView(
        seq=step.seq,
        kind=step.kind,
        live=step.live,
        node=step.node,
        edge=step.edge or "",
        to=step.to or "",
        line=line_of(step.kind, step.node, step.edge, facts, asked, machine=run.machine, ends_replay=ends),
        at=step.at,
        since=words.seconds(max(0.0, (step.at - _began(run, step)).total_seconds())),
        duration=_duration(concludes),
        tokens=about + words.count(spent["input_tokens"] + spent["output_tokens"]) if spent else "",
        cost=about + words.money(spent["cost_usd"]) if spent and spent["cost_usd"] else "",
        rewind_to=next((fact["to_seq"] for fact in facts if fact["kind"] == "run.rewound"), None),
        child=child,
        unheard=unheard,
    )


def _began(run: Run, step: Step) -> datetime:
    """Return when the run began; for a copied step, when its source run began."""
    if step.at >= run.created_at or not run.origin:
        return run.created_at
    first = run.steps.order_by("seq").values_list("at", flat=True).first()
    return first or run.created_at


def _spent(facts: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((fact for fact in facts if fact["kind"] == "run.spent"), None)


def _duration(exchange: Exchange | None) -> str:
    took = exchange.took_ms if exchange is not None else None
    return "" if took is None else words.length_of(took)


@cache
def _template() -> Any:
    return loader.get_template("runs/_step.html")


def render_row(row: RowView) -> str:
    """Render a step with the one template."""
    html: str = _template().render({**row.__dict__, **row.line.__dict__})
    return html.strip()
