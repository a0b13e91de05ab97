"""Test a model's profile: the same calls as runs make, through the same adapter, and what to set in sentences."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from runs.adapters.models.findings import Checked, Finding, Offered, too_long_words
from runs.adapters.models.listing import NoList, offered
from runs.adapters.models.refusals import Refused
from runs.adapters.models.served import ServedModel
from runs.adapters.models.settings import ModelSettings
from runs.adapters.wire import Deadline, Net
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied
from runs.engine.ports import Message, ModelRequest
from runs.engine.reasoning import heard
from runs.engine.reply import Unread, read
from runs.engine.values import Value

CALL_S = 60.0
"""Seconds of one call at most: a test has four."""

UNCHOSEN = "(not chosen yet)"
"""The model id of a profile without one: its server is only asked for its list."""


class Probe(Value):
    """The structured reply of a test."""

    thought: str
    number: int


SCHEMA = {
    "type": "object",
    "properties": {"thought": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["thought", "number"],
    "additionalProperties": False,
}

STRUCTURED = ModelRequest(
    role="decision",
    nth=1,
    messages=(
        Message(author="system", text="Reply with a JSON object: a short thought, and the number."),
        Message(author="user", text="The number is 12 + 30. Say in a few words how you found it."),
    ),
    reply_schema=SCHEMA,
    reply_name="test",
)

STREAMED = ModelRequest(
    role="decision",
    nth=1,
    messages=(Message(author="user", text="Write the numbers from 1 to 30 in words, separated by commas."),),
    reply_schema=None,
    reply_tokens=128,
)

WORDS = "sun moon tide sand wind rain star "
FORMS = {"native": "json_object", "json_object": "prompted"}
"""The output mode to try next."""

_ROOM = (
    re.compile(r"context[ _-]?(?:length|window|size|limit)\D{0,24}(\d{3,8})", re.IGNORECASE),
    re.compile(r"> (\d{3,8}) maximum"),
    re.compile(r"tokens allowed\D{0,4}(\d{3,8})"),
)
"""How servers tell their context when a prompt is too long for it."""


def check(
    settings: ModelSettings,
    *,
    too_long: bool,
    remember: Callable[[frozenset[str]], None] = lambda left_out: None,
    net: Net | None = None,
) -> Checked:
    """Return what works and what to set. `too_long` also sends a prompt over the context, which some servers charge."""
    seconds = min(settings.timeout_s, CALL_S)
    settings = settings.model_copy(update={"timeout_s": seconds, "silence_s": seconds})
    test = _Test(settings, ServedModel(settings, net, remember), net)
    test.findings += test.play(too_long=too_long)
    return Checked(
        findings=tuple(test.findings), offered=test.offered, tokens=test.tokens, cost_usd=test.cost_usd
    )


@dataclass
class _Test:
    """One test as it goes."""

    settings: ModelSettings
    model: ServedModel
    net: Net | None
    findings: list[Finding] = field(default_factory=list)
    offered: tuple[Offered, ...] = ()
    tokens: int = 0
    cost_usd: float = 0.0

    def play(self, *, too_long: bool) -> Iterator[Finding]:
        """Yield the findings; a server that can't be reached, or refuses the key, is asked no more."""
        ways: list[Callable[[], Iterator[Finding]]] = [self._listed, self._structured, self._streamed]
        for way in [*ways, *([self._too_long] if too_long else [])]:
            for finding in way():
                yield finding
                if finding.tone == "bad" and way in ways[:2]:
                    return

    def _ask(
        self, request: ModelRequest, watch: Callable[[], None]
    ) -> ModelReplied | ContextOverflowed | Failed:
        def told(so_far: Callable[[], str]) -> bool:
            watch()
            return True

        answer = self.model.ask(request, told)
        if not isinstance(answer, ContextOverflowed):
            self.tokens += answer.usage.input_tokens + answer.usage.output_tokens
            self.cost_usd += answer.usage.cost_usd
        return answer

    # --- the list of models ---------------------------------------------------------------------------------------

    def _listed(self) -> Iterator[Finding]:
        named = self.settings.model_id
        try:
            self.offered = offered(self.settings, Deadline(self.settings.timeout_s), self.net)
        except NoList:
            unchosen = named == UNCHOSEN
            then = " Enter the model id, then test again." if unchosen else ""
            told = f"The server gives no list of its models.{then}"
            yield Finding(tone="bad" if unchosen else "warn", text=told)
            return
        except Refused as refused:
            yield Finding(tone="bad", text=f"The server refuses the key ({refused.told}). Enter a valid key.")
            return
        except OSError as fault:
            yield Finding(tone="bad", text=f"The server can't be reached. {fault} Check the address.")
            return
        number = _count(len(self.offered), "model")
        found = next((one for one in self.offered if one.model_id == named), None)
        if named == UNCHOSEN:
            yield Finding(tone="bad", text=f"The server has {number}. Choose one.")
        elif found is None:
            yield Finding(tone="warn", text=f"The server lists {number}, and “{named}” is none of them.")
        else:
            yield Finding(tone="good", text=f"The server is reached and has the model “{named}”.")
            yield from self._sized(found.context_tokens)

    def _sized(self, room: int) -> Iterator[Finding]:
        context = self.settings.context_tokens or 0
        if 0 < room < context:
            yield Finding(
                tone="warn",
                text=f"The model takes {room:,} tokens; the profile says {context:,}. Set Context tokens to {room}.",
            )

    # --- a structured reply ---------------------------------------------------------------------------------------

    def _structured(self) -> Iterator[Finding]:
        answer = self._ask(STRUCTURED, lambda: None)
        if not isinstance(answer, ModelReplied):
            yield _failed("The model can't be called.", answer)
            return
        refused = ", ".join(sorted(self.model.left_out))
        if refused:
            yield Finding(tone="warn", text=f"The server refuses {refused}. Calls are made without.")
        if answer.ended == "length":
            yield Finding(
                tone="warn",
                text="The structured reply was cut off at "
                f"{self.settings.max_output_tokens:,} tokens. Raise Max output tokens, or lower the reasoning effort.",
            )
            return
        found = read(heard(answer, prose=False), Probe, lambda probe: True)
        if isinstance(found, Unread):
            yield Finding(
                tone="warn", text=f"The structured reply can't be read. {found.why} {self._other_form()}"
            )
            return
        yield Finding(tone="good", text="A structured reply came as requested.")
        if answer.usage.estimated:
            yield Finding(
                tone="warn", text="The server does not count tokens: cost and limits are estimates."
            )

    def _other_form(self) -> str:
        following = FORMS.get(self.settings.output_mode, "")
        return f"Set Output mode to {following}." if following else "Check Guided, or choose a larger model."

    # --- a streamed reply -----------------------------------------------------------------------------------------

    def _streamed(self) -> Iterator[Finding]:
        began, moments = time.monotonic(), list[float]()
        answer = self._ask(STREAMED, lambda: moments.append(time.monotonic() - began))
        pieces = len(moments) - 1  # the last look is at the whole
        if not isinstance(answer, ModelReplied) and pieces > 2:
            yield Finding(tone="warn", text=f"Replies stream, but this one did not end. {answer.message}")
        elif not isinstance(answer, ModelReplied):
            yield _failed("A reply of text failed.", answer)
        elif pieces > 2:
            yield Finding(
                tone="good", text=f"Replies stream: {pieces} pieces, the first after {moments[0]:.1f} s."
            )
        else:
            yield Finding(
                tone="warn", text="Replies come whole, not in pieces; pages show them once complete."
            )

    # --- a prompt that is too long --------------------------------------------------------------------------------

    def _too_long(self) -> Iterator[Finding]:
        context = self.settings.context_tokens or 0
        if not context:
            return
        words = too_long_words(context)
        text = (WORDS * (words // 7 + 1))[: words * len(WORDS) // 7]
        about = "Reply with the word yes."
        request = STREAMED.model_copy(
            update={"messages": (Message(author="user", text=f"{text}\n{about}"),), "reply_tokens": 16}
        )
        answer = self._ask(request, lambda: None)
        match answer:
            case ContextOverflowed(message=message):
                yield from self._overflowed(message, context)
            case ModelReplied(usage=usage) if usage.estimated:
                yield _unknown(
                    "The server took a prompt over the context, and does not tell how much it read."
                )
            case ModelReplied(usage=usage) if usage.input_tokens < words * 0.95:
                room = usage.input_tokens
                yield Finding(
                    tone="bad",
                    text=f"The server cuts long prompts without a word: it read {room:,} tokens of about {words:,}. "
                    f"Set Context tokens to at most {room}, or give the server a larger context.",
                )
            case ModelReplied(usage=usage):
                yield Finding(
                    tone="good",
                    text=f"The server took {usage.input_tokens:,} tokens, more than the profile says. "
                    "You may raise Context tokens.",
                )
            case Failed(message=message):
                yield _unknown(f"A prompt over the context fails in words that are not understood: {message}")

    def _overflowed(self, message: str, context: int) -> Iterator[Finding]:
        rooms = (int(found[1]) for one in _ROOM if (found := one.search(message)))
        room = next(rooms, 0)
        if room < context and room:
            yield Finding(
                tone="warn",
                text=f"The server takes {room:,} tokens; the profile says {context:,}. Set Context tokens to {room}.",
            )
            return
        yield Finding(
            tone="good", text="A prompt over the context is refused as such: runs compact and go on."
        )


def _failed(what: str, answer: ContextOverflowed | Failed) -> Finding:
    return Finding(tone="bad", text=f"{what} {answer.message}")


def _unknown(why: str) -> Finding:
    return Finding(tone="warn", text=f"{why} Keep Context tokens well below the server's.")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
