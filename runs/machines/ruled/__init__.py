"""`ruled`: every thought is validated by rules before it may act.

Pure functions: `settings`, `facts`, `state` and its fold, `nodes`, `prompts`. Here is the declaration.
See docs/machines.md, "ruled".
"""

from __future__ import annotations

from runs.engine.facts import FeedbackGiven
from runs.engine.machine import COMMON_EXITS, END, Edge, Machine
from runs.engine.presentation import BudgetRow, Presentation
from runs.machines.ruled import prompts as words
from runs.machines.ruled.facts import (
    DraftApproved,
    DraftPassed,
    DraftRejected,
    DraftReturned,
    ReplyUnread,
    RuleBroken,
    StepCommitted,
    StepObserved,
    SubgraphMerged,
    Thought,
)
from runs.machines.ruled.form import FORM
from runs.machines.ruled.lines import EXITS, LINES
from runs.machines.ruled.nodes import action, commit, observation, subgraph, thought, validate
from runs.machines.ruled.panel import PANEL
from runs.machines.ruled.settings import RETRIES, RuledSettings
from runs.machines.ruled.state import RuledState, evolve, feedback, kept, open_state


def budget(state: RuledState) -> tuple[BudgetRow, ...]:
    """Return the budget lines: committed steps, and rejected drafts in a row (advisory: past 3 a person is asked)."""
    return (
        BudgetRow(scope="global", name="steps", used=state.steps, limit=state.settings.max_steps),
        BudgetRow(scope="global", name="retries", used=state.metadata.retry_count, limit=RETRIES),
    )


def budget_text(state: RuledState) -> str:
    """Return the budget in one line."""
    left = max(0, state.settings.max_steps - state.steps)
    return f"BUDGET_STATE: steps left {left}/{state.settings.max_steps}, retries {state.metadata.retry_count}/{RETRIES}"


RULED = Machine(
    name="ruled",
    line="Every thought is checked by rules before it may act; rejected ones are retried, then shown to a person.",
    start="thought",
    deciding="thought",
    nodes={
        "thought": thought,
        "validate": validate,
        "action": action,
        "subgraph": subgraph,
        "observation": observation,
        "commit": commit,
    },
    edges=(
        Edge("thought", "thought", "validate"),
        Edge("validate", "pass", "action"),
        Edge("validate", "retry", "thought", "retryable violation"),
        Edge("validate", "terminal", END, "terminal violation, or no retries left and no person to ask"),
        Edge("action", "subgraph", "subgraph", "a fixed subgraph has not run yet"),
        Edge("subgraph", "merged", "action"),
        Edge("action", "executed", "observation", "also when there is nothing to execute"),
        Edge("observation", "recorded", "commit"),
        Edge("commit", "continue", "thought"),
        Edge("commit", "terminated", END),
    ),
    exit_reasons=(
        "goal_achieved",
        "max_steps",
        "cost_limit",
        "rule_violation",
        "retries_exhausted",
        *COMMON_EXITS,
    ),
    settings=RuledSettings,
    state=RuledState,
    own_facts=(
        Thought,
        ReplyUnread,
        DraftPassed,
        DraftRejected,
        DraftApproved,
        DraftReturned,
        RuleBroken,
        SubgraphMerged,
        StepObserved,
        StepCommitted,
        FeedbackGiven,
    ),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.steps,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=words.block,
    reply_schema=words.reply_schema,
    kept=kept,
    feedback=feedback,
    keeps_summary=True,
    metadata=lambda state: state.metadata.model_dump(mode="json"),
    remembers=("validate", "pass"),
    presentation=Presentation(facts=LINES, exits=EXITS, panel=PANEL, form=FORM, usual=True),
)
