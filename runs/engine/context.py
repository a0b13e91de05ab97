"""How full the window is, and which older blocks a summary is to stand for when it gets too full.

The cut falls between rounds, so that a call is never parted from its result; the plan and what a person pinned stay
as they are; an earlier summary is carried on, not nested. See docs/context.md, "Compaction".
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
"""Where nothing is known of a run's provider yet."""

SUMMARY_TOKENS = 800
"""A summary's size at most; in a small window a quarter of it."""

LEAST_ROOM = 1000
"""Characters that a summariser is shown, however small the window is."""

BLOCK_SHARE = 0.25
"""How much of the window one block may fill; more of it is left out."""

KEPT_AT_MOST = 0.8
"""How much of what makes a compaction due may be kept as recent, so that each one makes room."""

WORTH = 0.05
"""Share of the window that a summary has to free, unless the prompt fits then and did not before. Where what stays
fills the window, one would be made every round for little."""

WELL_BELOW = 0.9
"""Share of what makes a compaction due at which a prompt has to be after one, or the next one is due at once."""

RETRY_ROWS = 20
"""Rows after a summariser failed, or wrote a summary that was of little use, before it is asked again; until then old
results are left out where need be."""

RATIO_RANGE = (0.05, 2.0)
"""Tokens per character, whatever a provider says it counted."""

NO_LIMIT = 10**12
"""Tokens of a window that nothing fills."""

Round = list[Block]


def window_of(
    blocks: Sequence[Block],
    settings: ContextSettings,
    limit: int | None,
    tokens_per_character: float,
    price: Price | None,
) -> Window:
    """What the kernel has to know of a run so that its prompts fit."""
    return Window(
        blocks=blocks,
        limit=limit or NO_LIMIT,
        compact_at=settings.compact_at,
        keep_recent=settings.keep_recent,
        tokens_per_character=tokens_per_character,
        price=price,
    )


def ratio(input_tokens: int, characters: int) -> float:
    """Tokens per character, by what the provider counted for a prompt of so many characters."""
    if not input_tokens or not characters:
        return 1 / CHARACTERS_PER_TOKEN
    # In steps, so that a bound derived from it, and with it the prompt's prefix, does not change from call to call.
    found = math.ceil(input_tokens / characters * 20) / 20
    return min(max(found, RATIO_RANGE[0]), RATIO_RANGE[1])


def tokens(characters: int, per_character: float) -> int:
    """The estimate."""
    return math.ceil(characters * per_character)


def size(machine: Machine, terms: Terms, window: Window, call: ModelCall) -> int:
    """The estimate of the prompt of `call`, in tokens."""
    characters = sum(len(part.text) for part in pieces(machine, terms, window.blocks, call))
    return tokens(characters, window.tokens_per_character)


def fit(
    machine: Machine, terms: Terms, window: Window, call: ModelCall, head: int
) -> Compaction | tuple[ModelCall, tuple[Fact, ...]]:
    """A compaction that has to come first, or the call as it fits the window, with what is to be said of it."""
    call = _bounded(window, call)
    context = folded(window.blocks)
    estimate = size(machine, terms, window, call)
    over = estimate > window.limit
    wanted = context.wanted
    full = estimate > window.compact_at * window.limit
    if context.failed and head - context.failed < RETRY_ROWS:
        full = False
    if not over and _was_of_little_use(window, context, head):
        full = False
    if not full and wanted is None:
        return (call.model_copy(update={"sanitize": True}) if over else call), ()
    filled = replace(window, limit=min(window.limit, estimate))
    found = _range(window, context, call.longest)
    if found is None and wanted is not None:  # a person does not wait until the window is half full
        due = full and context.waits  # what was taken back has been in a prompt since
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
    """Why a wish is not granted: it waits, where only what was taken back since is old enough."""
    if _range(window, context, longest, also_brought_back=True) is None:
        nothing = "Nothing is old enough to be summarised: the context holds recent rounds and what stays."
        return Notice(code="nothing_to_compact", message=nothing)
    waits = (
        "All that is old enough to be summarised was taken back since, and is read as it is for now. "
        "The compaction waits until the window is full, or other rows are old enough."
    )
    return Notice(code=WAITS, message=waits)


def summariser_room(window: Window) -> int:
    """Characters of the blocks that fit a prompt for a summary."""
    tokens = window.limit * window.compact_at - summary_tokens(window)
    return max(LEAST_ROOM, int(tokens / window.tokens_per_character))


def summary_tokens(window: Window) -> int:
    """How long a summary may be."""
    return min(SUMMARY_TOKENS, int(window.limit * BLOCK_SHARE))


def _bounded(window: Window, call: ModelCall) -> ModelCall:
    """The call with a bound on single blocks, where one could fill the window."""
    longest = int(window.limit * BLOCK_SHARE / window.tokens_per_character)
    return call if longest >= SHOWN + 200 else call.model_copy(update={"longest": longest})


def _range(
    window: Window, context: Context, longest: int, *, also_brought_back: bool = False
) -> Compaction | None:
    """What is older than the most recent rounds, as one unbroken range; None where there is nothing to summarise.

    It carries on the newest summary, where nobody pinned that, and leaves alone what stands before other ones.
    """
    standing = context.standing()
    earlier = standing[-1] if standing and standing[-1].path not in context.pins else None
    floor = max((summary.made.last for summary in standing if summary is not earlier), default=0)
    read = shown(window.blocks, context)
    cut: list[int] = []
    for blocks in _old_rounds(window, read, longest):
        if any(context.stays(block.seq) for block in blocks if block.kind != SUMMARY):
            continue  # a call stays with its result
        for block in blocks:
            left_alone = context.brought_back(block.seq) and not also_brought_back
            if block.kind != SUMMARY and block.seq > floor and not left_alone:
                cut.append(block.seq)
    if not cut:
        return None
    # Never less than the earlier one, or what that one stands for would be read again.
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
    """Whether it makes the prompt fit, or frees more than a little and reaches well below what made it due."""
    if estimate > window.limit >= _after(window, context, found, estimate):
        return True
    rest = _rest(window, context, found, estimate)
    return _freed(window, context, found) / window.limit >= WORTH and rest <= _well_below(window)


def _after(window: Window, context: Context, found: Compaction, estimate: int) -> float:
    """What the prompt would come to, at most: the summary as long as it may be, the earlier one gone."""
    return _rest(window, context, found, estimate) + summary_tokens(window)


def _rest(window: Window, context: Context, found: Compaction, estimate: int) -> float:
    """What stays of the prompt beside the summary."""
    earlier = context.summaries.get(found.updates)
    before = len(earlier.text) * window.tokens_per_character if earlier else 0.0
    return estimate - _freed(window, context, found) - before


def _well_below(window: Window) -> float:
    return window.compact_at * window.limit * WELL_BELOW


def _was_of_little_use(window: Window, context: Context, head: int) -> bool:
    """Whether the newest summary was made a moment ago and left the prompt about as full as made it due."""
    newest = max(context.standing(), key=lambda one: one.seq, default=None)
    lately = newest is not None and head - newest.seq < RETRY_ROWS
    return lately and newest is not None and newest.made.tokens_after > _well_below(window)


def _freed(window: Window, context: Context, found: Compaction) -> float:
    """Tokens of the blocks that the summary stands for."""
    gone = sum(
        len(block.text)
        for block in shown(window.blocks, context)
        if block.kind != SUMMARY and found.first <= block.seq <= found.last and block.seq not in found.kept
    )
    return gone * window.tokens_per_character


def _old_rounds(window: Window, read: Sequence[Block], longest: int) -> list[Round]:
    """The rounds of what is read before the most recent ones, of which the last always stays: earlier runs may go."""
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
    """The blocks in rounds: each begins with what the agent said, and holds what came of it.

    A row is never parted. What stands before the first round is one of its own, and so is a summary.
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
    """What the summary of a range stands for: the earlier summary that it carries on, and what that one has not."""
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
    """Whether nobody took back, pinned or corrected, while it was written, the summary that this one carries on."""
    context = folded(window.blocks)
    standing = {one.seq: one.version for one in context.standing() if one.path not in context.pins}
    return not compaction.updates or standing.get(compaction.updates) == compaction.version


def summarised(
    machine: Machine, terms: Terms, window: Window, compaction: Compaction, text: str, head: int
) -> RangeSummarised:
    """The fact that a summary becomes; row `head` + 1 will hold it."""
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
