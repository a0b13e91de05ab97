"""Read a run whole, once a slice: its terms, its state, its open ask, its budget."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from runs.engine.effects import ANSWER, EFFECT, Answer
from runs.engine.kernel import held_by
from runs.engine.machine import Block, Machine, State, Terms
from runs.engine.rules import NamedRule, named
from runs.engine.settings import LIMIT_NAMES, InterruptRule, LimitName, Settings
from runs.engine.snapshot import Held, Pending, Snapshot
from runs.engine.timeline import NO_COMPACTION, blocks_of, folded, needed
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import Exchange, Run, SiteHost, Skill, Step, tells_of
from runs.store.appending import totals_of
from runs.store.db import first, quoted, rows, telling
from runs.store.log import budgets_of
from runs.store.site_rules import site_rules_of

MOVES = (Step.Kind.TRANSITION, Step.Kind.ASK, Step.Kind.REWIND, Step.Kind.STOP, Step.Kind.COMPACTION)
"""Kinds of steps that are moves of the machine, not additions by people or the runtime."""


@dataclass(slots=True)
class Loaded:
    """A run in memory, between two moves."""

    run: Run
    machine: Machine
    snapshot: Snapshot
    budgets: dict[tuple[str, str], tuple[float, float]]
    exchange: Exchange | None
    """Of the open ask."""
    site_rules: str
    """The text of the site's rules, as of the run's log."""

    @property
    def answer(self) -> Answer | None:
        """Return the answer to the open ask, if there is one."""
        stored = self.exchange.answer_json if self.exchange else None
        return ANSWER.validate_json(stored) if stored else None


def terms_of(run: Run, tools: Mapping[str, ToolSpec], *, guided: bool = False, still: bool = False) -> Terms:
    """Return the run's terms. `still`: of the site's hosts only those that it names today."""
    own = settings_of(run, still=still)
    return Terms(
        goal=run.goal,
        settings=own,
        site_rules=len(json.loads(run.site_rules_json)),
        tools=dict(tools),
        skills=_skills(run, own),
        guided=guided,
    )


def own_settings_of(run: Run) -> Settings:
    """Return the run's settings, with its own rules only."""
    return CATALOGUE[run.machine].settings.model_validate_json(run.settings_json)


def settings_of(run: Run, *, still: bool = False) -> Settings:
    """Return the run's settings, preceded by the site's rules as of launch and the site's hosts."""
    own = own_settings_of(run)
    site = tuple(InterruptRule.model_validate(rule) for rule in json.loads(run.site_rules_json))
    hosts = _site_hosts(run, still=still)
    if not site and not hosts:
        return own
    return own.model_copy(update={"rules": site + own.rules, "hosts": hosts + own.hosts})


def _site_hosts(run: Run, *, still: bool) -> tuple[str, ...]:
    hosts = tuple(json.loads(run.site_hosts_json))
    if not hosts or not still:
        return hosts
    named = set(SiteHost.objects.values_list("host", flat=True))
    return tuple(host for host in hosts if host in named)


def _skills(run: Run, own: Settings) -> dict[str, str]:
    """Return the named texts for a machine that shows them: the site's as of launch, overridden by the run's own."""
    given: dict[str, str] | None = getattr(own, "skills", None)
    if given is None:
        return {}
    if run.site_skills is None:  # the run began before skills were stored
        return dict(Skill.objects.values_list("name", "text")) | given
    site: dict[str, str] = json.loads(run.site_skills.text)
    return site | given


def load(run: Run, terms: Terms) -> Loaded:
    """Return the run as its steps have it."""
    machine = CATALOGUE[run.machine]
    budgets = budgets_of(run.pk)
    last = _last_move(run)
    exchange = run.exchanges.get(seq=last[0]) if last is not None and last[1] == Step.Kind.ASK else None
    pending = None
    if exchange is not None:
        pending = Pending(EFFECT.validate_json(exchange.request_json), exchange.seq, exchange.attempt)
    limits: dict[LimitName, float] = {
        name: budgets["limits", name][1] for name in LIMIT_NAMES if ("limits", name) in budgets
    }
    snapshot = Snapshot(
        node=run.node,
        state=state_at(run, machine, terms, run.head),
        head=run.head,
        pending=pending,
        held=_held(run, last),
        totals=totals_of(run),
        limits=limits,
        restored=restored_in(run),
    )
    noted = site_rules_of(run)
    if noted is not None:
        snapshot = snapshot._replace(rules_now=named(terms, noted.rules))
    snapshot = snapshot._replace(calls=reached_calls(run, snapshot.rules, run.head))
    known = run.site_rules_json if noted is None else noted.text
    return Loaded(run, machine, snapshot, budgets, exchange, known)


_RESTORED = (
    f"SELECT seq FROM runs_step WHERE run_id = %s AND {telling('run.restored')} ORDER BY seq DESC LIMIT 1"
)


def restored_in(run: Run) -> int:
    """Return the last step with a restore; 0 if there is none."""
    found: tuple[int] | None = first(_RESTORED, run.pk) if run.restored_at else None
    return found[0] if found else 0


def _held(run: Run, last: tuple[int, str] | None) -> Held | None:
    """Return the call behind a compaction, if that is the last move."""
    if last is None or last[1] != Step.Kind.COMPACTION:
        return None
    asked = run.exchanges.filter(kind="compaction", seq__lt=last[0]).order_by("-seq").first()
    return held_by(EFFECT.validate_json(asked.request_json)) if asked else None


_LAST_MOVE = (
    f"SELECT seq, kind FROM runs_step WHERE run_id = %s AND live AND kind IN ({quoted(MOVES)})"
    " ORDER BY seq DESC LIMIT 1"
)


def _last_move(run: Run) -> tuple[int, str] | None:
    """Return seq and kind of the last live step that is a move of the machine."""
    found: tuple[int, str] | None = first(_LAST_MOVE, run.pk)
    return found


_ADDED = (
    f"SELECT COUNT(*) FROM runs_step WHERE run_id = %s AND seq <= %s"
    f" AND (kind NOT IN ({quoted(MOVES)}) OR {telling('run.restored.asked')})"
)


def rows_added(run_id: int, seq: int) -> int:
    """Return how many of the steps up to `seq` people, the runtime or a restore added; rolled-back ones count."""
    found: tuple[int] = first(_ADDED, run_id, seq)
    return found[0]


_STATE_AT = (
    "SELECT state_json FROM runs_step WHERE run_id = %s AND seq <= %s AND state_json IS NOT NULL"
    " ORDER BY seq DESC LIMIT 1"
)


def state_at(run: Run, machine: Machine, terms: Terms, seq: int) -> State:
    """Return the control state after step `seq`. A step without a state has the previous one's; a rewind has
    its own."""
    stored = first(_STATE_AT, run.pk, seq)
    if stored is None:
        return machine.open(terms)
    return machine.state.model_validate({**json.loads(stored[0]), "terms": terms})


def reached_calls(run: Run, rules: Iterable[NamedRule], upto: int) -> dict[str, int]:
    """Return how often each call was reached on the live path up to step `upto`; only if a rule looks at it."""
    if not any(rule.when.same_call for _, rule in rules):
        return {}
    live = run.steps.filter(kind=Step.Kind.ASK, live=True, seq__lte=upto).values("seq")
    calls = run.exchanges.filter(kind__in=("tool_call", "child_run"), attempt=1, seq__in=live)
    return dict(calls.values_list("fingerprint").annotate(times=Count("pk")))


def attempts_of(run: Run) -> dict[str, int]:
    """Return how many attempts the run has made at each role and tool, by "kind name"."""
    made = rows(
        "SELECT kind, name, MAX(nth) FROM runs_exchange WHERE run_id = %s AND nth > 0 GROUP BY kind, name",
        run.pk,
    )
    return {f"{kind} {name}": most for kind, name, most in made}


_LAST_REPLY = """
SELECT reply.seq FROM runs_exchange reply JOIN runs_step asked
    ON asked.run_id = reply.run_id AND asked.seq = reply.seq
WHERE reply.run_id = %s AND reply.kind = 'model_call' AND reply.name = 'decision'
    AND asked.kind = 'ask' AND asked.live
ORDER BY reply.seq DESC LIMIT 1
"""


def last_reply(run_id: int) -> int | None:
    """Return the ask of the last reply on the live path: the one that the next validation is about."""
    found: tuple[int] | None = first(_LAST_REPLY, run_id)
    return found[0] if found else None


def load_blocks(run: Run, machine: Machine, upto: int) -> list[Block]:
    """Return the blocks shown to the model up to step `upto`."""
    return _blocks(machine, run.steps.filter(live=True, seq__lte=upto))


def load_window(run: Run, machine: Machine, upto: int) -> list[Block]:
    """Return the same without summarised blocks: as much as a prompt needs, however long the run."""
    return _window(machine, run.steps.filter(live=True, seq__lte=upto))


def blocks_at(run: Run, machine: Machine, upto: int) -> list[Block]:
    """Return the blocks that the model had when `upto` was the newest step, whatever was rolled back since."""
    return _blocks(machine, _live_at(run, upto))


def window_at(run: Run, machine: Machine, upto: int) -> list[Block]:
    """Return the same as far as a prompt needed it then."""
    return _window(machine, _live_at(run, upto))


def _live_at(run: Run, upto: int) -> QuerySet[Step]:
    rows = run.steps.filter(seq__lte=upto)
    gone = Q()
    for over in gone_over(rows):
        gone |= Q(seq__gte=over.start, seq__lt=over.stop)
    return rows.exclude(gone) if gone else rows


def gone_over(rows: QuerySet[Step]) -> list[range]:
    """Return the steps that rewinds among `rows` rolled back: from the one after their target to the rewind itself."""
    rewinds = rows.filter(kind=Step.Kind.REWIND).order_by("seq").values_list("seq", "facts_json")
    told = ((seq, fact) for seq, text in rewinds for fact in json.loads(text))
    return [range(fact["to_seq"] + 1, seq) for seq, fact in told if fact["kind"] == "run.rewound"]


def _window(machine: Machine, rows: QuerySet[Step]) -> list[Block]:
    acts = _blocks(machine, rows.filter(kind__in=(Step.Kind.COMPACTION, Step.Kind.NOTE)))
    context = folded(acts)
    covered = Q()
    for summary in context.standing():
        covered |= Q(seq__gte=summary.made.first, seq__lte=summary.made.last) & ~Q(seq__in=summary.made.kept)
    if not covered:
        return _blocks(machine, rows)
    pinned = {int(path[3:]) for path in context.pins if path.startswith("st:")}
    pinned |= {seq for rows in context.pins.values() for seq in rows}
    acting = Q(kind__in=(Step.Kind.COMPACTION, Step.Kind.NOTE))
    for tool in ("react.memory_hide", "react.read"):  # hide steps, and show them again
        acting |= tells_of("react.infra.result", tool=tool)
    acting |= tells_of("react.tool.result", outputs=True)  # artifacts may be shown again
    return needed(_blocks(machine, rows.filter(~covered | Q(seq__in=pinned) | acting)))


def _blocks(machine: Machine, rows: QuerySet[Step]) -> list[Block]:
    found = rows.exclude(facts_json="[]").order_by("seq").values_list("seq", "facts_json")
    read = machine.facts.validate_json
    return [block for seq, text in found for block in blocks_of(machine, read(text), seq)]


_WISH = f"""
SELECT seq FROM runs_step
WHERE run_id = %s AND live AND kind = 'note' AND {telling("conv.compaction.wanted")}
ORDER BY seq DESC LIMIT 1
"""


def compaction_wanted(run: Run) -> bool:
    """Return True if a person's request for a compaction has no answer yet."""
    asked = first(_WISH, run.pk)
    if asked is None:
        return False
    later = run.steps.filter(live=True, seq__gt=asked[0])
    answered = Q(kind=Step.Kind.COMPACTION)
    for code in NO_COMPACTION:
        answered |= tells_of("react.notice", code=code)
    return not later.filter(answered).exists()


def summary_text(run: Run, seq: int) -> str | None:
    """Return the current text of the summary from step `seq`; None if that step is no live compaction."""
    summary = folded(context_blocks(run)).summaries.get(seq)
    return summary.text if summary else None


def context_blocks(run: Run) -> list[Block]:
    """Return the changes of the run's context: its compactions, and people's changes to them."""
    rows = run.steps.filter(live=True, kind__in=(Step.Kind.COMPACTION, Step.Kind.NOTE))
    return _blocks(CATALOGUE[run.machine], rows)
