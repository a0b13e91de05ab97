"""Measure how full the window is, and choose the older blocks that a summary replaces.

The cut falls between turns, so a call is never parted from its result. The plan and pinned blocks stay as they are. A
later summary carries on an earlier one; they do not nest. See docs/context.md, "Compaction".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from runs.engine.effects import Compaction, ModelCall
from runs.engine.facts import Fact, Notice, RangeSummarised
from runs.engine.machine import Block, Machine, Terms
from runs.engine.settings import ContextSettings
from runs.engine.snapshot import Price, Window
from runs.engine.timeline import (
    EARLIER,
    SHOWN,
    SUMMARY,
    WAITS,
    Context,
    blocks_of,
    fenced,
    folded,
    pieces,
    shown,
)

CHARACTERS_PER_TOKEN = 4
"""Used until the run's provider has counted a prompt."""

SUMMARY_TOKENS = 800
"""A summary's largest size; in a small window a quarter of it."""

LEAST_ROOM = 1000
"""Characters shown to a summariser, however small the window is."""

BLOCK_SHARE = 0.25
"""Share of the window that one block may fill; the rest of the block is left out."""

KEPT_AT_MOST = 0.8
"""Share of the compaction threshold that may be kept as recent, so each compaction makes room."""

WORTH = 0.05
"""Least share of the window that a summary frees, unless the prompt fits only with it. Otherwise kept blocks that fill
the window would cause a compaction in every turn."""

WELL_BELOW = 0.9
"""Share of the compaction threshold that a prompt must fall below, or the next compaction is due at once."""

RETRY_ROWS = 20
"""Steps before a summariser is asked again after it failed or freed too little. Until then old results are left out if
needed."""

RATIO_RANGE = (0.05, 2.0)
"""Tokens per character: bounds on a provider's own count."""

NO_LIMIT = 10**12
"""Tokens of a window without a limit."""

Round = list[Block]


def window_of(
    blocks: Sequence[Block],
    settings: ContextSettings,
    limit: int | None,
    tokens_per_character: float,
    price: Price | None,
) -> Window:
    """Return the kernel's view of a run's window, so its prompts fit."""
    return Window(
        blocks=blocks,
        limit=limit or NO_LIMIT,
        compact_at=settings.compact_at,
        keep_recent=settings.keep_recent,
        tokens_per_character=tokens_per_character,
        price=price,
    )


def ratio(input_tokens: int, characters: int) -> float:
    """Return the tokens per character that the provider counted for a prompt of so many characters."""
    if not input_tokens or not characters:
        return 1 / CHARACTERS_PER_TOKEN
    # In steps, so that a bound derived from it, and with it the prompt's prefix, does not change from call to call.
    found = math.ceil(input_tokens / characters * 20) / 20
    return min(max(found, RATIO_RANGE[0]), RATIO_RANGE[1])


def tokens(characters: int, per_character: float) -> int:
    return math.ceil(characters * per_character)


def size(machine: Machine, terms: Terms, window: Window, call: ModelCall) -> int:
    """Return the estimate of the prompt of `call`, in tokens."""
    characters = sum(len(part.text) for part in pieces(machine, terms, window.blocks, call))
    return tokens(characters, window.tokens_per_character)


def fit(
    machine: Machine, terms: Terms, window: Window, call: ModelCall, head: int
) -> Compaction | tuple[ModelCall, tuple[Fact, ...]]:
    """Return a compaction that must come first, or the call fitted to the window with its notices."""
    call = _bounded(window, call)
    context = folded(window.blocks)
    estimate = size(machine, terms, window, call)
    over = estimate > window.limit
    wanted = context.wanted
    full = estimate > window.compact_at * window.limit
    if context.failed and head - context.failed < RETRY_ROWS:
        full = False
    if not over and _freed_little(window, context, head):
        full = False
    if not full and wanted is None:
        return (call.model_copy(update={"sanitize": True}) if over else call), ()
    filled = replace(window, limit=min(window.limit, estimate))
    found = _range(window, context, call.longest)
    if found is None and wanted is not None:  # a person does not wait until the window is half full
        due = full and context.waits  # a reverted summary's blocks have been in a prompt since
        found = _range(filled, context, call.longest, also_brought_back=due)
    if over and (found is None or _after(window, context, found, estimate) > window.limit):
        found = _range(window, context, call.longest, also_brought_back=True) or found
    if found is not None and wanted is None and not _is_worth(window, context, found, estimate):
        found = None
    if found is not None:
        by = wanted.by if wanted else ""
        about = {"tokens_before": estimate, "wanted_by": by, "holds": call, "room": summariser_room(window)}
        return found.model_copy(update=about)
    if over:
        call = call.model_copy(update={"sanitize": True})
    if wanted is None:
        return call, ()
    notice = _not_now(filled, context, call.longest)
    return call, () if context.waits and notice.code == WAITS else (notice,)


def _not_now(window: Window, context: Context, longest: int) -> Notice:
    """Return the notice that a requested compaction waits or has nothing to compact: only reverted blocks are old
    enough."""
    if _range(window, context, longest, also_brought_back=True) is None:
        nothing = "Nothing is old enough to compact: the context holds only recent turns and kept blocks."
        return Notice(code="nothing_to_compact", message=nothing)
    waits = (
        "All steps that are old enough come from a reverted summary. "
        "The compaction waits until the window is full, or until other steps are old enough."
    )
    return Notice(code=WAITS, message=waits)


def summariser_room(window: Window) -> int:
    """Return how many characters of blocks fit a summariser's prompt."""
    tokens = window.limit * window.compact_at - summary_tokens(window)
    return max(LEAST_ROOM, int(tokens / window.tokens_per_character))


def summary_tokens(window: Window) -> int:
    """Return a summary's longest length, in tokens."""
    return min(SUMMARY_TOKENS, int(window.limit * BLOCK_SHARE))


def _bounded(window: Window, call: ModelCall) -> ModelCall:
    """Return the call with a bound on single blocks, if one could fill the window."""
    longest = int(window.limit * BLOCK_SHARE / window.tokens_per_character)
    return call if longest >= SHOWN + 200 else call.model_copy(update={"longest": longest})


def _range(
    window: Window, context: Context, longest: int, *, also_brought_back: bool = False
) -> Compaction | None:
    """Return the blocks older than the most recent turns as one unbroken range; None if there is nothing to summarise.

    The range carries on the newest summary unless it is pinned, and leaves earlier summaries alone.
    """
    standing = context.standing()
    earlier = standing[-1] if standing and standing[-1].path not in context.pins else None
    floor = max((summary.made.last for summary in standing if summary is not earlier), default=0)
    read = shown(window.blocks, context)
    cut: list[int] = []
    for blocks in _old_turns(window, read, longest):
        if any(context.stays(block.seq) for block in blocks if block.kind != SUMMARY):
            continue  # a call stays with its result
        for block in blocks:
            left_alone = context.brought_back(block.seq) and not also_brought_back
            if block.kind != SUMMARY and block.seq > floor and not left_alone:
                cut.append(block.seq)
    if not cut:
        return None
    # Never less than the earlier summary covered, or its blocks would be read again.
    first = min([*cut, earlier.made.first] if earlier else cut)
    last = max([*cut, earlier.made.last] if earlier else cut)
    stays = {block.seq for block in read if block.kind != SUMMARY and first <= block.seq <= last} - set(cut)
    return Compaction(
        first=first,
        last=last,
        updates=earlier.seq if earlier else 0,
        version=earlier.version if earlier else 1,
        kept=tuple(sorted(stays)),
        tokens_before=0,
        holds=ModelCall(role="decision", reply="text"),
    )


def _is_worth(window: Window, context: Context, found: Compaction, estimate: int) -> bool:
    """Return True if the compaction makes the prompt fit, or frees enough and ends well below its threshold."""
    if estimate > window.limit >= _after(window, context, found, estimate):
        return True
    rest = _rest(window, context, found, estimate)
    return _freed(window, context, found) / window.limit >= WORTH and rest <= _well_below(window)


def _after(window: Window, context: Context, found: Compaction, estimate: int) -> float:
    """Return the largest size of the prompt after the compaction, without the earlier summary."""
    return _rest(window, context, found, estimate) + summary_tokens(window)


def _rest(window: Window, context: Context, found: Compaction, estimate: int) -> float:
    """Return the rest of the prompt beside the summary."""
    earlier = context.summaries.get(found.updates)
    before = len(earlier.text) * window.tokens_per_character if earlier else 0.0
    return estimate - _freed(window, context, found) - before


def _well_below(window: Window) -> float:
    return window.compact_at * window.limit * WELL_BELOW


def _freed_little(window: Window, context: Context, head: int) -> bool:
    """Return True if the newest summary is recent and the prompt is about as full as before it."""
    newest = max(context.standing(), key=lambda one: one.seq, default=None)
    lately = newest is not None and head - newest.seq < RETRY_ROWS
    return lately and newest is not None and newest.made.tokens_after > _well_below(window)


def _freed(window: Window, context: Context, found: Compaction) -> float:
    """Return the tokens of the blocks that the summary replaces."""
    gone = sum(
        len(block.text)
        for block in shown(window.blocks, context)
        if block.kind != SUMMARY and found.first <= block.seq <= found.last and block.seq not in found.kept
    )
    return gone * window.tokens_per_character


def _old_turns(window: Window, read: Sequence[Block], longest: int) -> list[Round]:
    """Return the turns before the most recent ones. The last turn always stays; blocks of earlier runs may go."""
    rounds = rounds_of(read)
    room = min(window.keep_recent, KEPT_AT_MOST * window.compact_at) * window.limit
    recent = 0
    while recent < len(rounds):
        characters = sum(min(len(block.text), longest or SHOWN) for block in rounds[-1 - recent])
        room -= characters * window.tokens_per_character
        is_history = rounds[-1 - recent][0].kind == EARLIER
        if (recent or is_history) and room < 0:
            break
        recent += 1
    return rounds[: len(rounds) - recent]


def rounds_of(blocks: Sequence[Block]) -> list[Round]:
    """Return the blocks in turns: each begins with the agent's decision, and holds its results.

    A step is never parted. Blocks before the first turn are a turn of their own, and so is a summary.
    """
    rounds: list[Round] = []
    for block in blocks:
        same_row = bool(rounds) and rounds[-1][-1].seq == block.seq and rounds[-1][-1].kind != SUMMARY
        begins = block.author == "agent" or block.kind == SUMMARY
        after_summary = bool(rounds) and rounds[-1][-1].kind == SUMMARY
        if not rounds or after_summary or (begins and not same_row):
            rounds.append([block])
        else:
            rounds[-1].append(block)
    return rounds


def originals(blocks: Sequence[Block], range_: Compaction | RangeSummarised) -> list[Block]:
    """Return the blocks behind the summary of a range: the summary carried on by it, and the blocks after that one."""
    earlier = folded(blocks).summaries.get(range_.updates)
    told = [
        block
        for block in shown([block for block in blocks if block.act is None], Context())
        if range_.first <= block.seq <= range_.last
        and block.seq not in range_.kept
        and not (earlier and earlier.covers(block.seq))
    ]
    if earlier is None:
        return told
    text = fenced(f"a summary of rows {earlier.made.first} to {earlier.made.last}", earlier.text)
    first = Block(kind=SUMMARY, author="system", text=text, seq=earlier.seq, path=earlier.path)
    return [first, *told]


def still_apt(window: Window, compaction: Compaction) -> bool:
    """Return True if the summary carried on by this one was not reverted, pinned or corrected meanwhile."""
    context = folded(window.blocks)
    standing = {one.seq: one.version for one in context.standing() if one.path not in context.pins}
    return not compaction.updates or standing.get(compaction.updates) == compaction.version


def summarised(
    machine: Machine, terms: Terms, window: Window, compaction: Compaction, text: str, head: int
) -> RangeSummarised:
    """Return the fact for a new summary; step `head` + 1 will hold it."""
    most = int(summary_tokens(window) / window.tokens_per_character)
    made = RangeSummarised(
        first=compaction.first,
        last=compaction.last,
        text=text if len(text) <= most else f"{text[: most - 1]}…",
        tokens_before=compaction.tokens_before,
        tokens_after=0,
        updates=compaction.updates,
        kept=compaction.kept,
        sources=folded(window.blocks).sources,
    )
    after = replace(window, blocks=[*window.blocks, *blocks_of(machine, (made,), head + 1)])
    return made.model_copy(update={"tokens_after": size(machine, terms, after, compaction.holds)})
