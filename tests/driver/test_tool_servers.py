"""MCP servers on the site: pages for administrators, approvals, launches, runs that call their tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentsite import providers
from runs import actions, driver
from runs.adapters.mcp import Definition
from runs.driver import mcp as of_servers
from runs.models import Interrupt, McpServer, McpTool, Run
from runs.reading.servers import tool_view
from runs.store import mcp as kept
from runs.store.db import now
from tests.adapters.mcp.serving import FAKE
from tests.cast import alice, bob, cast_member, charlie, person, signed_in
from tests.launching import FINAL, launch, script, think
from tests.running import check_everything, work

pytestmark = [pytest.mark.django_db]

ROOT = Path(__file__).parents[2]

PRINT = Definition(
    name="print",
    title="Print a page",
    description="Prints a page on the <b>big</b> printer.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}, "copies": {"type": "integer", "maximum": 9}},
        "required": ["text"],
    },
    hints={"readOnlyHint": False, "destructiveHint": True},
)
COLOUR = PRINT.model_copy(update={"description": "Prints a page in colour, and mails it."})


def root() -> User:
    return cast_member("root", is_staff=True, is_superuser=True)


def office(*found: Definition, **fields: Any) -> McpServer:
    """A server whose tools have been listed."""
    server = McpServer.objects.create(name="office", command="printer\n--big", **fields)
    kept.keep_found("office", found or (PRINT,))
    server.refresh_from_db()
    return server


def approved(server: McpServer, name: str = "print", **said: Any) -> McpTool:
    tool = server.tools.get(name=name)
    for field, value in said.items():
        setattr(tool, field, value)
    actions.approve_tool(tool, tool.found_sha256, by=None)
    return server.tools.get(name=name)


def post(client: Client, address: str, /, *args: int, **fields: str) -> Any:
    return client.post(reverse(address, args=args), fields)


# --- who may --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("person", [alice, bob, charlie])
def test_only_administrators_see_and_change_servers(person: Any) -> None:
    server = office()
    tool = server.tools.get()
    client = signed_in(person())
    assert "Tool servers" not in client.get("/runs/").text
    for address in ("/servers/", "/servers/add/", f"/servers/{server.pk}/"):
        assert client.get(address).status_code == 403
    for name, args in (
        ("server-add", ()),
        ("server", (server.pk,)),
        ("server-look", (server.pk,)),
        ("server-delete", (server.pk,)),
        ("server-tool", (server.pk, tool.pk)),
    ):
        answer = post(client, name, *args, name="office", sha256=tool.found_sha256, effects="read")
        assert answer.status_code == 403
    server.refresh_from_db()
    assert server.look_wanted_at is None
    assert not server.tools.get().is_on


def test_an_address_that_only_takes_a_form_leads_to_the_servers_page() -> None:
    server = office()
    answer = signed_in(root()).get(f"/servers/{server.pk}/look/", headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/servers/{server.pk}/")


# --- naming a server ------------------------------------------------------------------------------------------------

GOOD = {"name": "clock", "kind": "stdio", "command": "mcp-server-time", "timeout_s": "30", "enabled": "yes"}


def test_a_server_is_added_and_a_worker_is_to_look_at_it() -> None:
    answer = post(signed_in(root()), "server-add", **GOOD)
    server = McpServer.objects.get()
    assert answer.headers["Location"] == f"/servers/{server.pk}/"
    assert (server.name, server.command, server.timeout_s, server.version) == (
        "clock",
        "mcp-server-time",
        30.0,
        1,
    )
    assert server.look_wanted_at is not None
    assert "looking for tools" in signed_in(User.objects.get()).get("/servers/").text


@pytest.mark.parametrize(
    ("changed", "field", "sentence"),
    [
        ({"name": "Big Clock"}, "name", "Use 1 to 40 lower-case letters"),
        ({"name": "agent"}, "name", "not “agent”"),
        ({"command": " \n"}, "command", "Enter the program of the server."),
        ({"kind": "http"}, "address", "Enter the address of the server."),
        ({"kind": "http", "address": "ftp://a.test"}, "address", "Enter an address such as"),
        ({"kind": "http", "address": "http://u:p@a.test/mcp"}, "address", "without a user"),
        ({"variables": "no sign"}, "variables", "write NAME=value, one a line."),
        ({"variables": "KEY=$AGENTSITE_KEY_OPENAI"}, "variables", "that begin with AGENTSITE_MCP_"),
        ({"variables": "KEY=$DATABASE_URL"}, "variables", "that begin with AGENTSITE_MCP_"),
        ({"headers": "Bad Name: x"}, "headers", "write Name: value, one a line."),
        ({"timeout_s": "0"}, "timeout_s", "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(changed: dict[str, str], field: str, sentence: str) -> None:
    answer = post(signed_in(root()), "server-add", **GOOD | changed)
    assert answer.status_code == 422
    assert f'id="{field}-wrong"' in answer.text
    assert sentence in answer.text
    assert not McpServer.objects.exists()


def test_a_server_is_changed_and_its_name_stays() -> None:
    server = office()
    answer = post(signed_in(root()), "server", server.pk, **GOOD | {"command": "other"})
    assert answer.status_code == 302
    server.refresh_from_db()
    assert (server.name, server.command, server.version) == ("office", "other", 1)


def test_a_server_is_deleted_once_its_name_is_typed() -> None:
    server, client = office(), signed_in(root())
    refused = client.post(reverse("server-delete", args=[server.pk]), {"name": "offic"}, follow=True)
    assert "Not deleted. Type office to delete the server." in refused.text
    assert McpServer.objects.exists()
    assert post(client, "server-delete", server.pk, name="office").headers["Location"] == "/servers/"
    assert not McpServer.objects.exists()


def test_a_server_gets_the_variables_that_are_named_and_their_values_are_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTSITE_MCP_TOKEN", "very-secret")
    server = McpServer(
        name="a",
        kind="http",
        address="http://a.test/mcp",
        headers="Authorization: Bearer $AGENTSITE_MCP_TOKEN",
    )
    told = of_servers.settings_of(server)
    assert told.headers == (("Authorization", "Bearer very-secret"),)
    assert (told.secrets, told.fault) == (("very-secret",), "")
    assert "very-secret" not in repr(told)
    server.headers = "X: $AGENTSITE_MCP_NONE"
    assert of_servers.settings_of(server).fault == "The environment of the site lacks AGENTSITE_MCP_NONE."


# --- approving ------------------------------------------------------------------------------------------------------


def test_a_new_tool_is_off_proposed_to_send_and_its_hints_decide_nothing() -> None:
    server = office(PRINT.model_copy(update={"hints": {"readOnlyHint": True}}))
    tool = server.tools.get()
    assert (tool.effects, tool.reads, tool.repeatable, tool.is_on) == ("send", "untrusted", False, False)
    page = signed_in(root()).get(f"/servers/{server.pk}/").text
    assert "The server says, unchecked: only reads." in page
    assert "&lt;b&gt;big&lt;/b&gt;" in page
    assert "not approved" in page


def test_an_approved_tool_is_on_with_what_the_administrator_says_of_it() -> None:
    server, client = office(), signed_in(root())
    tool = server.tools.get()
    fields = {"sha256": tool.found_sha256, "effects": "write", "reads": "private", "repeatable": "yes"}
    assert post(client, "server-tool", server.pk, tool.pk, **fields).status_code == 302
    tool.refresh_from_db()
    assert tool.is_on
    assert (tool.effects, tool.reads, tool.repeatable, tool.approved_by) == ("write", "private", True, "root")
    spec = driver.tools_here()["office.print"].spec()
    assert (spec.effects, spec.reads, spec.idempotent, spec.cacheable) == ("write", "private", True, False)
    assert post(client, "server-tool", server.pk, tool.pk, off="yes").status_code == 302
    assert "office.print" not in driver.tools_here()


def test_what_was_not_shown_is_not_approved() -> None:
    server, client = office(), signed_in(root())
    tool = server.tools.get()
    shown = tool.found_sha256
    kept.keep_found("office", (COLOUR,))
    answer = client.post(
        reverse("server-tool", args=[server.pk, tool.pk]), {"sha256": shown, "effects": "read"}, follow=True
    )
    assert "office.print has changed since this page was shown." in answer.text
    tool.refresh_from_db()
    assert (tool.is_on, tool.effects) == (False, "send")


def test_a_changed_definition_is_off_and_shown_as_a_difference_until_the_change_is_approved() -> None:
    server, client = office(), signed_in(root())
    tool = approved(server, effects="read")
    kept.keep_found("office", (COLOUR,))
    assert "office.print" not in driver.tools_here()
    page = client.get(f"/servers/{server.pk}/").text
    assert "changed, off" in page
    assert "Approve the change" in page
    assert "<del>" in page and "<ins>" in page and "mails it" in page
    tool.refresh_from_db()
    assert (
        "".join(one.text for one in tool_view(tool).difference if one.where == "after").count("colour") == 1
    )
    post(
        client, "server-tool", server.pk, tool.pk, sha256=tool.found_sha256, effects="send", reads="untrusted"
    )
    assert driver.tools_here()["office.print"].description == COLOUR.description
    kept.keep_found("office", (PRINT,))
    assert "office.print" not in driver.tools_here()


def test_a_tool_that_is_gone_is_off_and_stays_listed_and_one_never_approved_is_forgotten() -> None:
    other = PRINT.model_copy(update={"name": "scan"})
    server = office(PRINT, other)
    approved(server)
    kept.keep_found("office", ())
    assert [tool.name for tool in server.tools.all()] == ["print"]
    assert "no longer there" in signed_in(root()).get(f"/servers/{server.pk}/").text
    assert "office.print" not in driver.tools_here()
    kept.keep_found("office", (PRINT,))
    assert "office.print" in driver.tools_here()


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"name": "print page"}, "Its name has characters other than"),
        ({"name": "print\x00page"}, "Its name has characters other than"),
        ({"input_schema": {"type": "array"}}, "Its arguments are not an object."),
        ({"description": "x" * 70_000}, "Its definition has more than 65,536 characters."),
    ],
)
def test_a_definition_that_can_not_be_used_can_not_be_approved(update: dict[str, Any], why: str) -> None:
    server, client = office(PRINT.model_copy(update=update)), signed_in(root())
    tool = server.tools.get()
    assert why in client.get(f"/servers/{server.pk}/").text
    post(client, "server-tool", server.pk, tool.pk, sha256=tool.found_sha256, effects="read")
    tool.refresh_from_db()
    assert not tool.is_on


def test_a_server_that_is_switched_off_offers_nothing() -> None:
    server = office()
    approved(server)
    McpServer.objects.update(enabled=False)
    assert "office.print" not in driver.tools_here()


# --- looking --------------------------------------------------------------------------------------------------------


def test_a_server_is_looked_at_by_one_worker_and_a_lost_look_is_made_again() -> None:
    server = office()
    assert kept.take_wanted() is None
    kept.want_look(server)
    assert kept.take_wanted() == server
    assert kept.take_wanted() is None
    McpServer.objects.update(looking_since=now() - timedelta(seconds=kept.LOOKING_S + 1))
    assert kept.take_wanted() == server


def test_nothing_is_looked_at_while_the_site_is_halted() -> None:
    kept.want_look(office())
    actions.halt_site(by=None, reason="test")
    assert not driver.look_at_wanted()
    assert McpServer.objects.get().look_wanted_at is not None


def test_why_a_server_can_not_be_reached_is_told_on_its_page() -> None:
    pytest.importorskip("mcp")
    server = office()
    McpServer.objects.update(command="no-such-program")
    kept.want_look(server)
    assert driver.look_at_wanted()
    page = signed_in(root()).get(f"/servers/{server.pk}/").text
    assert "The server office can&#x27;t be reached: its process ended." in page
    assert "no-such-program: No such file or directory" in page
    assert "be reached" in signed_in(User.objects.get()).get("/servers/").text


def test_pages_load_no_library_of_servers() -> None:
    code = (
        "import sys, django\n"
        "django.setup()\n"
        "import agentsite.asgi, agentsite.urls, runs.urls, runs.driver.mcp, runs.views.servers\n"
        "print(*sorted({'mcp', 'mcp_types', 'jsonschema_rs', 'httpx2'} & set(sys.modules)))"
    )
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.fixture
def _no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.adapters.mcp.settings.PACKAGES", ("not_a_library",))


@pytest.mark.usefixtures("_no_packages")
def test_without_its_packages_each_page_says_how_to_get_them_and_nothing_is_started() -> None:
    server = office()
    for address in ("/servers/", "/servers/add/", f"/servers/{server.pk}/"):
        page = signed_in(User.objects.filter(username="root").first() or root()).get(address).text
        assert "The packages for MCP servers are not installed." in page
        assert "python3 manage.py add_provider mcp" in page
    kept.want_look(server)
    assert driver.look_at_wanted()
    assert "are not installed" in McpServer.objects.get().fault


@pytest.mark.usefixtures("_no_packages")
def test_up_installs_the_packages_where_a_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (sentence,) = providers.add_missing([providers.MCP])
    assert "Tools of MCP servers can't be called." in sentence
    assert "-r requirements-mcp.lock" in sentence
    assert providers.lock_of(providers.MCP).is_file()


# --- runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(transactional_db: None) -> Iterator[McpServer]:
    """A real server, looked at."""
    pytest.importorskip("mcp")
    from runs.adapters.mcp import sessions

    server = McpServer.objects.create(name="fake", command=f"{sys.executable}\n{FAKE}\nstdio")
    kept.want_look(server)
    assert driver.look_at_wanted()
    server.refresh_from_db()
    assert server.fault == ""
    yield server
    sessions.close_all()
    check_everything()


def run_of(*calls: Any, tools: list[str], owner: User | None = None, **settings: Any) -> Run:
    return work(launch(owner=owner, played=script(*calls, FINAL, tools={}), tools=tools, **settings))


def results(run: Run) -> list[Any]:
    answers = run.exchanges.filter(kind="tool_call").order_by("seq").values_list("answer_json", flat=True)
    return [json.loads(text) for text in answers if text]


def test_a_call_waits_for_a_person_and_then_reaches_the_server(fake: McpServer) -> None:
    approved(fake, "echo")
    owner = person("alice", "add_run")
    run = run_of(think("fake.echo", text="high water"), tools=["fake.echo"], owner=owner)
    question = Interrupt.objects.get(run=run)
    card = (
        signed_in(person("bob", "view_run", "decide_interrupt"))
        .get(reverse("interrupt", args=[question.pk]))
        .text
    )
    assert "fake.echo" in card and "high water" in card and "sends" in card
    actions.decide(question.pk, verdict="approve", by=None, channel="web")
    assert work(run).exit_reason == "goal_achieved"
    assert [one["value"] for one in results(run)] == [{"result": "high water"}]
    assert "fake.echo" in signed_in(owner).get(f"/runs/{run.pk}/").text


def test_a_tool_that_reads_is_called_unasked_and_its_picture_is_an_artifact(fake: McpServer) -> None:
    approved(fake, "picture", effects="read")
    run = run_of(think("fake.picture"), tools=["fake.picture"])
    assert run.exit_reason == "goal_achieved"
    assert run.artifacts.get().media_type == "image/png"


def test_a_call_that_was_cut_off_asks_what_became_of_it(fake: McpServer) -> None:
    approved(fake, "die")
    allow = [{"when": {"tool": "*"}, "do": "allow"}]
    run = run_of(think("fake.die"), tools=["fake.die"], rules=allow)
    assert Interrupt.objects.get(run=run).kind == "may_have_happened"
    assert "ended the connection" in McpServer.objects.get().fault


def test_a_server_that_changes_its_mind_in_a_run_is_not_called(fake: McpServer) -> None:
    approved(fake, "mutable", effects="read")
    approved(fake, "change_mind", effects="read")
    run = run_of(
        think("fake.mutable", text="a"),
        think("fake.change_mind"),
        think("fake.mutable", text="b"),
        tools=["fake.mutable", "fake.change_mind"],
    )
    assert [one["kind"] for one in results(run)] == ["tool_returned", "tool_returned", "failed"]
    assert not results(run)[2]["ran"]
    assert not fake.tools.get(name="mutable").is_on
    later = run_of(think("fake.change_mind"), tools=["fake.change_mind"])
    assert later.exit_reason == "goal_achieved"


def test_a_run_keeps_knowing_a_tool_that_is_off_and_may_not_call_it(fake: McpServer) -> None:
    tool = approved(fake, "echo", effects="read")
    run = launch(played=script(think("fake.echo", text="a"), FINAL, tools={}), tools=["fake.echo"])
    actions.switch_tool_off(tool, by=None)
    spec = driver.tool_specs(run)["fake.echo"]
    assert (spec.permitted, spec.effects) == (False, "read")
    work(run)
    assert results(run) == []


# --- the launch -----------------------------------------------------------------------------------------------------


def test_the_form_offers_the_tools_that_are_on() -> None:
    server = office(PRINT, PRINT.model_copy(update={"name": "scan"}))
    approved(server)
    page = signed_in(alice()).get("/runs/new/").text
    assert 'value="office.print"' in page
    assert "Prints a page on the &lt;b&gt;big&lt;/b&gt; printer." in page
    assert "office.scan" not in page


def test_a_tool_that_is_not_on_is_no_tool() -> None:
    office()
    with pytest.raises(actions.BadLaunch) as refused:
        launch(FINAL, tools=["office.print"])
    assert "There is no tool 'office.print'." in str(refused.value.problems[0].message)


def test_a_run_that_names_no_such_tool_asks_no_database_for_servers(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert of_servers.tools_named(["calculator", "now"]) == ({}, set())


def test_a_pattern_of_a_server_is_shown_to_the_model_and_never_run_by_the_engine() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    server = office(PRINT.model_copy(update={"input_schema": schema}))
    approved(server)
    parameters = driver.tools_here()["office.print"].spec().parameters
    assert parameters["properties"]["a"] == {"type": "string", "description": "Pattern: ^(a+)+$"}
