"""The nodes `protocol_verify` and `tool_execution`: check a call, make it, register its artifacts."""

from __future__ import annotations

from runs.engine.artifacts import part_of
from runs.engine.effects import Answer, ChildFinished, Failed, ToolReturned
from runs.engine.facts import Notice, ToolCalled, ToolReported
from runs.engine.kernel import Fatal, UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.engine.reporting import reported
from runs.engine.tools import InspectedCall, inspect_call
from runs.machines.contract.facts import ArtifactMade
from runs.machines.contract.replies import CallReply
from runs.machines.contract.state import ContractState

KINDS = ("inline", "file", "search")

ERROR_SHOWN = 500
"""Characters of an artifact's error that the state keeps."""

BLOCKING = (
    "missing_tool_id",
    "unknown_tool_id",
    "tool_not_allowed",
    "bad_params",
    "missing_out_artifacts_spec",
    "missing_required",
    "type_mismatch",
    "unknown_param",
)
"""Faults that block a call, in the order of their report."""


def protocol_verify(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Check the call against its tool: faults block it; mere drops do not."""
    if answer is not None:
        raise UnexpectedAnswer("protocol_verify", answer)
    call = _call_of(state)
    faults = [(flaw.code, flaw.message, flaw.param) for flaw in _inspected(state).flaws]
    if not isinstance(call.params, dict) and all(code != "bad_params" for code, _, _ in faults):
        faults.append(("bad_params", "The arguments of a call must be an object.", ""))
    if wrong := _outputs_fault(call):
        faults.append(("missing_out_artifacts_spec", wrong, ""))
    faults.sort(key=lambda fault: BLOCKING.index(fault[0]))
    dropped = [(drop.code, drop.message, drop.param) for drop in _inspected(state).drops]
    notices = tuple(
        Notice(code=code, message=message, param=param) for code, message, param in (*faults, *dropped)
    )
    return Go("violation" if faults else "ok", notices)


def _call_of(state: ContractState) -> CallReply:
    assert state.last_decision is not None
    return state.last_decision.call


def _inspected(state: ContractState) -> InspectedCall:
    call = _call_of(state)
    return inspect_call(state.terms.tools, call.tool_id, call.params)


def _outputs_fault(call: CallReply) -> str:
    """Return the fault of the declared outputs; empty if there is none."""
    if not call.outputs:
        return "A call must declare what it makes: out_artifacts with a name and a kind."
    if any(not output.name or output.kind not in KINDS for output in call.outputs):
        return f"Each of out_artifacts needs a name and a kind: {', '.join(KINDS[:-1])} or {KINDS[-1]}."
    return ""


def tool_execution(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Run the call and register its declared artifacts, with their error if it failed."""
    tool = str(_call_of(state).tool_id)
    match answer:
        case None:
            return _run(state)
        case ToolReturned() | ChildFinished() | Failed():
            return _done(state, reported(tool, answer))
    raise UnexpectedAnswer("tool_execution", answer)


def _run(state: ContractState) -> Ask:
    call = _inspected(state)
    spec = call.spec
    if spec is None or call.flaws:
        raise Fatal(f"The tool {_call_of(state).tool_id} changed after the call was checked.")
    called = ToolCalled(tool=spec.name, args=call.args)
    return Ask(spec.effect_with(call.args), (called,))


def _done(state: ContractState, reported: ToolReported) -> Go:
    outputs = _call_of(state).outputs
    names = tuple(str(output.name) for output in outputs)
    made = (
        ArtifactMade(
            name=str(output.name),
            artifact_kind=str(output.kind),
            error=None if reported.error is None else (reported.error or "It failed.")[:ERROR_SHOWN],
            empty=part_of(reported.value, names, str(output.name)) is None,
        )
        for output in outputs
    )
    return Go("done", (reported.model_copy(update={"outputs": names}), *made))
