"""Track the data that a run has read, and the hosts that its calls may carry it to. See docs/runtime.md, "Gates".

A host's own data may go back to it. Other data goes only to hosts named by the launch or the site, or allowed by a
person.
"""

from __future__ import annotations

from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    HumanCall,
    HumanSaid,
    ToolCall,
    ToolReturned,
    call_in,
)
from runs.engine.facts import DataRead, HostAllowed
from runs.engine.hosts import host_of, is_named
from runs.engine.machine import State
from runs.engine.snapshot import Pending

ENOUGH = 2
"""Sources noted: with two, no single host was the origin of everything."""

_WHAT = {"private": "private data", "untrusted": "untrusted content"}


def host_contacted(state: State, call: ToolCall | ChildRun) -> str | None:
    """Return the host that a call contacts: None if it contacts none, empty if unknown."""
    spec = state.terms.tools.get(call.tool)
    if spec is None or not spec.outward:
        return None
    is_argument = spec.outward in (spec.parameters.get("properties") or {})
    return host_of(call.args.get(spec.outward) if is_argument else spec.outward)


def carried_to(state: State, host: str) -> tuple[DataRead, ...]:
    """Return the data that a call would carry to the host without permission; empty if there is none."""
    if is_named(host, (*state.terms.settings.hosts, *state.hosts_allowed)):
        return ()
    return tuple(read for read in state.data_read if not host or read.host != host)


def allowed_by_person(state: State, call: ToolCall) -> str:
    """Return the host that the call contacts only because a person allowed it for this run; empty if none is."""
    host = host_contacted(state, call) if state.hosts_allowed and state.data_read else None
    if not host or is_named(host, state.terms.settings.hosts):
        return ""
    return host if host in state.hosts_allowed else ""


def why_ask(host: str, read: DataRead) -> str:
    """Return the reason to ask before a call to an unnamed host."""
    if not host:
        return f"This run has read {_told(read)}. The call does not say which host it contacts."
    return f"This run has read {_told(read)}. The call contacts {host}, which neither the launch nor the site names."


def _told(read: DataRead) -> str:
    what = _WHAT[read.what]
    if read.run:
        return f"{what} (through run {read.run}, which it continues)"
    return (
        f"{what} ({read.tool}, step {read.step})"
        if read.tool
        else f"{what} (through the run that started it)"
    )


def newly_read(state: State, pending: Pending | None, answer: Answer | None) -> tuple[DataRead, ...]:
    """Return the data that the answer to a call brought into the run, if from a new source."""
    call = call_in(pending.effect) if pending else None
    spec = state.terms.tools.get(call.tool) if call else None
    if pending is None or call is None or spec is None or not spec.reads or not _gives(call, answer):
        return ()
    host = (host_contacted(state, call) or "") if spec.reads == "untrusted" else ""
    if len(state.data_read) >= ENOUGH or host in {read.host for read in state.data_read}:
        return ()
    return (DataRead(what=spec.reads, tool=call.tool, host=host, step=pending.seq),)


def _gives(call: ToolCall | ChildRun, answer: Answer | None) -> bool:
    """Return True if the answer is the call's own result, not given by a person or a rule in its place."""
    match answer:
        case ToolReturned(ran=ran):
            return ran or (isinstance(call, ToolCall) and call.infra)
        case ChildFinished(answer=text, message=why):
            return text is not None or bool(why)
    return False


def inherited(state: State) -> tuple[DataRead, ...]:
    """Return the data that a child run gets through the goal from this run."""
    return tuple(DataRead(what=read.what, tool="", host="", step=0) for read in state.data_read[:1])


def carried_on(state: State, run: int) -> tuple[DataRead, ...]:
    """Return the data inherited by a run that continues `run`, from its last state."""
    return tuple(read.model_copy(update={"run": run}) for read in inherited(state))


def newly_allowed(call: HumanCall, said: HumanSaid) -> tuple[HostAllowed, ...]:
    """Return the host allowed for the whole run with an approval."""
    return (HostAllowed(host=call.host, by=said.by),) if said.allow_host and call.host else ()
