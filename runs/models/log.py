"""The log: a step for each committed move, each ask with its answer, and the words of each step."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import CharField, F, Q, Value
from django.db.models.functions import Cast, Concat

from runs.engine.fact_kinds import fact_kinds, has_kind, name_of
from runs.models.run import Run


class FactKinds(models.TextField):
    """The column of the fact kinds: derived from `facts_json` whenever a step is saved."""

    def pre_save(self, model_instance: models.Model, add: bool) -> str:  # noqa: FBT001 (Django's signature)
        """Return the kinds of the step's facts."""
        found = fact_kinds(model_instance.facts_json)  # type: ignore[attr-defined]
        setattr(model_instance, self.attname, found)
        return found


def tells(*kinds: str) -> Q:
    """Return the condition that a step has a fact of one of these kinds."""
    found = Q()
    for kind in kinds:
        found |= Q(fact_kinds__contains=name_of(kind))
    return found


def tells_of(kind: str, **mark: Any) -> Q:
    """Return the condition that a step has a fact of this kind with this mark (`fact_kinds.MARKS`).

    The mark's value may be a column of the query around this one.
    """
    ((name, value),) = mark.items()
    if isinstance(value, F | Concat):
        before = name_of(kind, name, "")[:-1]
        return Q(fact_kinds__contains=Concat(Value(before), Cast(value, CharField()), Value(" ")))
    return Q(fact_kinds__contains=name_of(kind, name, value))


class Step(models.Model):
    """One committed move. Never changed, except `live`; `seq` counts from 1 without gaps."""

    class Kind(models.TextChoices):
        """The kind of a move, and its author."""

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

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps", db_index=False)
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=12, choices=Kind.choices)
    live = models.BooleanField(default=True)
    node = models.CharField(max_length=40)
    edge = models.CharField(max_length=40, null=True, blank=True)
    to = models.CharField(max_length=40, null=True, blank=True)
    facts_json = models.TextField(default="[]")
    fact_kinds = FactKinds(default="", editable=False)
    """The kinds of its facts, for queries (`runs.engine.fact_kinds`); derived, and not hashed."""
    state_json = models.TextField(null=True, blank=True)
    """The control state after the step; null if it equals the previous step's."""
    at = models.DateTimeField()
    """When the work on the move began."""
    ms = models.FloatField(default=0.0)
    seals = models.TextField(default="", blank=True, editable=False)
    """Digests of the rows beside it, covered by its hash (`runs.store.seals`)."""
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ("run", "seq")
        indexes = (models.Index(fields=("id",), condition=Q(kind="compaction"), name="step_compactions"),)
        constraints = (
            models.UniqueConstraint(fields=("run", "seq"), name="step_once"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="step_counts_from_1"),
        )

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq} {self.kind}"

    def has(self, *kinds: str) -> bool:
        """Return True if it has a fact of one of these kinds."""
        return has_kind(self.fact_kinds, kinds)


class Exchange(models.Model):
    """An effect with its answer: one for each ask."""

    class Status(models.TextChoices):
        """The state of an exchange."""

        ASKED = "asked"
        STARTED = "started"
        ANSWERED = "answered"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="exchanges", db_index=False)
    seq = models.PositiveIntegerField()
    """The asking step."""
    kind = models.CharField(max_length=12)
    """Kind of the effect."""
    name = models.CharField(max_length=100, blank=True, default="")
    """The role of a model call, the tool, the child, or the question's kind."""
    nth = models.PositiveIntegerField(default=0)
    """Number of this run's attempt at `name`, from 1; 0 if the answer came from the cache or a person."""
    attempt = models.PositiveSmallIntegerField(default=1)
    request_json = models.TextField()
    status = models.CharField(max_length=8, choices=Status.choices)
    answer_json = models.TextField(null=True, blank=True)
    key = models.CharField(max_length=64)
    """The idempotency key: the same for every attempt of every worker at this ask."""
    fingerprint = models.CharField(max_length=16, blank=True, default="")
    prompt_hash = models.CharField(max_length=64, blank=True, default="")
    prompt_chars = models.PositiveIntegerField(default=0)
    """Characters of the sent prompt; 0 if none was. With `input_tokens` it corrects the token estimate."""
    prompt_upto = models.PositiveIntegerField(default=0)
    """The newest step in the prompt; 0 if there was none."""
    remembered = models.BooleanField(default=False)
    """The reply has passed validation, and the cache may repeat it."""
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

    @property
    def took_ms(self) -> float | None:
        """Return the milliseconds from the ask to its answer; None if it has none. A clock may have jumped between
        them."""
        if self.answered_at is None:
            return None
        return max(0.0, (self.answered_at - self.started_at).total_seconds() * 1000)


class CompactionManager(models.Manager["Compaction"]):
    """The manager of compactions."""

    def get_queryset(self) -> models.QuerySet[Compaction]:
        """Return the steps of kind `compaction`."""
        return super().get_queryset().filter(kind=Step.Kind.COMPACTION)


class Compaction(Step):
    """A step that put a summary in place of older blocks; people's later changes to it are in later steps."""

    objects: ClassVar[models.Manager[Compaction]] = CompactionManager()

    class Meta:
        proxy = True
        ordering = ("-run", "-seq")


class Remembered(models.Model):
    """The text of a step's blocks, for full-text search; written when a search first needs it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="remembered")
    seq = models.PositiveIntegerField()
    text = models.TextField(blank=True, default="")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "seq"), name="remembered_once"),)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq}"


class SentSpans(models.Model):
    """How much of a run has been sent to OpenTelemetry."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="sent_spans")
    upto = models.PositiveIntegerField(default=0)
    """The newest step with a sent span."""
    head = models.PositiveIntegerField(default=0)
    """The run's head when its spans were last sent."""
    whole = models.BooleanField(default=False)
    """True once the run's own span is sent."""

    class Meta:
        indexes = (models.Index(fields=("run",), condition=Q(whole=False), name="spans_to_send"),)

    def __str__(self) -> str:
        return f"{self.run_id}: {self.upto}"
