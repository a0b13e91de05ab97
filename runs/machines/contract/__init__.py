"""`contract`: fills typed slots under hard and advisory budgets, with overdraft and one wrap-up turn.

Pure functions, in the order of a story: `settings` and their `budgets`, the model's `replies`, the `facts`, the `state`
and its fold; then the nodes (`deciding`, `calling`, `judging`) and the state in words (`telling`). Here is the
declaration. See docs/machines.md, "contract".
"""

from runs.engine.machine import COMMON_EXITS, END, Edge, Machine
from runs.engine.presentation import Presentation
from runs.machines.contract import prompts as words
from runs.machines.contract.calling import protocol_verify, tool_execution
from runs.machines.contract.deciding import decision
from runs.machines.contract.facts import (
    ArtifactMade,
    ContractJudged,
    ContractSet,
    DecisionMade,
    DecisionUnread,
    ExitIntended,
    OverdraftGranted,
    RerunTaken,
    SlotMapped,
    ThingsShown,
    WrapUpBegan,
)
from runs.machines.contract.form import FORM
from runs.machines.contract.judging import exit_node, ok, succeeded
from runs.machines.contract.lines import EXITS, LINES, violation
from runs.machines.contract.panel import PANEL
from runs.machines.contract.settings import ContractSettings
from runs.machines.contract.state import ContractState, evolve, open_state
from runs.machines.contract.telling import artifacts, block, budget, budget_text

CONTRACT = Machine(
    name="contract",
    line="Fills the slots of a contract under budgets; artifacts go into the slots before the run ends.",
    start="decision",
    deciding="decision",
    nodes={
        "decision": decision,
        "protocol_verify": protocol_verify,
        "tool_execution": tool_execution,
        "exit": exit_node,
    },
    edges=(
        Edge("decision", "call_tool", "protocol_verify", "the decision calls a tool and no exit is pending"),
        Edge("decision", "rerun", "decision", "an accepted `decision`, or a violation that forces a rerun"),
        Edge("decision", "answered", "decision", "`clarify` that a person answered"),
        Edge("decision", "wrapup", "decision", "the router opened the wrap-up round"),
        Edge("decision", "exit", "exit", "the router resolved an exit reason"),
        Edge("protocol_verify", "ok", "tool_execution"),
        Edge("protocol_verify", "violation", "decision"),
        Edge("tool_execution", "done", "decision"),
        Edge("exit", "final", END),
    ),
    exit_reasons=(
        "complete",
        "clarify",
        "max_iterations",
        "context_reads_exhausted",
        "decision_no_progress",
        "decision_reruns_exhausted",
        "wrapup_no_decision_rerun",
        "exploit_overdraft_blocked",
        "incomplete_contract",
        *COMMON_EXITS,
    ),
    settings=ContractSettings,
    state=ContractState,
    own_facts=(
        ContractSet,
        OverdraftGranted,
        DecisionMade,
        DecisionUnread,
        RerunTaken,
        ThingsShown,
        SlotMapped,
        ArtifactMade,
        ExitIntended,
        WrapUpBegan,
        ContractJudged,
    ),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=block,
    reply_schema=words.reply_schema,
    artifacts=artifacts,
    rewords={"complete": "incomplete_contract"},
    succeeded=succeeded,
    ok=ok,
    presentation=Presentation(
        facts=LINES,
        exits=EXITS,
        violation=violation,
        speaking_notices=("coordinator_unusable",),
        panel=PANEL,
        form=FORM,
    ),
)
