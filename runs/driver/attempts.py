"""Number a run's attempts at each role and tool, and reserve a model call's largest usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from runs.driver.holds import Leaving
from runs.driver.ports import Ports
from runs.engine.effects import ModelCall, Role
from runs.engine.settings import LimitName
from runs.models import Run
from runs.store import errors, leases, loading, log, shared_limits

TURN_S = 1.0
"""Seconds until a run checks again whether it may make a call of unknown cost."""


class Attempts:
    """The attempts of one run."""

    def __init__(self, run: Run, lease: leases.Lease, ports: Ports, *, may_share: bool) -> None:
        self._run = run
        self._lease = lease
        self._ports = ports
        self.may_share = may_share
        """True if other runs may use up its limits too: a fork may begin at any moment."""
        self._made = Counter(loading.attempts_of(run))

    def count(self, asked: log.Asked) -> None:
        """Number the attempt; a repeated one keeps its number."""
        if asked.nth == 0:
            self._made[f"{asked.kind} {asked.name}"] += 1
            asked.nth = self._made[f"{asked.kind} {asked.name}"]

    def next_use(self, role: Role, kind: str = "model_call", nth: int = 0) -> shared_limits.Worst | None:
        """Return the usage of the role's next call, if a limit may be shared and a script tells."""
        if self._ports.next_use is None or self._ports.price is not None or not self.may_share:
            return None
        return self._ports.next_use(role, nth or self._made[f"{kind} {role}"] + 1)

    def reserve(
        self, call: ModelCall, role: Role, asked: log.Asked, limits: Mapping[LimitName, float]
    ) -> bool:
        """Reserve the usage of `call`, or of the summary that makes room for it. Return whether the limits allow it.

        They do if none needs to know. Of a script's call, only a shared limit is held to the exact amount.
        """
        worst = self._worst(call)
        if call.at_limit != "pass" and (use := self.next_use(role, asked.kind, asked.nth)):
            worst, limits = use, {}
        try:
            return worst is None or shared_limits.reserve(self._run, self._lease.epoch, worst, limits)
        except errors.NotYet:
            leases.rest(self._lease, TURN_S)
            raise Leaving(self._run.pk) from None

    def _worst(self, call: ModelCall) -> shared_limits.Worst | None:
        """Return the call's largest usage; None if no limit needs to know."""
        price = self._ports.price
        if price is None or not call.input_tokens:
            return None
        cost = price.cost(call.input_tokens, call.reply_tokens)
        return shared_limits.Worst(cost or None, call.input_tokens + call.reply_tokens)
