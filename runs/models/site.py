"""Tables of the whole site: models, skills, rules, the kill switch, and the restore epoch."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from runs.engine.hosts import MOST_NAME, pattern_of

KEY_VARIABLE = re.compile(r"AGENTSITE_KEY_\w+", re.ASCII)
"""Environment variables that may hold a model's key; any other may hold a secret not meant for model servers."""


ADDRESSES = {
    "responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
    "mistral": "https://api.mistral.ai",
    "openrouter": "https://openrouter.ai/api/v1",
}
"""The addresses of the providers' own servers, by the kind of model."""


class ModelProfile(models.Model):
    """A model for runs: a scripted one, or one of a provider or of any OpenAI-compatible server."""

    class Kind(models.TextChoices):
        """The adapter of a model."""

        SCRIPT = "script", "Script (plays prepared replies)"
        OPENAI = "openai", "OpenAI-compatible server"
        RESPONSES = "responses", "OpenAI (Responses API)"
        ANTHROPIC = "anthropic", "Anthropic"
        GOOGLE = "google", "Google Gemini"
        MISTRAL = "mistral", "Mistral"
        OPENROUTER = "openrouter", "OpenRouter"

    class OutputMode(models.TextChoices):
        """The form of a requested reply schema."""

        NATIVE = "native", "JSON schema (response_format)"
        JSON_OBJECT = "json_object", "JSON object, schema in the prompt"
        PROMPTED = "prompted", "Schema in the prompt only"

    class Effort(models.TextChoices):
        """How much the model thinks before it replies."""

        NONE = "none", "None"
        LOW = "low", "Low"
        MEDIUM = "medium", "Medium"
        HIGH = "high", "High"

        __empty__ = "As the model does by itself"

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.OPENAI)
    enabled = models.BooleanField(default=True)
    base_url = models.URLField(blank=True, default="")
    model_id = models.CharField(max_length=200, blank=True, default="")
    sealed_key = models.TextField(blank=True, default="", editable=False)
    key_variable = models.CharField(
        max_length=80, blank=True, default="", help_text="Name of an environment variable that holds the key."
    )
    output_mode = models.CharField(max_length=12, choices=OutputMode.choices, default=OutputMode.NATIVE)
    input_price = models.FloatField(null=True, blank=True, help_text="USD per million input tokens.")
    output_price = models.FloatField(null=True, blank=True, help_text="USD per million output tokens.")
    cached_price = models.FloatField(
        null=True, blank=True, help_text="USD per million input tokens that the server had cached."
    )
    cache_write_price = models.FloatField(
        null=True, blank=True, help_text="USD per million input tokens that the server wrote to its cache."
    )
    reasoning_price = models.FloatField(
        null=True, blank=True, help_text="USD per million reasoning tokens. Leave empty for the output price."
    )
    context_tokens = models.PositiveIntegerField(default=32_000)
    max_output_tokens = models.PositiveIntegerField(default=2_000)
    timeout_s = models.FloatField(default=120.0, help_text="Seconds for one call in all.")
    patience_s = models.FloatField(
        default=600.0,
        validators=[MinValueValidator(0), MaxValueValidator(86_400)],
        help_text="Seconds that a call waits in all for a busy server, before a person is asked. 0: three attempts.",
    )
    fallback = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The model that takes over once the wait for a busy server is over. Leave empty to ask a person.",
    )
    most_calls = models.PositiveIntegerField(
        "most calls at once",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="By all workers together. Leave empty for no limit.",
    )
    most_requests = models.PositiveIntegerField(
        "most requests a minute",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="By all workers together. Leave empty for no limit.",
    )
    most_tokens = models.PositiveIntegerField(
        "most tokens a minute",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Of prompts and replies, by all workers together. Leave empty for no limit.",
    )
    seed = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Sent with each call, so that the server can give the same reply again. Leave empty for none.",
    )
    effort = models.CharField(
        "reasoning effort",
        max_length=6,
        choices=Effort.choices,
        blank=True,
        default="",
        help_text="Reasoning counts among the output tokens: leave room for it.",
    )
    guided = models.BooleanField(
        default=False,
        help_text="For weak models: narrow reply schemas, worked examples, tools in the order given.",
    )
    left_out = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="Options that this server refused and that are no longer sent. Clear the field to try them again.",
    )
    script_json = models.TextField(blank=True, default="", help_text="The script of a model of kind script.")

    class Meta:
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(condition=~Q(fallback=F("id")), name="model_not_its_own_fallback"),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a fallback that a run could not call, or one that leads back here."""
        if self.fallback is None:
            return
        if self.fallback.kind == self.Kind.SCRIPT or self.kind == self.Kind.SCRIPT:
            raise ValidationError({"fallback": "A script neither has a fallback nor is one."})
        chain = [self, self.fallback]
        while (following := chain[-1].fallback) is not None and chain[-1].pk != self.pk:
            chain.append(following)
            if chain.count(following) > 1:
                break
        if chain[-1] in chain[:-1]:
            names = " → ".join(profile.name for profile in chain)
            raise ValidationError({"fallback": f"The fallbacks form a circle: {names}."})

    variable_confirmed = False
    """True if a person confirms that the key in the same variable may go to a new address; not stored."""

    @property
    def address(self) -> str:
        """Return the server's address: as given, else the provider's own."""
        return self.base_url or ADDRESSES.get(self.kind, "")

    def save(self, *args: Any, **options: Any) -> None:
        """Save, without a key for another address."""
        forgotten = self._keys_of_another_address()
        for name in forgotten:
            setattr(self, name, "")
        if forgotten and options.get("update_fields") is not None:
            options["update_fields"] = {*options["update_fields"], *forgotten}
        super().save(*args, **options)

    def _keys_of_another_address(self) -> list[str]:
        stored = ModelProfile.objects.filter(pk=self.pk).first()
        if stored is None or same_server(stored.address, self.address):
            return []
        kept = ["sealed_key"] if self.variable_confirmed else ["sealed_key", "key_variable"]
        return [name for name in kept if getattr(self, name) == getattr(stored, name) != ""]


class ModelTurn(models.Model):
    """A call that counts against a limit of its model's profile: while in flight, and for a minute after its start."""

    profile = models.ForeignKey(ModelProfile, on_delete=models.CASCADE, related_name="turns", db_index=False)
    run = models.ForeignKey("Run", on_delete=models.CASCADE, related_name="+")
    epoch = models.PositiveIntegerField()
    """Of the call's worker: with its lease its place is free again."""
    tokens = models.PositiveBigIntegerField()
    """An estimate of the call's largest usage, until it ends; then its true usage."""
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = (models.Index(fields=("profile", "began_at"), name="model_turn_by_time"),)

    def __str__(self) -> str:
        return f"Run {self.run_id} at {self.profile_id}"


class ModelCheck(models.Model):
    """A test of a model's profile: requested by a person, made by a worker, and what came of it."""

    profile = models.OneToOneField(ModelProfile, on_delete=models.CASCADE, related_name="test")
    too_long = models.BooleanField(default=False)
    """True if a prompt over the context is sent, too."""
    wanted_at = models.DateTimeField(null=True, blank=True)
    """The time of the request; empty once a worker has begun."""
    since = models.DateTimeField(null=True, blank=True)
    """When a worker began; empty once it is done."""
    done_at = models.DateTimeField(null=True, blank=True)
    found_json = models.TextField(blank=True, default="")
    """The last result: a `Checked`; empty if the profile has changed since."""

    def __str__(self) -> str:
        return f"Test of {self.profile_id}"


def same_server(one: str, other: str) -> bool:
    """Return True if two addresses have the same scheme, host and port."""
    return _server(one) == _server(other)


def _server(url: str) -> tuple[str, ...]:
    try:
        parts = urlsplit(url.strip())
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # it is no address
        return (url,)
    return (parts.scheme, parts.hostname or "", str(port))


class Skill(models.Model):
    """A named text that a run may show its model for one turn."""

    name = models.SlugField(max_length=80, unique=True)
    text = models.TextField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class SiteRule(models.Model):
    """An interrupt rule for every run, checked before the run's own; the first match wins."""

    position = models.PositiveIntegerField(default=100)
    rule_json = models.TextField(help_text='As JSON, e.g. {"when": {"tool": "send_*"}, "do": "ask"}.')
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ("position", "id")

    def __str__(self) -> str:
        return self.rule_json


class SiteHost(models.Model):
    """A host that calls of every run may contact, whatever the run has read."""

    host = models.CharField(
        max_length=MOST_NAME, unique=True, help_text="Such as example.com, *.example.com or example.com:8443."
    )

    class Meta:
        ordering = ("host",)

    def __str__(self) -> str:
        return self.host

    def clean(self) -> None:
        """Keep the host in its one spelling."""
        try:
            self.host = pattern_of(self.host)
        except ValueError as fault:
            raise ValidationError({"host": f"{fault}."}) from None


class Halt(models.Model):
    """One use of the kill switch: while one is on, no run is claimed and no effect begins. All are kept."""

    on = models.BooleanField(default=False)
    by_name = models.CharField(max_length=150, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("ended_at",), name="halt_ended"),)
        constraints = (
            models.UniqueConstraint(fields=("on",), condition=Q(on=True), name="halt_one_at_a_time"),
            models.CheckConstraint(
                condition=Q(on=True, ended_at__isnull=True) | Q(on=False, ended_at__isnull=False),
                name="halt_is_on_until_it_ends",
            ),
        )
        permissions = (("halt_site", "Can stop everything on the site"),)

    def __str__(self) -> str:
        return f"Halt {self.pk} by {self.by_name}"


class RestoreEpoch(models.Model):
    """One row that tells the database from older copies of itself."""

    value = models.CharField(max_length=32)
    """Stored in a file beside the database too, and replaced every minute; on a database server it stays."""
    restored = models.CharField(max_length=32, blank=True, default="")
    """Replaced by each restore; earlier sign-in links become void."""

    def __str__(self) -> str:
        return self.value[:8]
