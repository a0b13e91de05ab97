"""What a site with a machine from outside shows of its runs. `test_fifth.py` starts this where `poll` is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from agentsite.environment import ROOT
from runs.models import Run
from runs.reading import panels, rows
from tests.cast import alice, bob, signed_in
from tests.running import check_run, work

pytestmark = [pytest.mark.django_db]


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def launched(client: Client, **fields: Any) -> Run:
    """A run that was launched from the demonstration's form, and driven to its end."""
    page = client.get("/runs/new/?demonstration=poll")
    form = page.context["form"]
    sent: dict[str, Any] = {}
    for name in form.fields:
        value = form[name].value()
        if value not in (None, "", False, []) and name in {
            "goal",
            "machine",
            "model",
            "tools",
            "script",
            "votes",
        }:
            sent[name] = value
    played = json.loads(sent["script"]) | {"pace": {}}
    answer = client.post("/runs/new/", sent | {"script": json.dumps(played)} | fields)
    assert answer.status_code == 302, answer.context["form"].errors
    run = work(Run.objects.latest("pk"))
    assert (run.status, run.answer) == ("succeeded", "no")
    check_run(run)
    return run


def test_the_launch_page_has_its_form_and_its_demonstration() -> None:
    page = signed_in(alice()).get("/runs/new/").text
    assert "Asks the model several times" in page
    assert 'title="It looks something up, casts three votes and counts them"' in page
    own = re.search(r'<fieldset class="launch__part" data-machines="poll">.*?</fieldset>', page, re.DOTALL)
    assert own is not None
    assert text_of(own[0]).startswith("The poll How many votes the model casts")
    assert all(f'name="{name}"' in own[0] for name in ("votes", "lookups", "tie"))


def test_what_is_wrong_with_a_field_stands_beside_it() -> None:
    client = signed_in(alice())
    fields = {"goal": "g", "machine": "poll", "model": "script", "script": '{"replies": {"decision": []}}'}
    page = client.post("/runs/new/", fields | {"votes": "51"})
    assert page.status_code == 422
    assert "votes" in page.context["form"].errors
    assert 'id="votes-wrong"' in page.text


def test_its_settings_are_those_of_the_form_and_the_form_is_filled_from_them() -> None:
    client = signed_in(alice())
    run = launched(client, tie="nobody", lookups="1")
    assert (run.settings["votes"], run.settings["tie"], run.settings["lookups"]) == (3, "nobody", 1)
    form = client.get(f"/runs/new/?like={run.pk}").context["form"]
    assert [form[name].value() for name in ("votes", "tie", "lookups")] == [3, "nobody", 1]


def test_its_steps_read_well_on_the_run_page_and_in_the_inspector() -> None:
    client = signed_in(alice())
    run = launched(client)
    said = [row.summary for row in rows.row_views(run)]
    assert 'Looks up first: It may be 7 times 13. calculator(expression="7 * 13")' in said
    assert "Votes yes: It looks like one." in said
    assert "Counted: 1 for no, 1 for yes" in said
    assert [line for line in said if line.startswith("Final answer")] or said[-1].startswith("Ended")
    page = client.get(f"/runs/{run.pk}/").text
    assert "Votes yes" in page
    assert "3 of 3 votes cast" in text_of(page)
    assert re.search(r'<summary class="own__summary">\s*The poll\s*</summary>', page)
    seq = next(row.seq for row in rows.row_views(run) if row.summary.startswith("Votes yes"))
    inspected = text_of(client.get(f"/runs/{run.pk}/steps/{seq}/").text)
    assert "Votes yes" in inspected and "It looks like one." in inspected
    assert "poll.vote.cast" not in inspected
    context = text_of(client.get(f"/runs/{run.pk}/context/").text)
    assert "Agent" in context


def test_its_panel_tells_how_far_it_is() -> None:
    run = launched(signed_in(alice()))
    panel = panels.panels_of(run, bob())["machine"]
    assert "Answer no" in panel and "votes: 2" in panel
    assert 'data-machine="poll"' in panel
    assert "BUDGET_STATE: votes 3/3" in panel


def test_a_card_shows_what_the_model_said_before_the_question() -> None:
    client = signed_in(alice())
    page = client.get("/runs/new/?demonstration=poll")
    played = json.loads(page.context["form"]["script"].value()) | {"pace": {}}
    fields = {"goal": "g", "machine": "poll", "model": "script", "tools": ["calculator"], "asks": "all"}
    assert client.post("/runs/new/", fields | {"script": json.dumps(played)}).status_code == 302
    run = work(Run.objects.get())
    assert run.status == "waiting"
    card = text_of(panels.panels_of(run, bob())["needs"])
    assert "It may be 7 times 13." in card


def test_its_runs_are_compared_by_their_own_words() -> None:
    client = signed_in(alice())
    left = launched(client)
    other = json.loads(left.script_json)
    other["replies"]["decision"][2]["answer"] = "no"
    right = launched(client, script=json.dumps(other))
    page = text_of(client.get(f"/runs/{left.pk}/compare/{right.pk}/").text)
    assert "Votes yes" in page and "Votes no" in page
    assert "answer" in page


def test_it_is_exported_and_its_exported_test_passes(tmp_path: Path) -> None:
    run = launched(signed_in(alice()))
    told = json.loads(_printed("export", str(run.pk)))
    assert any(step["summary"].startswith("Votes yes") for step in told["steps"])
    file = tmp_path / "test_poll_again.py"
    file.write_text(_printed("export", str(run.pk), "--format", "pytest"))
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
            file,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stdout[-2000:]


def _printed(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_why_it_ended_is_told_in_its_own_words() -> None:
    client = signed_in(alice())
    votes = {"decision": [{"answer": "no"}, {"answer": "yes"}]}
    fields = {"goal": "g", "machine": "poll", "model": "script", "votes": "2", "tie": "nobody"}
    client.post("/runs/new/", fields | {"script": json.dumps({"replies": votes})})
    run = work(Run.objects.get())
    assert run.exit_reason == "poll_tied"
    assert "the votes are tied" in text_of(client.get(f"/runs/{run.pk}/").text)
    assert "the votes are tied" in text_of(client.get("/runs/").text)
