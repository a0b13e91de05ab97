"""A run: its terms, its head, its totals, its worker, and the lines of its budget."""

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
    """The status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ScriptText(models.Model):
    """A script or the site's skills, stored once for all its runs: a run's row is written at every move."""

    digest = models.CharField(max_length=64, primary_key=True)
    """SHA-256 of the text."""
    text = models.TextField()

    def __str__(self) -> str:
        return self.digest[:12]


LOOKS = 3
"""Looks of the sweep, a second apart, without a sign from the worker of an expired lease."""

LOST = Q(status=RunStatus.RUNNING) & (Q(worker="") | Q(lease_until__lt=Now(), silent_looks__gte=LOOKS))
"""Runs with a lost worker."""


def _seen_by(user: AbstractBaseUser | AnonymousUser) -> Literal["all", "own", "none"]:
    """Return which runs the person may see: their own, and all with the permission to view runs."""
    if not user.is_authenticated or not isinstance(user, PermissionsMixin):
        return "none"
    return "all" if user.has_perm("runs.view_run") else "own"


class RunQuerySet(models.QuerySet["Run"]):
    """Queries for runs."""

    def for_user(self, user: AbstractBaseUser | AnonymousUser) -> RunQuerySet:
        """Return the runs that `user` may see: their own, and all with the permission to view runs."""
        match _seen_by(user):
            case "all":
                return self
            case "own":
                return self.filter(owner_id=user.pk)
        return self.none()

    def due(self) -> RunQuerySet:
        """Return those that want a worker now: queued and due, or held by a lost worker.

        Runs of an unknown machine are not scheduled: they wait for a version that knows it.
        """
        return self.filter(Q(status=RunStatus.QUEUED, due_at__lte=Now()) | LOST, machine__in=CATALOGUE)


class Run(models.Model):
    """One run of a machine: its terms, its head, its totals, and its worker."""

    id: int
    machine = models.CharField(max_length=40)
    goal = models.TextField()
    settings_json = models.TextField(default="{}")
    """The launch settings, checked, as canonical JSON."""
    site_rules_json = models.TextField(default="[]")
    """The site's interrupt rules as of launch; the log has their changes."""
    site_hosts_json = models.TextField(default="[]")
    """The site's hosts as of launch."""
    script = models.ForeignKey(
        "ScriptText", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """The script of a scripted model and its tools; none for a real model."""
    site_skills = models.ForeignKey(
        "ScriptText", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """The site's skills as of launch; none if the machine shows none, or the run is older than this column."""
    model = models.CharField(max_length=80, blank=True, default="")
    """The model at launch; empty for a script of its own."""
    switched_to = models.CharField(max_length=80, blank=True, default="", db_default="")
    """The model that has replaced it since, by a person or as its fallback, as logged. Empty: none has."""
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    by_operator = models.BooleanField(default=False)
    """Launched by the installation's operator, not by a person: deleting an owner leaves no owner, too."""
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="children"
    )
    parent_seq = models.PositiveIntegerField(null=True, blank=True)
    """The parent's ask for this run."""
    child_name = models.CharField(max_length=40, blank=True, default="")
    origin = models.CharField(max_length=8, blank=True, default="")
    """How it came from `copied_from`: fork, replay or rerun; empty if it was launched."""
    copied_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="copies"
    )
    copied_upto = models.PositiveIntegerField(null=True, blank=True)
    """The step of `copied_from` up to which its live steps are this run's beginning."""
    continues = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="continued_by"
    )
    """The run before it in a conversation; this run's first step has its data."""
    restored_at = models.DateTimeField(null=True, blank=True)
    """When a restore paused it, or the run that it comes from: it asks before each call with side effects."""
    root = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="family")
    """The first run of its family of children and forks: that one's limits on cost and tokens hold for all."""
    copied_usd = models.FloatField(default=0.0)
    copied_tokens = models.PositiveBigIntegerField(default=0)
    """Usage of the copied steps: it counts for their source run."""
    reserved_usd = models.FloatField(default=0.0)
    reserved_tokens = models.PositiveBigIntegerField(default=0)
    """Reserved usage of the model call in flight; settled by the step that concludes it."""
    reserved_epoch = models.PositiveIntegerField(default=0)
    """The epoch of the worker with that call: steps that others write meanwhile settle nothing."""

    status = models.CharField(max_length=10, choices=RunStatus.choices, default=RunStatus.QUEUED)
    exit_reason = models.CharField(max_length=40, null=True, blank=True)
    ok = models.BooleanField(null=True, blank=True)
    answer = models.TextField(null=True, blank=True)
    answer_source = models.CharField(max_length=20, null=True, blank=True)
    node = models.CharField(max_length=40)
    head = models.PositiveIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default="", blank=True)
    prompt_hash = models.CharField(max_length=64, default="", blank=True)
    """Hash chain over the model's blocks, so a worker need not read them again."""

    model_calls = models.PositiveIntegerField(default=0)
    cached_model_calls = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    active_seconds = models.FloatField(default=0.0)

    epoch = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=40, blank=True, default="")
    """Token of the run's worker; empty if there is none."""
    lease_until = models.DateTimeField(default=timezone.now)
    silent_looks = models.PositiveSmallIntegerField(default=0)
    """Looks of the sweep since the lease expired. A jumping clock, or a machine that wakes up, ends a lease early; its
    worker renews it before the sweep has looked often enough."""
    doing_json = models.TextField(default="", blank=True)
    """The call that takes its worker longer than a moment: seq, epoch, kind, name, attempt, and since when. It is in
    flight while the epoch is the run's and no step after it is written."""
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
        """Return its current model."""
        return self.switched_to or self.model

    @property
    def finished(self) -> bool:
        """Return True if it has ended for good."""
        return self.status in FINISHED

    def seen_by(self, user: AbstractBaseUser | AnonymousUser) -> bool:
        """Return True if `user` may see it: the same as `for_user`, for a loaded run."""
        seen = _seen_by(user)
        return seen == "all" or (seen == "own" and self.owner_id == user.pk)

    @property
    def stopping(self) -> bool:
        """Return True if a worker has yet to notice that the run was stopped or paused."""
        return self.is_held and (self.finished or self.status == RunStatus.PAUSED)

    @property
    def is_held(self) -> bool:
        """Return True if a worker has it, and may be busy with a call."""
        return bool(self.worker) and self.lease_until > timezone.now()

    @property
    def origin_words(self) -> str:
        """How it came from another run, in words; empty if it was launched."""
        return {"fork": "fork of", "replay": "replay of", "rerun": "run again from"}.get(self.origin, "")

    @property
    def replayed_only(self) -> bool:
        """Return True if it ended only because its replayed steps did: a step of its own says so, and no person stopped
        it."""
        own_end = self.origin == "replay" and self.head > (self.copied_upto or 0)
        return own_end and self.status == RunStatus.CANCELLED

    def ends_replay(self, seq: int) -> bool:
        """Return True if step `seq` ends a replay because its record goes no further."""
        return self.replayed_only and seq == (self.copied_upto or 0) + 1

    @property
    def script_json(self) -> str:
        """Return the script, or an empty text."""
        return self.script.text if self.script is not None else ""

    @property
    def settings(self) -> dict[str, Any]:
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
