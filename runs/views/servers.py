"""MCP servers for administrators: how each is reached, what tools it has, and which of them runs may use."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from runs import actions
from runs.adapters.mcp import how_to_add, is_installed
from runs.forms.servers import EFFECTS, READS, ServerForm, ToolForm
from runs.models import McpServer, McpTool
from runs.reading.servers import ToolView, server_view, server_views, tool_view, tool_views


@never_cache
@require_safe
def servers(request: HttpRequest) -> HttpResponse:
    """Show all servers with their states."""
    actions.check_servers(request.user)
    return render(request, "runs/servers.html", {"servers": server_views(), "missing": _missing()})


@never_cache
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Show the form for a new server, or save it."""
    actions.check_servers(request.user)
    form = ServerForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        server = form.save(commit=False)
        actions.save_server(server, by=request.user)
        messages.success(request, f"{server.name} is saved. A worker lists its tools now.")
        return redirect("server", server.pk)
    status = 422 if form.errors else 200
    return render(request, "runs/server_add.html", {"form": form, "missing": _missing()}, status=status)


@never_cache
@require_http_methods(["GET", "POST"])
def server(request: HttpRequest, server_id: int) -> HttpResponse:
    """Show one server with its tools and settings, or save the settings."""
    actions.check_servers(request.user)
    found = get_object_or_404(McpServer, pk=server_id)
    if request.method == "GET":
        return _page(request, found, ServerForm(instance=found))
    form = ServerForm(request.POST, instance=get_object_or_404(McpServer, pk=server_id))
    if not form.is_valid():
        return _page(request, found, form, status=422)
    actions.save_server(form.save(commit=False), by=request.user)
    messages.success(request, "Saved. A worker lists the tools again.")
    return redirect("server", server_id)


@require_POST
def look(request: HttpRequest, server_id: int) -> HttpResponse:
    """Have a worker list the server's tools."""
    actions.look_for_tools(get_object_or_404(McpServer, pk=server_id), by=request.user)
    messages.success(request, "A worker lists the tools. Reload the page in a few seconds.")
    return redirect("server", server_id)


@require_POST
def delete(request: HttpRequest, server_id: int) -> HttpResponse:
    """Forget a server; its name has to be typed."""
    actions.check_servers(request.user)
    found = get_object_or_404(McpServer, pk=server_id)
    if request.POST.get("name", "").strip() != found.name:
        messages.error(request, f"Not deleted. Type {found.name} to delete the server.")
        return redirect("server", server_id)
    actions.delete_server(found, by=request.user)
    messages.success(request, f"{found.name} is deleted.")
    return redirect("servers")


@require_POST
def approve(request: HttpRequest, server_id: int, tool_id: int) -> HttpResponse:
    """Approve a tool as it was shown, or switch it off."""
    actions.check_servers(request.user)
    tool = get_object_or_404(McpTool.objects.select_related("server"), pk=tool_id, server_id=server_id)
    try:
        _decide(request, tool)
    except actions.NotPossible as moved:
        messages.error(request, moved.sentence)
    return redirect("server", server_id)


def _decide(request: HttpRequest, tool: McpTool) -> None:
    if "off" in request.POST:
        actions.switch_tool_off(tool, by=request.user)
        messages.success(request, f"{tool.full_name} is off.")
        return
    if fault := tool_view(tool).fault:
        messages.error(request, f"{tool.full_name} can't be approved. {fault}")
        return
    form = ToolForm(request.POST, instance=tool)
    if not form.is_valid():
        messages.error(request, f"{tool.full_name} is not approved: the form is incomplete.")
        return
    actions.approve_tool(form.save(commit=False), form.cleaned_data["sha256"], by=request.user)
    messages.success(request, f"{tool.full_name} is on.")


def _page(request: HttpRequest, found: McpServer, form: ServerForm, status: int = 200) -> HttpResponse:
    tools: list[ToolView] = tool_views(found)
    context = {
        "view": server_view(found, [one.tool for one in tools]),
        "server": found,
        "tools": tools,
        "form": form,
        "effects": EFFECTS,
        "reads": READS,
        "missing": _missing(),
    }
    return render(request, "runs/server.html", context, status=status)


def _missing() -> str:
    """Return how to install the packages; empty if they are installed."""
    return "" if is_installed() else how_to_add()
