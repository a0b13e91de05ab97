"""What is kept of MCP servers: what they define, what was approved of it, and who is to look at them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from runs.adapters.mcp import Definition
from runs.engine.values import clean_text
from runs.models import McpServer, McpTool
from runs.store.db import again, now
from runs.store.errors import NotPossible

MOST_FAULT = 2_500
"""Characters of a fault that are kept, its end included."""

LOOKING_S = 300
"""Seconds after which a look whose worker is gone is made again."""


class DefinitionMoved(NotPossible):
    """The server has changed the tool since the page was shown; nothing was approved."""

    def __init__(self, tool: McpTool) -> None:
        super().__init__(
            f"{tool.full_name} has changed since this page was shown. Read the change, then approve it."
        )


@again
@transaction.atomic
def keep_found(name: str, found: Iterable[Definition]) -> None:
    """Keep what a server defines now. A tool that it no longer has stays listed if it was ever approved."""
    server = McpServer.objects.select_for_update().filter(name=name).first()
    if server is None:
        return
    defined = {clean_text(one.name)[:200]: one for one in found}
    for tool in server.tools.all():
        one = defined.pop(tool.name, None)
        if one is None and not tool.approved_sha256:
            tool.delete()
        elif (one.sha256 if one else "") != tool.found_sha256:
            tool.found_json, tool.found_sha256 = (one.text, one.sha256) if one else ("", "")
            tool.save(update_fields=["found_json", "found_sha256"])
    McpTool.objects.bulk_create(
        McpTool(
            server=server,
            name=name,
            found_json=one.text,
            found_sha256=one.sha256,
            effects=_usual_effects(one),
        )
        for name, one in defined.items()
    )
    McpServer.objects.filter(pk=server.pk).update(fault="", looked_at=now(), looking_since=None)


def _usual_effects(definition: Definition) -> str:
    """Return what is proposed for a new tool: `send`, but for our own tools that read. Hints decide nothing."""
    return "send" if definition.method == "tools/call" else "read"


@again
def keep_fault(name: str, why: str, last_words: str) -> None:
    """Keep why a server could not be reached."""
    told = f"{why}\n{last_words.strip()}".strip()
    McpServer.objects.filter(name=name).update(fault=clean_text(told)[:MOST_FAULT], looking_since=None)


def want_look(server: McpServer) -> None:
    """Have a worker list the server's tools."""
    McpServer.objects.filter(pk=server.pk).update(look_wanted_at=now())


def take_wanted() -> McpServer | None:
    """Return a server that is to be looked at, to one worker only."""
    lost = Q(looking_since__lt=Now() - timedelta(seconds=LOOKING_S))
    wanted = McpServer.objects.filter(Q(look_wanted_at__isnull=False) | lost).order_by("look_wanted_at")
    for server in wanted:
        same = Q(look_wanted_at=server.look_wanted_at, looking_since=server.looking_since)
        taken = McpServer.objects.filter(same, pk=server.pk).update(look_wanted_at=None, looking_since=now())
        if taken:
            return server
    return None


@again
@transaction.atomic
def approve(tool: McpTool, sha256: str, by: str) -> None:
    """Approve the definition that was shown, with what `tool` says that it does. Raises `DefinitionMoved`."""
    stored = McpTool.objects.select_for_update().get(pk=tool.pk)
    if not sha256 or stored.found_sha256 != sha256:
        raise DefinitionMoved(tool)
    tool.found_json, tool.found_sha256 = stored.found_json, stored.found_sha256
    tool.approved_json, tool.approved_sha256 = stored.found_json, stored.found_sha256
    tool.approved_by, tool.approved_at, tool.enabled = by, now(), True
    tool.save()


def switch_off(tool: McpTool) -> None:
    """Have no run call the tool any more, until it is approved again."""
    McpTool.objects.filter(pk=tool.pk).update(enabled=False)


def save_server(server: McpServer) -> None:
    """Keep a server's settings; sessions with the old ones end."""
    server.version += 1
    server.fault = ""
    server.save()
