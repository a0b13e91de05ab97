"""The model port over one server of any provider.

One call is one HTTP exchange with one deadline; retries are the engine's, on record. The exception is a server that
rejects an option by name: the call is sent again without it, and no later call has it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from runs.adapters.models.endings import ended_by, is_known
from runs.adapters.models.heard import Heard
from runs.adapters.models.settings import Kind, ModelSettings, missing_package
from runs.adapters.prices import Tariff
from runs.adapters.scrubbing import IN_PLACE, Scrubber
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied, Usage
from runs.engine.ports import ModelRequest, Watch
from runs.engine.values import MAX_TEXT, clean_text

if TYPE_CHECKING:  # the web server reads settings without the providers' libraries
    from runs.adapters.models.calling import Told
    from runs.adapters.models.counts import Used
    from runs.adapters.models.refusals import Refused
    from runs.adapters.wire import Net

log = logging.getLogger(__name__)


def load_library(kind: Kind) -> None:
    """Load the library for calls of models of the kind, before a run waits for it: it takes seconds."""
    if not missing_package(kind):
        import_module("runs.adapters.models.calling")
        import_module("runs.adapters.models.providers").load(kind)


class ServedModel:
    """The model of one profile. It passes the options refused by the server to `remember`."""

    def __init__(
        self,
        settings: ModelSettings,
        net: Net | None = None,
        remember: Callable[[frozenset[str]], None] = lambda left_out: None,
    ) -> None:
        self._settings = settings
        self._net = net
        self._remember = remember
        self._scrubber = Scrubber(settings.api_key.get_secret_value())
        self._left_out = set(settings.left_out)

    def ask(self, request: ModelRequest, watch: Watch) -> ModelReplied | ContextOverflowed | Failed:
        """Return one reply, streamed through `watch`, at the latest at the settings' deadline."""
        from runs.adapters.models import calling  # loads the libraries, before the call's time begins
        from runs.adapters.wire import Deadline

        deadline = Deadline(self._settings.timeout_s)
        left_out = set(self._left_out)
        while True:
            answer = self._attempt(calling.call, request, watch, deadline, left_out)
            if isinstance(answer, _LeaveOut):
                left_out.add(answer.option)
                continue
            if isinstance(answer, ModelReplied) and left_out > self._left_out:
                self._left_out = left_out
                self._remember(frozenset(left_out))
            return answer

    @property
    def left_out(self) -> frozenset[str]:
        """Return the options that the server is known to refuse."""
        return frozenset(self._left_out)

    def price(self, input_tokens: int) -> float:
        """Return the largest cost of a call with so many input tokens, in USD: with the longest reply."""
        return self._tariff.charge(input_tokens, self._settings.max_output_tokens)

    def _attempt(
        self, call: Any, request: ModelRequest, watch: Watch, deadline: Any, left_out: set[str]
    ) -> _Outcome:
        from runs.adapters.models.calling import Cut, Unread, Unsent
        from runs.adapters.models.refusals import Refused

        heard = Heard(self._scrubber, by_tool=self._settings.output_mode == "tool")
        read = _Cleaned(watch)
        try:
            told = call(self._settings, request, left_out, deadline, self._net, heard, read)
        except Cut:
            cut = Failed(blame="recoverable", message="The call was cut off: the run no longer needs it.")
            return self._paid(cut, heard)
        except Refused as refused:
            return self._paid(self._refused(refused), heard)
        except Unsent as fault:
            why = f"{self._name} was not asked. Check the model's profile. {fault}"
            return Failed(blame="fatal", message=self._scrubbed(why))
        except Unread as fault:
            log.warning("%s: %s", self._name, self._scrubbed(repr(fault.__cause__)))
            why = "Its reply is unreadable."
            return self._paid(Failed(blame="transient", message=f"{self._name} gave no reply. {why}"), heard)
        except (TimeoutError, ConnectionError) as fault:
            return self._paid(self._unreached(fault), heard)
        heard.end()
        watch(lambda: clean_text(heard.text))
        characters = sum(len(message.text) for message in request.messages)
        return self._replied(heard, told, characters)

    def _replied(self, heard: Heard, told: Told, characters: int) -> _Outcome:
        if told.reason is None:
            broke_off = f"{self._name} broke off in the middle of its reply."
            return self._paid(Failed(blame="transient", message=broke_off), heard)
        if not is_known(told.reason):
            log.warning(
                "%s ended a reply with the unknown reason %r", self._name, self._scrubbed(told.reason)
            )
        from runs.adapters.models.counts import cut_from

        text, ended = heard.text, ended_by(told.reason)
        cut = ended == "stop" and len(text) > MAX_TEXT
        return ModelReplied(
            text=clean_text(text),
            reasoning=clean_text(heard.reasoning),
            ended="length" if cut else ended,
            usage=self._usage(heard, told.used, told.sent),
            seed=self._settings.seed,
            sent_tokens=cut_from(characters, told.used.read),
        )

    @property
    def _name(self) -> str:
        return f"The model server of “{self._settings.name}”"

    # costs

    def _paid(self, outcome: _Outcome, heard: Heard) -> _Outcome:
        """Return the failure with its attempt's usage: the server's count, else an estimate from the received part."""
        came = heard.text or heard.reasoning
        if not isinstance(outcome, Failed) or not (came or heard.used.read or heard.used.wrote):
            return outcome
        return outcome.model_copy(update={"usage": self._usage(heard, heard.used, heard.sent)})

    def _usage(self, heard: Heard, used: Used, sent: int) -> Usage:
        """Return the server's own count and cost, or an estimate without them."""
        from runs.adapters.models.counts import estimated

        read = estimated(sent) if used.read is None else used.read
        wrote = estimated(len(heard.text) + len(heard.reasoning)) if used.wrote is None else used.wrote
        cost = used.cost
        if cost is None:
            cost = self._tariff.charge(read, wrote, used.cached, used.stored, used.thought)
        estimated_ = used.read is None or used.wrote is None
        return Usage(input_tokens=read, output_tokens=wrote, cost_usd=cost, estimated=estimated_)

    @property
    def _tariff(self) -> Tariff:
        settings = self._settings
        return Tariff(
            settings.model_id,
            settings.base_url,
            settings.input_price,
            settings.output_price,
            settings.cached_price,
            settings.cache_write_price,
            settings.reasoning_price,
        )

    # errors

    def _unreached(self, error: OSError) -> Failed:
        """Return the failure of a connection: a server that refused it is away and charges nothing; others get the
        usual retries."""
        from runs.adapters.wire import CertificateRefused, NameUnknown, Unreachable

        fatal = isinstance(error, CertificateRefused)
        blame: Literal["fatal", "transient"] = "fatal" if fatal else "transient"
        away = isinstance(error, Unreachable | NameUnknown)
        why = self._scrubbed(f"{self._name} gave no reply. {error}")
        return (
            Failed(blame=blame, message=why, **self._when_away())
            if away
            else Failed(blame=blame, message=why)
        )

    def _when_away(self) -> dict[str, Any]:
        """Return the fields of a failure if the server is busy or away."""
        settings = self._settings
        return {"patience_s": settings.patience_s, "model": settings.name, "fallback": settings.fallback}

    def _refused(self, refused: Refused) -> _Outcome:
        """Return the meaning of an error: by its code and words first, since servers differ in their statuses."""
        status, told, said = refused.status, refused.told, refused.said
        if refused.overflowed:
            message = f"{self._name} refuses a request of this size." if status == 413 and not said else said
            return ContextOverflowed(message=self._scrubbed(message))
        if refused.lacks_credit:
            why = f"{self._name} reports no credit left ({told}). Check the key's account. It says: {said}"
            return Failed(blame="fatal", message=self._scrubbed(why), asks=True, model=self._settings.name)
        option = refused.option
        if option == "seed":
            why = f"{self._name} does not take a seed ({told}). Clear the seed in this model's profile. It says: {said}"
            return Failed(blame="fatal", message=self._scrubbed(why))
        if option:
            return _LeaveOut(option)
        if refused.refuses_key:
            why = f"{self._name} refuses the key ({told}). Check this model's API key. It says: {said}"
            return Failed(blame="fatal", message=self._scrubbed(why), asks=True, model=self._settings.name)
        if status in (408, 409, 425, 429) or status >= 500:
            wait = refused.wait_s
            asks = f", and asks to wait {wait:g} seconds" if wait else ""
            why = self._scrubbed(f"{self._name} is busy or failing ({told}{asks}): {said}")
            return Failed(blame="transient", message=why, wait_s=wait, **self._when_away())
        return Failed(blame="fatal", message=self._scrubbed(self._advice(status, told, said)))

    def _advice(self, status: int, told: str, said: str) -> str:
        settings = self._settings
        match status:
            case 404 | 405:
                return (
                    f"{self._name} knows no model “{settings.model_id}”, or no chat completions under "
                    f"{settings.base_url} ({told}). Check the model id and the base URL, which usually "
                    f"ends in /v1. It says: {said}"
                )
            case _ if 300 <= status < 400:
                return f"{self._name} redirects ({told}). Set the base URL to its new address."
        return (
            f"{self._name} does not take the request ({told}). If it is about the reply's format, "
            f"choose another output mode than {settings.output_mode}. It says: {said}"
        )

    def _scrubbed(self, text: str) -> str:
        """Return `text`, short, and without the key or its remains, if the server echoed it."""
        key = self._settings.api_key.get_secret_value()
        text = self._scrubber.scrub(text)
        if key:  # even a short one: nothing is decided by these words
            text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", IN_PLACE, text)
        return clean_text(_LIKE_A_KEY.sub(IN_PLACE, text)[:600])


_LIKE_A_KEY = re.compile(r"\b(sk|pk|key|gsk|xai)[-_][A-Za-z0-9*_-]{6,}|Bearer\s+\S+")


class _Cleaned:
    """A watch that reads clean text."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, so_far: Callable[[], str]) -> bool:
        return self._watch(lambda: clean_text(so_far()))


@dataclass(frozen=True)
class _LeaveOut:
    """The server rejects an option."""

    option: str


_Outcome = ModelReplied | ContextOverflowed | Failed | _LeaveOut
