"""A run: its terms, its head, its totals, who works on it, and the lines of its budget."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from runs.machines import CATALOGUE

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
    """A script or the site's skills, once for all runs that have it: a run's row is written at every move."""

    digest = models.CharField(max_length=64, primary_key=True)
    """SHA-256 of the text."""
    text = models.TextField()

    def __str__(self) -> str:
        return self.digest[:12]


LOOKS = 3
"""Looks of the sweep, a second apart, in which the worker of a lease that has run out gives no sign."""

LOST = Q(status=RunStatus.RUNNING) & (Q(worker="") | Q(lease_until__lt=Now(), silent_looks__gte=LOOKS))
"""Runs whose worker is lost."""


def _seen_by(user: AbstractBaseUser | AnonymousUser) -> Literal["all", "own", "none"]:
    """Return which runs the person may see: their own, and all with the permission to view runs."""
    if not user.is_authenticated or not isinstance(user, PermissionsMixin):
        return "none"
    return "all" if user.has_perm("runs.view_run") else "own"


class RunQuerySet(models.QuerySet["Run"]):
    """Runs, as they are asked for."""

    def for_user(self, user: AbstractBaseUser | AnonymousUser) -> RunQuerySet:
        """Those that `user` may see: their own, and all for who may view runs."""
        match _seen_by(user):
            case "all":
                return self
            case "own":
                return self.filter(owner_id=user.pk)
        return self.none()

    def due(self) -> RunQuerySet:
        """Those that want a worker now: queued and due, or held by a worker whose lease ran out.

        A run whose machine this version has not wants none: it waits for a version that has it.
        """
        return self.filter(Q(status=RunStatus.QUEUED, due_at__lte=Now()) | LOST, machine__in=CATALOGUE)


class Run(models.Model):
    """One run of a machine: its terms, its head, its totals, and who works on it."""

    id: int
    machine = models.CharField(max_length=40)
    goal = models.TextField()
    settings_json = models.TextField(default="{}")
    """The launch settings, checked, as canonical JSON."""
    site_rules_json = models.TextField(default="[]")
    """The site's interrupt rules as they stood at launch; where they change, the log says so."""
    site_hosts_json = models.TextField(default="[]")
    """The hosts that the site named at launch."""
    script = models.ForeignKey(
        "ScriptText", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """What a scripted model and its tools play; none for a real model."""
    site_skills = models.ForeignKey(
        "ScriptText", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """The site's skills as they stood at launch; none where the machine shows none, or the run is older than this."""
    model = models.CharField(max_length=80, blank=True, default="")
    """The model that it was launched with; empty for a script of its own."""
    switched_to = models.CharField(max_length=80, blank=True, default="", db_default="")
    """The model that has taken its place since, by a person or as its fallback; the log says so. Empty: none has."""
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    by_operator = models.BooleanField(default=False)
    """Launched by the installation's operator, and by no person: an owner who is deleted leaves none behind either."""
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
    continues = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="continued_by"
    )
    """The run before it in a conversation of runs; what it knows of that stands in its own first row."""
    restored_at = models.DateTimeField(null=True, blank=True)
    """When a restore paused it, or the run that it comes from: it asks before each call that changes something."""
    root = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="family")
    """The run that this one was started or forked from in the end: its limits on cost and tokens hold for all."""
    copied_usd = models.FloatField(default=0.0)
    copied_tokens = models.PositiveBigIntegerField(default=0)
    """What the copied rows had used: it counts for the run that they were copied from."""
    reserved_usd = models.FloatField(default=0.0)
    reserved_tokens = models.PositiveBigIntegerField(default=0)
    """What the model call that is under way may use at most; settled by the row that concludes it."""
    reserved_epoch = models.PositiveIntegerField(default=0)
    """The epoch of the worker whose call that is: rows that others write meanwhile settle nothing."""

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
    silent_looks = models.PositiveSmallIntegerField(default=0)
    """Looks of the sweep since the lease ran out. A clock that jumps, or a machine that wakes up, ends a lease early;
    its worker renews it before the sweep has looked often enough."""
    doing_json = models.TextField(default="", blank=True)
    """The call that takes its worker longer than a moment: seq, epoch, kind, name, attempt, and since when. It is under
    way while the epoch is the run's and no row after it is written."""
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
            models.Index(fields=("created_at",), name="run_by_date"),
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
    def model_name(self) -> str:
        """The model that it calls now."""
        return self.switched_to or self.model

    @property
    def finished(self) -> bool:
        """Whether it has ended for good."""
        return self.status in FINISHED

    def seen_by(self, user: AbstractBaseUser | AnonymousUser) -> bool:
        """Return whether `user` may see it: what `for_user` asks the database, of a run that is read already."""
        seen = _seen_by(user)
        return seen == "all" or (seen == "own" and self.owner_id == user.pk)

    @property
    def stopping(self) -> bool:
        """Whether a worker has yet to notice that the run was stopped or paused."""
        return self.is_held and (self.finished or self.status == RunStatus.PAUSED)

    @property
    def is_held(self) -> bool:
        """Whether a worker has it, and may be busy with a call."""
        return bool(self.worker) and self.lease_until > timezone.now()

    @property
    def origin_words(self) -> str:
        """How it came from another run, in words; empty where it was launched."""
        return {"fork": "fork of", "replay": "replay of", "rerun": "run again from"}.get(self.origin, "")

    @property
    def replayed_only(self) -> bool:
        """Whether it ended because the rows that it made again did: a row of its own says so, and nobody stopped it."""
        own_end = self.origin == "replay" and self.head > (self.copied_upto or 0)
        return own_end and self.status == RunStatus.CANCELLED

    def ends_replay(self, seq: int) -> bool:
        """Return whether row `seq` is the one that a replay ends with because its record goes no further."""
        return self.replayed_only and seq == (self.copied_upto or 0) + 1

    @property
    def script_json(self) -> str:
        """The script, or empty."""
        return self.script.text if self.script is not None else ""

    @property
    def settings(self) -> dict[str, Any]:
        """The launch settings."""
        found: dict[str, Any] = json.loads(self.settings_json)
        return found


class Budget(models.Model):
    """One line of a run's budget: the machine's own, and the run's limits (scope `limits`)."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="budgets", db_index=False)
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
