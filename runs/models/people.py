"""Questions to people, and their decisions."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F
from django.utils import timezone

from runs.engine.effects import changes_something
from runs.engine.hosts import MOST_NAME
from runs.models.run import Run


class Interrupt(models.Model):
    """A question to a person, bound to the exact call that it holds back."""

    class Status(models.TextChoices):
        """The state of a question."""

        PENDING = "pending"
        DECIDED = "decided"
        EXPIRED = "expired"
        SUPERSEDED = "superseded"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="interrupts", db_index=False)
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
    """Of kind `limit`: its name."""
    figures_json = models.TextField(blank=True, default="")
    """Of kind `limit`: its use when this was asked (`AtLimit`); else empty."""
    host = models.CharField(max_length=MOST_NAME, blank=True, default="")
    """The host that the call contacts, if the question is about it; an approval may allow it for the whole run."""
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
        """Return the arguments of the held call, typed as the tool's schema has them."""
        found: dict[str, Any] = json.loads(self.args_json)
        return found

    @property
    def figures(self) -> dict[str, Any] | None:
        """Return the limit's use when this was asked; None for other questions."""
        found: dict[str, Any] | None = json.loads(self.figures_json) if self.figures_json else None
        return found

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of those arguments."""
        found: dict[str, Any] = json.loads(self.schema_json)
        return found

    @property
    def holds_a_deed(self) -> bool:
        """Return True if it holds back a call with side effects."""
        return changes_something(self.effects)

    @property
    def may_be_done(self) -> bool:
        """Return True if the call may have been made already, before a restore."""
        return self.run.restored_at is not None and self.holds_a_deed

    @property
    def verdicts(self) -> list[str]:
        """Return the possible verdicts."""
        found: list[str] = json.loads(self.verdicts_json)
        return found


class Decision(models.Model):
    """A decision: its author, time and channel, and the version that they saw. Append-only."""

    interrupt = models.OneToOneField(Interrupt, on_delete=models.CASCADE, related_name="decision")
    """One decision decides; the unique key settles a race."""
    verdict = models.CharField(max_length=10)
    args_json = models.TextField(null=True, blank=True)
    message = models.TextField(blank=True, default="")
    to_step = models.PositiveIntegerField(null=True, blank=True)
    allow_host = models.BooleanField(default=False)
    """With an approval: True if the host may be contacted for the rest of the run."""
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions"
    )
    by_name = models.CharField(max_length=150)
    channel = models.CharField(max_length=10)
    """web, admin, api, command, deadline or settings."""
    revision_seen = models.PositiveIntegerField(null=True, blank=True)
    """None if the version was not given (a command, the deadline)."""
    fingerprint_seen = models.CharField(max_length=16, blank=True, default="")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("at",)

    def __str__(self) -> str:
        return f"{self.by_name}: {self.verdict}"
