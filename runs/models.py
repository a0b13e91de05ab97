"""What is kept of a run. The database enforces what must never happen; only `store` writes steps and exchanges.

JSON is kept as canonical text: hashes are taken of the text that is stored (reliability.md, D17).
"""

from __future__ import annotations

import json
import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

UNFINISHED = ("queued", "running", "waiting", "paused")
FINISHED = ("succeeded", "stopped", "failed", "cancelled")


class RunStatus(models.TextChoices):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ScriptText(models.Model):
    """A script, kept once for all runs that play it: a run's row is written at every move, and must stay small."""

    digest = models.CharField(max_length=64, primary_key=True)
    """SHA-256 of the text."""
    text = models.TextField()

    def __str__(self) -> str:
        return self.digest[:12]


class RunQuerySet(models.QuerySet["Run"]):
    """Runs, as they are asked for."""

    def for_user(self, user: AbstractBaseUser | AnonymousUser) -> RunQuerySet:
        """Those that `user` may see: their own, and all for who may view runs."""
        if not user.is_authenticated or not isinstance(user, PermissionsMixin):
            return self.none()
        if user.has_perm("runs.view_run"):
            return self
        return self.filter(owner_id=user.pk)

    def due(self) -> RunQuerySet:
        """Those that want a worker now: queued and due, or held by a worker whose lease ran out."""
        free = Q(status=RunStatus.QUEUED, due_at__lte=Now())
        lost = Q(status=RunStatus.RUNNING, lease_until__lt=Now())
        return self.filter(free | lost)


class Run(models.Model):
    """One run of a machine: its terms, its head, its totals, and who works on it."""

    id: int
    machine = models.CharField(max_length=40)
    goal = models.TextField()
    settings_json = models.TextField(default="{}")
    """The launch settings, checked, as canonical JSON."""
    site_rules_json = models.TextField(default="[]")
    """The site's interrupt rules as they stood at launch; looked at before the run's own."""
    script = models.ForeignKey(
        "ScriptText", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """What a scripted model and its tools play; none for a real model."""
    model = models.CharField(max_length=80, blank=True, default="")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="children"
    )
    parent_seq = models.PositiveIntegerField(null=True, blank=True)
    """The parent's ask that waits for this run."""
    child_name = models.CharField(max_length=40, blank=True, default="")
    origin = models.CharField(max_length=8, blank=True, default="")
    """How it came from `copied_from`: fork, replay or rerun; empty where it was launched."""
    copied_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="copies"
    )
    copied_upto = models.PositiveIntegerField(null=True, blank=True)
    """The row of `copied_from` up to which its live rows are this run's beginning."""
    root = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="family")
    """The run that this one was started or forked from in the end: its limits on cost and tokens hold for all."""
    copied_usd = models.FloatField(default=0.0)
    copied_tokens = models.PositiveBigIntegerField(default=0)
    """What the copied rows had used: it counts for the run that they were copied from."""
    reserved_usd = models.FloatField(default=0.0)
    reserved_tokens = models.PositiveBigIntegerField(default=0)
    """What the model call that is under way may use at most; settled by the row that concludes it."""

    status = models.CharField(max_length=10, choices=RunStatus.choices, default=RunStatus.QUEUED)
    exit_reason = models.CharField(max_length=40, null=True, blank=True)
    ok = models.BooleanField(null=True, blank=True)
    answer = models.TextField(null=True, blank=True)
    answer_source = models.CharField(max_length=20, null=True, blank=True)
    node = models.CharField(max_length=40)
    head = models.PositiveIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default="", blank=True)
    prompt_hash = models.CharField(max_length=64, default="", blank=True)
    """Hash chain over the blocks that the model has been shown, so that a worker need not read them again."""

    model_calls = models.PositiveIntegerField(default=0)
    cached_model_calls = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    active_seconds = models.FloatField(default=0.0)

    epoch = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=40, blank=True, default="")
    """Token of the worker that holds the run; empty where none does."""
    lease_until = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(default=timezone.now)
    hinted_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[models.Manager[Run]] = RunQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("owner", "-id"), name="run_of_owner"),
            models.Index(fields=("status", "-id"), name="run_by_status"),
            models.Index(fields=("due_at",), condition=Q(status__in=("queued", "running")), name="run_due"),
        )
        constraints = (
            models.CheckConstraint(condition=Q(status__in=UNFINISHED + FINISHED), name="run_status_known"),
            models.CheckConstraint(
                condition=Q(status__in=FINISHED, exit_reason__isnull=False)
                | Q(status__in=UNFINISHED, exit_reason__isnull=True),
                name="run_reason_when_finished",
            ),
            models.UniqueConstraint(fields=("parent", "parent_seq"), name="run_one_child_per_ask"),
        )
        permissions = (("decide_interrupt", "Can decide interrupts"),)

    def __str__(self) -> str:
        return f"Run {self.pk}"

    @property
    def finished(self) -> bool:
        """Whether it has ended for good."""
        return self.status in FINISHED

    @property
    def stopping(self) -> bool:
        """Whether a worker has yet to notice that the run was stopped or paused."""
        held = bool(self.worker) and self.lease_until > timezone.now()
        return held and (self.finished or self.status == RunStatus.PAUSED)

    @property
    def origin_words(self) -> str:
        """How it came from another run, in words; empty where it was launched."""
        return {"fork": "fork of", "replay": "replay of", "rerun": "run again from"}.get(self.origin, "")

    @property
    def script_json(self) -> str:
        """The script, or empty."""
        return self.script.text if self.script is not None else ""

    @property
    def settings(self) -> dict[str, Any]:
        """The launch settings."""
        found: dict[str, Any] = json.loads(self.settings_json)
        return found


class Step(models.Model):
    """One committed move. Never changed, `live` aside; `seq` counts from 1 without gaps."""

    class Kind(models.TextChoices):
        """Who made the move, and what it is."""

        TRANSITION = "transition"
        ASK = "ask"
        STOP = "stop"
        REWIND = "rewind"
        DECISION = "decision"
        LIMIT = "limit"
        PAUSE = "pause"
        RECOVERED = "recovered"
        NOTE = "note"
        COMPACTION = "compaction"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    live = models.BooleanField(default=True)
    node = models.CharField(max_length=40)
    edge = models.CharField(max_length=40, null=True, blank=True)
    to = models.CharField(max_length=40, null=True, blank=True)
    facts_json = models.TextField(default="[]")
    state_json = models.TextField(null=True, blank=True)
    """The control state after the step; null where it is that of the row before."""
    at = models.DateTimeField()
    """When the work on the move began."""
    ms = models.FloatField(default=0.0)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ("run", "seq")
        constraints = (
            models.UniqueConstraint(fields=("run", "seq"), name="step_once"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="step_counts_from_1"),
        )

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq} {self.kind}"


class Exchange(models.Model):
    """An effect with its answer: one for each ask."""

    class Status(models.TextChoices):
        """How far it is."""

        ASKED = "asked"
        STARTED = "started"
        ANSWERED = "answered"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="exchanges")
    seq = models.PositiveIntegerField()
    """The row that asked."""
    kind = models.CharField(max_length=12)
    """Kind of the effect."""
    name = models.CharField(max_length=100, blank=True, default="")
    """The role of a model call, the tool, the child, or what a person is asked about."""
    nth = models.PositiveIntegerField(default=0)
    """Which of this run's attempts at `name` it is, from 1; 0 where the answer came from the cache or a person."""
    attempt = models.PositiveSmallIntegerField(default=1)
    request_json = models.TextField()
    status = models.CharField(max_length=8, choices=Status.choices)
    answer_json = models.TextField(null=True, blank=True)
    key = models.CharField(max_length=64)
    """The idempotency key: the same for every attempt of one worker after another at this ask."""
    fingerprint = models.CharField(max_length=16, blank=True, default="")
    prompt_hash = models.CharField(max_length=64, blank=True, default="")
    prompt_chars = models.PositiveIntegerField(default=0)
    """Characters of the prompt that was sent; 0 where none was. With `input_tokens` it corrects the token estimate."""
    prompt_upto = models.PositiveIntegerField(default=0)
    """The newest row that the prompt was rendered from; 0 where none was."""
    remembered = models.BooleanField(default=False)
    """The reply has passed validation and may be given again from the cache."""
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    started_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("run", "seq")
        constraints = (
            models.UniqueConstraint(fields=("run", "seq"), name="exchange_once"),
            models.CheckConstraint(
                condition=Q(status="answered", answer_json__isnull=False)
                | (~Q(status="answered") & Q(answer_json__isnull=True)),
                name="exchange_answer_when_answered",
            ),
        )

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq} {self.name}"


class CompactionManager(models.Manager["Compaction"]):
    """The rows that are compactions."""

    def get_queryset(self) -> models.QuerySet[Compaction]:
        """Those of kind `compaction`."""
        return super().get_queryset().filter(kind=Step.Kind.COMPACTION)


class Compaction(Step):
    """A row that put a summary in place of older blocks; what people did to it since is in later rows."""

    objects: ClassVar[models.Manager[Compaction]] = CompactionManager()

    class Meta:
        proxy = True
        ordering = ("-run", "-seq")


class Artifact(models.Model):
    """One version of something that a run made: the same name again is the next version."""

    class Kind(models.TextChoices):
        """What it is made for."""

        INLINE = "inline"
        FILE = "file"
        DISPLAY = "display"
        SEARCH = "search"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=200)
    version = models.PositiveIntegerField()
    """From 1, by name."""
    kind = models.CharField(max_length=8, choices=Kind.choices)
    media_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    """Bytes."""
    sha256 = models.CharField(max_length=64)
    """Of the bytes, in hex; they are kept under this name in the run's own directory."""
    seq = models.PositiveIntegerField()
    """The row that made it known."""
    call_seq = models.PositiveIntegerField(null=True, blank=True)
    """The ask of the tool call that made it."""
    tool = models.CharField(max_length=100, blank=True, default="")
    error = models.TextField(null=True, blank=True)
    """Why it failed; None where it did not."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("run", "name", "version")
        constraints = (
            models.UniqueConstraint(fields=("run", "name", "version"), name="artifact_version_once"),
        )

    def __str__(self) -> str:
        return f"{self.name} (version {self.version})"


class Remembered(models.Model):
    """The text of a row's blocks, for full-text search; written when a search first needs it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="remembered")
    seq = models.PositiveIntegerField()
    text = models.TextField(blank=True, default="")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "seq"), name="remembered_once"),)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq}"


class Budget(models.Model):
    """One line of a run's budget: the machine's own, and the run's limits (scope `limits`)."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="budgets")
    scope = models.CharField(max_length=80)
    name = models.CharField(max_length=40)
    used = models.FloatField(default=0)
    limit = models.FloatField()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("run", "scope", "name"), name="budget_once"),
            models.CheckConstraint(condition=Q(used__gte=0), name="budget_used_not_negative"),
        )

    def __str__(self) -> str:
        return f"{self.scope} {self.name} {self.used:g}/{self.limit:g}"


class Interrupt(models.Model):
    """A question to a person, bound to the exact call that it holds back."""

    class Status(models.TextChoices):
        """Whether it can still be decided."""

        PENDING = "pending"
        DECIDED = "decided"
        EXPIRED = "expired"
        SUPERSEDED = "superseded"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="interrupts")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=20)
    title = models.TextField()
    why = models.TextField(blank=True, default="")
    tool = models.CharField(max_length=100, blank=True, default="")
    args_json = models.TextField(default="{}")
    schema_json = models.TextField(default="{}")
    effects = models.CharField(max_length=8, blank=True, default="")
    risk = models.CharField(max_length=8, default="unknown")
    fingerprint = models.CharField(max_length=16, blank=True, default="")
    limit = models.CharField(max_length=20, blank=True, default="")
    """Of kind `limit`: which one."""
    verdicts_json = models.TextField(default="[]")
    revision = models.PositiveIntegerField(default=1)
    deadline = models.DateTimeField(null=True, blank=True)
    on_timeout = models.CharField(max_length=8, default="deny")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = (F("deadline").asc(nulls_last=True), "created_at")
        indexes = (models.Index(fields=("status", "deadline"), name="interrupt_pending"),)
        constraints = (models.UniqueConstraint(fields=("run", "seq"), name="interrupt_once"),)

    def __str__(self) -> str:
        return self.title

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the call that is held, typed as the tool's schema has them."""
        found: dict[str, Any] = json.loads(self.args_json)
        return found

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of those arguments."""
        found: dict[str, Any] = json.loads(self.schema_json)
        return found

    @property
    def verdicts(self) -> list[str]:
        """What may be answered."""
        found: list[str] = json.loads(self.verdicts_json)
        return found


class Decision(models.Model):
    """What somebody decided, when, from where, and what they had seen. Append-only."""

    interrupt = models.OneToOneField(Interrupt, on_delete=models.CASCADE, related_name="decision")
    """One decision decides; the unique key settles a race."""
    verdict = models.CharField(max_length=10)
    args_json = models.TextField(null=True, blank=True)
    message = models.TextField(blank=True, default="")
    to_step = models.PositiveIntegerField(null=True, blank=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions"
    )
    by_name = models.CharField(max_length=150)
    channel = models.CharField(max_length=10)
    """web, admin, api, command, deadline or settings."""
    revision_seen = models.PositiveIntegerField(null=True, blank=True)
    """None where whoever decided did not say what they had seen (a command, the deadline)."""
    fingerprint_seen = models.CharField(max_length=16, blank=True, default="")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("at",)

    def __str__(self) -> str:
        return f"{self.by_name}: {self.verdict}"


class ModelProfile(models.Model):
    """A model that runs may use: a scripted one, or any OpenAI-compatible server."""

    class Kind(models.TextChoices):
        """Which adapter speaks to it."""

        SCRIPT = "script", "Script (plays prepared replies)"
        OPENAI = "openai", "OpenAI-compatible server"

    class OutputMode(models.TextChoices):
        """How a reply schema is asked for."""

        NATIVE = "native", "JSON schema (response_format)"
        JSON_OBJECT = "json_object", "JSON object, schema in the prompt"
        PROMPTED = "prompted", "Schema in the prompt only"

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
    context_tokens = models.PositiveIntegerField(default=32_000)
    max_output_tokens = models.PositiveIntegerField(default=2_000)
    timeout_s = models.FloatField(default=120.0, help_text="Seconds for one call in all.")
    guided = models.BooleanField(
        default=False,
        help_text="For weak models: narrow reply schemas, worked examples, tools in the order given.",
    )
    script_json = models.TextField(blank=True, default="", help_text="The script of a model of kind script.")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Halt(models.Model):
    """The kill switch of the site, one row: while it is on, no run is claimed and no effect begins."""

    on = models.BooleanField(default=False)
    by_name = models.CharField(max_length=150, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        permissions = (("halt_site", "Can stop everything on the site"),)

    def __str__(self) -> str:
        return "halted" if self.on else "running"


class RestoreEpoch(models.Model):
    """One row: by which of its lives the database is told from an older copy of itself."""

    value = models.CharField(max_length=32)
    """Stands in a file beside the database too, and is another one after each start."""
    restored = models.CharField(max_length=32, blank=True, default="")
    """Another one after each restore; sign-in links of before are void by it."""

    def __str__(self) -> str:
        return self.value[:8]


class Skill(models.Model):
    """A named text that a run of `contract` may show its model for one round."""

    name = models.SlugField(max_length=80, unique=True)
    text = models.TextField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class SiteRule(models.Model):
    """An interrupt rule for every run, looked at before the run's own; the first match wins."""

    position = models.PositiveIntegerField(default=100)
    rule_json = models.TextField(help_text='As JSON, e.g. {"when": {"tool": "send_*"}, "do": "ask"}.')
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ("position", "id")

    def __str__(self) -> str:
        return self.rule_json
