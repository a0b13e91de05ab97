"""The page of the site's tools, and the form that tries one out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from runs.adapters.mcp import Definition
from runs.adapters.tools import TOOLS
from runs.models import McpServer, McpTool, Run, SiteRule
from runs.store import mcp as kept
from tests.cast import administrator, alice, bob, signed_in
from tests.pages import forms_of
from tests.running import work

pytestmark = [pytest.mark.django_db]


PRINT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "copies": {"type": "integer", "maximum": 9}},
    "required": ["text"],
}


def approved_tool(schema: dict[str, Any] = PRINT) -> McpTool:
    """A tool of a server that an administrator has approved."""
    McpServer.objects.create(name="office", command="printer")
    kept.keep_found(
        "office", (Definition(name="print", description="Prints <b>a page</b>.", input_schema=schema),)
    )
    tool = McpTool.objects.get()
    tool.effects = "send"
    kept.approve(tool, tool.found_sha256, "root")
    return tool


def tries(client: Client, name: str, **fields: str) -> Any:
    return client.post(f"/tools/{name}/", {f"arg.{key}": value for key, value in fields.items()})


def test_the_page_lists_every_tool_with_purpose_effect_and_approval() -> None:
    approved_tool()
    page = signed_in(alice()).get("/tools/").text
    for name, tool in TOOLS.items():
        assert f'href="/tools/{name}/"' in page
        assert escape(tool.description[:80]) in page
    assert 'href="/tools/office.print/"' in page
    assert "Prints &lt;b&gt;a page&lt;/b&gt;." in page
    assert "MCP server office" in page and "Built in" in page
    assert "needs approval" in page and "runs without approval" in page


def test_the_page_is_for_people_who_may_launch() -> None:
    client = signed_in(bob())
    assert client.get("/tools/").status_code == 403
    assert client.get("/tools/calculator/").status_code == 403
    assert tries(client, "calculator", expression="1").status_code == 403
    assert not Run.objects.exists()
    assert 'href="/tools/"' not in client.get("/runs/").text
    assert 'href="/tools/"' in signed_in(alice()).get("/runs/").text


def test_administrators_find_tool_servers_where_they_were() -> None:
    client = signed_in(administrator())
    page = client.get("/tools/").text
    assert page.count('href="/servers/"') == 2  # in the menu, and on the page
    assert client.get("/servers/").status_code == 200
    assert 'href="/servers/"' not in signed_in(alice()).get("/tools/").text


def test_a_tool_tells_its_arguments_in_words_and_its_schema_behind_a_fold() -> None:
    page = signed_in(alice()).get("/tools/search_files/").text
    assert "Regular expression, in any case." in page
    assert "one of both, names, text" in page
    assert "default &quot;*&quot;" in page
    assert "&quot;properties&quot;" in page
    http = signed_in(administrator()).get("/tools/http_request/").text
    assert "sends" in http and "needs approval" in http
    assert "Reads only if method is GET or HEAD." in http
    assert "untrusted content" in http


def test_a_tool_tells_who_may_use_it_and_who_approves() -> None:
    page = signed_in(alice()).get("/tools/write_file/").text
    assert "group operators" in page
    assert "group reviewers" in page


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"when": {"tool": "write_*"}, "do": "deny"}, "denied"),
        ({"when": {"effects": ["write"]}, "do": "allow"}, "runs without approval"),
        ({"when": {"tool": "calc*"}, "do": "allow"}, "needs approval"),
        (
            {"when": {"tool": "write_file", "args": {"name": {"like": "notes/*"}}}, "do": "allow"},
            "name like notes/*",
        ),
        ({"when": {"same_call": 3}, "do": "deny"}, "the same call 3 times"),
    ],
)
def test_the_sites_rules_change_what_the_page_says_of_approval(rule: dict[str, Any], said: str) -> None:
    SiteRule.objects.create(rule_json=json.dumps(rule))
    assert said in signed_in(alice()).get("/tools/write_file/").text


def test_a_trial_is_a_run_of_its_launcher() -> None:
    owner = alice()
    answer = tries(signed_in(owner), "calculator", expression="6 * 7")
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.pk}/")
    assert run.owner == owner
    assert work(run).status == "succeeded"
    assert "Try out calculator." in signed_in(owner).get("/runs/").text


def test_a_tool_of_a_server_is_tried_and_asks() -> None:
    approved_tool()
    assert tries(signed_in(alice()), "office.print", text="x", copies="2").status_code == 302
    run = work(Run.objects.get())
    assert (run.status, run.interrupts.get().args) == ("waiting", {"text": "x", "copies": 2})


def test_bad_input_is_told_at_its_field_and_kept() -> None:
    approved_tool()
    answer = tries(signed_in(alice()), "office.print", text="high\r\nwater", copies="ten")
    assert answer.status_code == 422
    assert "copies must be a whole number." in answer.text
    (form,) = [form for form in forms_of(answer.text) if "arg.text" in form.fields]
    assert form.fields["arg.copies"] == "ten"
    assert "water" in form.fields["arg.text"]
    assert not Run.objects.exists()
    missing = tries(signed_in(administrator()), "office.print", copies="10")
    assert "print needs the argument text" in missing.text
    assert "copies must be at most 9." in missing.text
    assert 'value="10"' in missing.text


def test_a_fault_that_only_the_tool_finds_is_told_at_its_field() -> None:
    answer = tries(
        signed_in(alice()), "http_request", method="GET", url="http://example.com/", headers='{"a": 1}'
    )
    assert answer.status_code == 422
    assert "headers" in answer.text and "string" in answer.text
    assert not Run.objects.exists()


def test_the_fields_begin_empty_and_show_no_change() -> None:
    page = signed_in(alice()).get("/tools/write_file/").text
    (form,) = [form for form in forms_of(page) if "arg.name" in form.names]
    assert form.fields["arg.name"] == form.fields["arg.content"] == ""
    assert "data-diff" not in page


def test_a_tool_that_is_not_there_is_not_found() -> None:
    client = signed_in(alice())
    assert client.get("/tools/nosuch/").status_code == 404
    assert client.get("/tools/a/b/").status_code == 404


ODD: dict[str, Any] = {
    "type": "object",
    "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    "properties": {
        "anything": True,
        "nothing": {},
        "level": {"enum": [1, 2, None]},
        "point": {"$ref": "#/$defs/Point"},
        "either": {"anyOf": [True, {"type": "string"}, {"type": "null"}]},
        "kinds": {"type": ["string", "null"], "default": {"a": [1]}},
        "bounds": {"type": "number", "minimum": 0.5, "maximum": 1e9},
        "a\u202eb": {"type": "string"},
    },
    "required": ["anything"],
    "additionalProperties": {"type": "string"},
}


def test_an_odd_schema_of_a_server_is_shown_and_can_be_tried() -> None:
    tool = approved_tool(ODD)
    client = signed_in(alice())
    assert client.get("/tools/").status_code == 200
    page = client.get(f"/tools/{tool.full_name}/").text
    assert "one of 1, 2, None" not in page and "one of 1, 2, null" in page
    assert "text or null" in page
    assert "\u202e" not in page[: page.index('id="try-title"')]
    answer = tries(client, tool.full_name, anything='{"deep": [1]}', point='{"x": 1}', level="2")
    assert answer.status_code == 302, answer.text
    assert work(Run.objects.get()).interrupts.get().args == {
        "anything": {"deep": [1]},
        "point": {"x": 1},
        "level": 2,
    }


def test_a_call_that_the_server_s_schema_refuses_is_told_above_the_fields() -> None:
    tool = approved_tool(ODD)
    answer = tries(signed_in(alice()), tool.full_name, anything="1", point='{"y": 1}')
    assert answer.status_code == 422
    assert "point" in answer.text and "required" in answer.text
    assert not Run.objects.exists()
