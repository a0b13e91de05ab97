"""A rewind as one batch: the steps after the target are no longer live, and the state is the target's."""

from __future__ import annotations

from runs.engine.kernel import rewound
from runs.engine.moves import Rewind
from runs.engine.snapshot import Snapshot
from runs.store.appending import batch_on, facts_text, prompt_chain
from runs.store.loading import Loaded, load_blocks, state_at
from runs.store.log import Batch, Row


def rewind_batch(loaded: Loaded, move: Rewind) -> tuple[Batch, Snapshot]:
    """Return the batch to write, and the run after it."""
    run, machine = loaded.run, loaded.machine
    terms = loaded.snapshot.state.terms
    target = run.steps.get(seq=move.to)
    state = state_at(run, machine, terms, move.to)
    after = rewound(machine, loaded.snapshot, move, str(target.to), state)
    row = Row(
        after.head,
        "rewind",
        run.node,
        to=after.node,
        facts_json=facts_text(move.facts),
        state_json=after.state.model_dump_json(),
    )
    batch = batch_on(run, row)
    batch.node = after.node
    batch.totals = after.totals
    batch.prompt_hash = prompt_chain("", load_blocks(run, machine, move.to))
    batch.budgets = list(machine.budget(after.state))
    batch.dead_after = move.to
    return batch, after
