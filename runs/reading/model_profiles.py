"""Profiles of models as administrators see them: the state of each, its prices, and what its last test found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from runs.adapters.models.findings import Checked, Finding, Offered, too_long_words
from runs.adapters.prices import listed_models
from runs.driver.ports import has_price, tariff_of
from runs.models import ModelCheck, ModelProfile
from runs.reading.words import Word, money

LOST_S = 420
"""Seconds after which a test counts as lost with its worker; longer than any test."""

STATES = {
    "off": Word("off", "stop", "quiet"),
    "script": Word("script", "list", "quiet"),
    "asked": Word("waiting for a worker", "clock", "busy"),
    "testing": Word("testing", "clock", "busy"),
    "lost": Word("worker lost, test again", "alert", "ask"),
    "new": Word("not tested", "dot", "quiet"),
    "good": Word("works", "check", "good"),
    "warn": Word("works, see notes", "alert", "ask"),
    "bad": Word("does not work", "alert", "bad"),
}

SIGNS = {
    "good": Word("Good", "check", "good"),
    "warn": Word("Note", "alert", "ask"),
    "bad": Word("Fault", "cross", "bad"),
}


@dataclass(frozen=True)
class FindingView:
    """One sentence of a test, with its sign."""

    sign: Word
    text: str


@dataclass(frozen=True)
class ProfileView:
    """One profile with the result of its last test."""

    profile: ModelProfile
    state: str
    findings: tuple[FindingView, ...]
    offered: tuple[Offered, ...]
    used: str
    """Tokens and cost of the test; empty before one."""
    tested_at: datetime | None

    @property
    def word(self) -> Word:
        """Return its state as a word."""
        return STATES[self.state]

    @property
    def is_under_way(self) -> bool:
        """Return True while a test waits for a worker or is made."""
        return self.state in ("asked", "testing")

    @property
    def is_testable(self) -> bool:
        """Return True for a profile with a server."""
        return self.profile.kind != ModelProfile.Kind.SCRIPT

    @property
    def prices(self) -> str:
        """Return the prices in force."""
        return prices_in_force(self.profile)

    @property
    def too_long(self) -> str:
        """Return the size and the cost of a test's prompt over the context."""
        words = too_long_words(self.profile.context_tokens)
        tariff = tariff_of(self.profile)
        cost = f", up to {money(tariff.charge(words, 16))}" if tariff.is_known else ""
        return f"about {words:,} tokens{cost if tariff.charge(words, 16) else ''}"

    @property
    def model_ids(self) -> Sequence[str]:
        """Return the names to choose from: of the server's list, else of the public list."""
        return [one.model_id for one in self.offered] or listed_models(self.profile.address)


def profile_views() -> list[ProfileView]:
    """Return all profiles."""
    return [profile_view(one) for one in ModelProfile.objects.select_related("test")]


def first_choice() -> str:
    """Return the first model whose last test did not fail; else the first; empty without one."""
    usable = [view for view in profile_views() if view.profile.enabled]
    working = [view for view in usable if view.state != "bad"]
    return next((view.profile.name for view in working or usable), "")


def profile_view(profile: ModelProfile) -> ProfileView:
    """Return one profile."""
    check: ModelCheck | None = getattr(profile, "test", None) if profile.pk else None
    result = Checked.model_validate_json(check.found_json) if check and check.found_json else None
    findings = result.findings if result else ()
    return ProfileView(
        profile=profile,
        state=_state(profile, check, findings),
        findings=tuple(FindingView(SIGNS[one.tone], one.text) for one in findings),
        offered=result.offered if result else (),
        used=f"{result.tokens:,} tokens, {money(result.cost_usd)}" if result and result.tokens else "",
        tested_at=check.done_at if check and result else None,
    )


def _state(profile: ModelProfile, check: ModelCheck | None, findings: Sequence[Finding]) -> str:
    if profile.kind == ModelProfile.Kind.SCRIPT:
        return "script" if profile.enabled else "off"
    if check and check.wanted_at:
        return "asked"
    if check and check.since:
        return "lost" if timezone.now() - check.since > timedelta(seconds=LOST_S) else "testing"
    if not profile.enabled:
        return "off"
    tones = {one.tone for one in findings}
    return next((tone for tone in ("bad", "warn", "good") if tone in tones), "new")


def prices_in_force(profile: ModelProfile) -> str:
    """Return the price of each kind of token, by the profile's fields or by the public list."""
    if profile.pk is None or profile.kind == ModelProfile.Kind.SCRIPT:
        return "—"
    tariff = tariff_of(profile)
    if not tariff.is_known:
        told = "The provider tells the cost of each call." if has_price(profile) else ""
        return told or "None. Runs with a limit on cost are refused."
    prices = ", ".join(f"{name} ${price:,.2f}" for name, price in tariff.per_million().items())
    return f"USD per million tokens: {prices}."
