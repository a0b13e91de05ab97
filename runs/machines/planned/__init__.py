"""`planned`: follows a plan, records why a step was skipped, and plans again if it fails or is left.

Pure functions: `settings`, `facts`, `state` and its fold, `nodes`, `prompts`. Here is the declaration. See
docs/machines.md, "planned".
"""

from __future__ import annotations

from runs.engine.machine import COMMON_EXITS, END, Edge, Machine, Plan
from runs.engine.presentation import Presentation
from runs.machines.planned import prompts as words
from runs.machines.planned.facts import OWN_FACTS
from runs.machines.planned.form import FORM
from runs.machines.planned.lines import EXITS, LINES
from runs.machines.planned.nodes import PLAN_SCHEMA, changed_plan, execute, finish, plan, select, shown_plan
from runs.machines.planned.panel import PANEL
from runs.machines.planned.settings import FINAL, PlannedSettings
from runs.machines.planned.state import PlannedState, budget, evolve, open_state


def budget_text(state: PlannedState) -> str:
    """Return the budget in one line."""
    attempts, replans = state.max_steps - state.attempts, state.settings.max_replans - state.replans
    return (
        f"BUDGET_STATE: attempts left {attempts}/{state.max_steps}, "
        f"replans left {replans}/{state.settings.max_replans}"
    )


PLANNED = Machine(
    name="planned",
    line="Follows a plan step by step, says why it skips a step, and plans again after failures.",
    start="plan",
    deciding="select",
    nodes={"plan": plan, "select": select, "execute": execute, "finish": finish},
    edges=(
        Edge("plan", "planned", "select"),
        Edge("select", "action", "execute"),
        Edge("select", "skip", "select", "this attempt could not run anything"),
        Edge("select", "replan", "plan", "the second duplicate in a row that the plan asks for"),
        Edge("select", "exhausted", "finish", "attempts reached max_steps"),
        Edge("execute", "success", "select"),
        Edge("execute", "failure", "select"),
        Edge("execute", "replan", "plan"),
        Edge("execute", "final_answer", "finish", "a final_answer that succeeded"),
        Edge("finish", "final", END),
    ),
    exit_reasons=("complete", "budget_exhausted", *COMMON_EXITS),
    settings=PlannedSettings,
    state=PlannedState,
    own_facts=OWN_FACTS,
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=words.block,
    reply_schema=words.reply_schema,
    built_in=(FINAL,),
    plan=Plan(schema=PLAN_SCHEMA, shown=shown_plan, changed=changed_plan),
    presentation=Presentation(facts=LINES, exits=EXITS, panel=PANEL, form=FORM),
)
