"""Artifacts of runs, version after version."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from runs.models.run import Run


class Artifact(models.Model):
    """One version of an artifact: the same name again is the next version."""

    class Kind(models.TextChoices):
        """The use of an artifact."""

        INLINE = "inline"
        FILE = "file"
        DISPLAY = "display"
        SEARCH = "search"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts", db_index=False)
    name = models.CharField(max_length=200)
    version = models.PositiveIntegerField()
    """From 1, by name."""
    kind = models.CharField(max_length=8, choices=Kind.choices)
    media_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    """Bytes."""
    sha256 = models.CharField(max_length=64)
    """SHA-256 of the bytes, in hex; they are stored under this name in the run's own directory."""
    seq = models.PositiveIntegerField()
    """The declaring step."""
    call_seq = models.PositiveIntegerField(null=True, blank=True)
    """The ask of its tool call."""
    tool = models.CharField(max_length=100, blank=True, default="")
    error = models.TextField(null=True, blank=True)
    """Why it failed; None if it did not."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("run", "name", "version")
        constraints = (
            models.UniqueConstraint(fields=("run", "name", "version"), name="artifact_version_once"),
        )

    def __str__(self) -> str:
        return f"{self.name} (version {self.version})"
