"""MCP servers that administrators name, and their tools: what a server defines, and what was approved of it."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q


class McpServer(models.Model):
    """A server whose tools runs may use once they are approved."""

    class Kind(models.TextChoices):
        """How it is reached."""

        STDIO = "stdio", "A program on this machine (stdio)"
        HTTP = "http", "An address (streamable HTTP)"

    name = models.CharField(max_length=40, unique=True)
    """The namespace of its tools."""
    kind = models.CharField(max_length=5, choices=Kind.choices, default=Kind.STDIO)
    command = models.TextField(blank=True, default="")
    """Of a program: its path and arguments, one a line."""
    variables = models.TextField(blank=True, default="")
    """Of a program: NAME=value, one a line. `$AGENTSITE_MCP_…` stands for a variable of the site."""
    address = models.CharField(max_length=500, blank=True, default="")
    headers = models.TextField(blank=True, default="")
    """Of an address: Name: value, one a line, with the same variables."""
    timeout_s = models.PositiveIntegerField(
        default=60, validators=[MinValueValidator(1), MaxValueValidator(3_600)]
    )
    enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=0)
    """Rises with each change; a session of an older version is closed."""
    fault = models.TextField(blank=True, default="")
    """Why it could not be reached last, with the end of what its process said; empty once it was."""
    looked_at = models.DateTimeField(null=True, blank=True)
    """When its tools were listed last."""
    look_wanted_at = models.DateTimeField(null=True, blank=True)
    """The time of a request for its tools; empty once a worker has begun to look."""
    looking_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class McpTool(models.Model):
    """A tool of a server. It is on while what the server defines is what was approved."""

    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="tools")
    name = models.CharField(max_length=200)
    found_json = models.TextField(blank=True, default="")
    """The definition when the server was last looked at; empty where it no longer has the tool."""
    found_sha256 = models.CharField(max_length=64, blank=True, default="")
    approved_json = models.TextField(blank=True, default="")
    approved_sha256 = models.CharField(max_length=64, blank=True, default="")
    approved_by = models.CharField(max_length=150, blank=True, default="")
    approved_at = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    effects = models.CharField(max_length=10, default="send")
    repeatable = models.BooleanField(default=False)
    reads = models.CharField(max_length=10, blank=True, default="untrusted")
    outward = models.CharField(max_length=260, blank=True, default="")

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("server", "name"), name="mcp_tool_once"),)

    def __str__(self) -> str:
        return self.full_name

    @property
    def full_name(self) -> str:
        """Return the name for runs, rules and pages."""
        return f"{self.server.name}.{self.name}"

    @property
    def is_on(self) -> bool:
        """Return True if runs may call it."""
        approved = self.approved_sha256 != "" and self.approved_sha256 == self.found_sha256
        return approved and self.enabled and self.server.enabled


ON = Q(enabled=True, server__enabled=True, approved_sha256=F("found_sha256")) & ~Q(approved_sha256="")
"""The tools that runs may call."""
