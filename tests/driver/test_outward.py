"""What a run has read goes to no host that the launch, the site or a person has not named: worked, kept, replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from runs import actions
from runs.adapters.toolbox import Toolbox
from runs.adapters.tools import TOOLS, fetch_url
from runs.adapters.wire import trusted
from runs.driver import Slice, tool_specs
from runs.driver.replaying import made_again, record_of
from runs.models import Decision, Run, SiteHost, SiteRule
from runs.reading.exporting import export
from runs.reading.outlines import outline_of
from runs.reading.script_export import launch_of
from runs.store import errors, verifying
from tests.adapters.pages import PUBLIC_ADDRESS, Answer, TableNet, Web
from tests.cast import person
from tests.launching import FINAL, launch, script, think
from tests.outward import AGAIN, GO, OTHER, PLAYED, READ, launched, visited
from tests.running import decide, pending, work
from tests.workers import slice_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def test_the_question_names_the_host_and_nothing_is_called_before_it_is_answered() -> None:
    run = work(launched(READ, GO))
    question = pending(run)
    asked = (question.host, question.tool, question.effects, question.risk)
    assert asked == ("api.test", "visit", "read", "medium")
    assert "private data (diary, step 4)" in question.why and "api.test" in question.why
    assert visited(run) == []


def test_an_approval_is_for_one_call_and_with_the_host_for_the_run() -> None:
    run = work(launched(READ, GO, AGAIN, AGAIN, OTHER))
    decide(run, "approve")
    assert pending(work(run)).args == {"url": "https://api.test/2"}
    decide(run, "approve", allow_host=True)
    assert pending(work(run)).host == "other.test"
    assert visited(run) == ["https://api.test/?d=1", *["https://api.test/2"] * 2]
    told = export(run)["interrupts"]
    assert [one["decisions"][0]["allow_host"] for one in told[:2]] == [False, True]
    assert export(run)["steps"][-1]["state"]["hosts_allowed"] == ["api.test"]


def test_a_host_is_allowed_for_the_run_as_long_as_its_giver_may_decide(owner: User) -> None:
    carol = person("carol", "view_run", "decide_interrupt")
    run = work(launched(READ, GO, AGAIN, AGAIN, AGAIN, OTHER))
    question = pending(run)
    actions.decide(question.pk, verdict="approve", by=carol, channel="web", allow_host=True)
    slice_of(run, Slice(moves=8))
    before = len(visited(run))
    assert before and not run.interrupts.filter(status="pending").exists()
    carol.user_permissions.clear()
    asked = pending(work(run))
    assert (asked.host, len(visited(run))) == ("api.test", before)
    assert asked.why.startswith("Approved by carol, who may no longer decide.")
    decide(run, "approve")
    again = pending(work(run))
    assert (again.host, len(visited(run))) == ("api.test", before + 1), "that was for one call"
    decide(run, "approve", allow_host=True)
    assert pending(work(run)).host == "other.test"
    assert actions.replay(run, by=None)[1] is None


def test_a_rule_that_comes_before_a_visit_that_needs_no_question_leaves_the_steps_in_order() -> None:
    run = work(launched(READ, GO, AGAIN))
    decide(run, "approve", allow_host=True)
    rule = json.dumps({"when": {"tool": "send_*"}, "do": "ask"})
    slice_of(run, only="decision", before=lambda: SiteRule.objects.get_or_create(rule_json=rule) and None)
    assert work(run).status == "succeeded"
    assert visited(run) == ["https://api.test/?d=1", "https://api.test/2"]
    seqs = list(run.steps.order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, run.head + 1))


@pytest.mark.parametrize(
    ("verdict", "kind", "why"),
    [
        ("reject", "visit", "Only an approval can allow a host; nothing was decided."),
        ("approve", "send", "This question is not about a host; nothing was decided."),
    ],
)
def test_a_host_is_allowed_by_nothing_but_an_approval_of_its_question(
    verdict: str, kind: str, why: str
) -> None:
    run = work(launched(READ, GO) if kind == "visit" else launch(think("send", to="bob"), FINAL))
    with pytest.raises(errors.BadDecision, match=why):
        decide(run, verdict, allow_host=True)
    assert not Decision.objects.exists()


def test_the_same_decision_with_and_without_the_host_are_two() -> None:
    run = work(launched(READ, GO))
    question = pending(run)
    decide(run, "approve")
    with pytest.raises(errors.Conflict):
        actions.decide(question.pk, verdict="approve", by=None, channel="command", allow_host=True)


# --- names ----------------------------------------------------------------------------------------------------------


def test_hosts_that_the_launch_or_the_site_names_are_not_asked_about() -> None:
    SiteHost.objects.create(host="*.site.test")
    run = launched(READ, GO, think("visit", url="https://a.site.test/"), OTHER, hosts=["API.test."])
    assert pending(work(run)).host == "other.test"
    assert visited(run) == ["https://api.test/?d=1", "https://a.site.test/"]


def test_a_host_that_the_site_names_no_more_is_asked_about_from_then_on() -> None:
    host = SiteHost.objects.create(host="api.test")
    rule = {"when": {"tool": "visit"}, "do": "ask"}
    run = work(launched(READ, GO, AGAIN, rules=[rule]))
    assert pending(run).host == ""
    host.delete()
    decide(run, "approve")
    assert pending(work(run)).host == "api.test"


def test_a_host_that_the_site_names_later_is_for_later_runs() -> None:
    run = launched(READ, GO)
    SiteHost.objects.create(host="api.test")
    assert pending(work(run)).host == "api.test"
    assert visited(work(launched(READ, GO))) == ["https://api.test/?d=1"]


def test_what_is_no_host_is_said_at_launch() -> None:
    with pytest.raises(actions.BadLaunch) as refused:
        launched(READ, hosts=["ok.test", "https://api.test/x"])
    (problem,) = refused.value.problems
    assert problem.path == "settings.hosts"
    assert problem.message.startswith("'https://api.test/x' is not a host. Write a host like example.com")


# --- copies, children -----------------------------------------------------------------------------------------------


def test_a_replay_comes_to_the_same_rows_and_a_fork_asks_about_the_host_anew(owner: User) -> None:
    run = work(launched(READ, GO, AGAIN))
    decide(run, "approve", allow_host=True)
    work(run)
    assert run.status == "succeeded"
    again, difference = actions.replay(run, by=None)
    assert difference is None
    assert again.steps.filter(facts_json__contains='"run.host.allowed"').count() == 1
    at = run.steps.filter(kind="transition", facts_json__contains='"a page"').order_by("seq").first()
    assert at is not None
    fork = actions.fork(run, at=at.seq, by=None)
    assert pending(work(fork)).host == "api.test"


def test_an_answer_that_is_kept_over_a_rollback_keeps_the_host_too() -> None:
    run = work(launched(READ, GO, AGAIN, GO, AGAIN, OTHER))
    read = run.steps.filter(kind="transition", facts_json__contains='"run.read"').get()
    decide(run, "approve", allow_host=True)
    work(run)
    actions.rewind(run, to=read.seq, by=None, answers="keep")
    run.refresh_from_db()
    work(run)
    assert run.steps.filter(live=True, facts_json__contains='"run.host.allowed"').count() == 1
    assert pending(run).host == "other.test"


@pytest.mark.parametrize("name", ["data_read", "hosts_allowed"])
def test_no_fork_sets_what_the_gate_decides_by(name: str) -> None:
    run = work(launched(READ, GO))
    read = run.steps.filter(kind="transition", facts_json__contains='"run.read"').get()
    with pytest.raises(actions.BadLaunch) as refused:
        actions.fork(run, at=read.seq, by=None, state={name: []})
    assert [problem.path for problem in refused.value.problems] == [f"state.{name}"]


def child_of(run: Run) -> Run:
    return Run.objects.get(parent=run)


def family(*before: Any, settings: dict[str, Any] | None = None, **own: Any) -> Run:
    """A run that does `before`, then calls a child that visits a host."""
    played = script(
        *before, think("agent.inner", goal="Look there: my diary says"), OTHER, FINAL, tools=PLAYED
    )
    played["subgraphs"] = {"inner": {"replies": {"decision": [GO, FINAL]}}}
    subgraphs = {"inner": {"machine": "ruled", "settings": settings or {}}}
    return work(launch(played=played, subgraphs=subgraphs, **own))


def test_a_child_begins_with_what_its_parent_has_read() -> None:
    run = family(READ)
    child = child_of(run)
    assert pending(child).why.startswith("This run has read private data (through the run that started it).")
    assert (child.steps.get(seq=1).kind, visited(child)) == ("note", [])
    assert verifying.verify(child, tool_specs(child)) is None
    fork = actions.fork(child, at=0, by=None)
    assert pending(work(fork)).host == "api.test"
    decide(child, "approve")
    work(child)
    assert pending(work(run)).host == "other.test"


def test_a_child_of_a_run_that_has_read_nothing_is_not_asked_and_its_answer_is_untrusted() -> None:
    run = family()
    assert visited(child_of(run)) == ["https://api.test/?d=1"]
    assert "untrusted content (agent.inner, step 4)" in pending(run).why


def test_a_replay_of_a_family_replays_the_child_with_what_it_began_with() -> None:
    run = family(READ, hosts=["api.test", "other.test"])
    assert run.status == "succeeded"
    again, difference = actions.replay(run, by=None)
    assert difference is None
    assert child_of(again).steps.get(seq=1).facts_json == child_of(run).steps.get(seq=1).facts_json


def test_a_child_may_contact_its_parents_hosts_or_those_that_are_its_own() -> None:
    assert visited(child_of(family(READ, hosts=["api.test"]))) == ["https://api.test/?d=1"]
    own = family(READ, settings={"hosts": []}, hosts=["api.test"])
    assert pending(child_of(own)).host == "api.test"


def test_a_run_told_as_a_script_asks_the_same_and_is_answered_the_same() -> None:
    run = work(launched(READ, GO, AGAIN))
    decide(run, "approve", allow_host=True)
    work(run)
    told = launch_of(run)
    again = work(launch(played=told["script"], **told["settings"]))
    assert (again.status, visited(again)) == ("succeeded", visited(run))


def test_the_same_reading_at_another_row_is_no_difference_between_two_runs() -> None:
    tools = {**PLAYED, "sum": {"params": {}, "effects": "none", "results": [{"output": 4}]}}
    left = work(launch(played=script(think("sum"), READ, FINAL, tools=tools)))
    right = work(launch(played=script(think("sum"), think("sum"), READ, FINAL, tools=tools)))
    assert {step.mark for step in outline_of(left)} <= {step.mark for step in outline_of(right)}


# --- earlier records ------------------------------------------------------------------------------------------------


def test_a_record_from_before_reading_was_noted_is_replayed_as_it_is() -> None:
    """Its rows have no such fact: the tool said nothing of what it reads then."""
    quiet = {name: {**tool, "reads": ""} for name, tool in PLAYED.items()}
    record = record_of(work(launch(played=script(READ, GO, FINAL, tools=quiet))))
    tools = {name: spec.model_copy(update={"reads": "private"}) for name, spec in record.tools.items()}
    replayed = made_again(record.model_copy(update={"tools": tools}))
    assert (replayed.ended, replayed.difference) == (True, None)


# --- the tool -------------------------------------------------------------------------------------------------------


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("owner")


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A web of three hosts, which the tool reaches in place of the real one."""
    moved = Answer(b"", 302, (("Location", "http://other.test/taken?d=diary"),))
    pages = {
        "page.test /": Answer(b"hello"),
        "page.test /away": moved,
        "other.test /taken?d=diary": Answer(b"got it"),
    }
    with Web(pages) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS], "other.test": [PUBLIC_ADDRESS]})
        tool = fetch_url.fetch_tool(lambda: net, trusted)
        monkeypatch.setattr(Toolbox.__init__, "__defaults__", ({**TOOLS, "fetch_url": tool}, (), ()))
        yield web


def fetching(*paths: str, first: tuple[Any, ...] = (), **settings: Any) -> Run:
    calls = [think("fetch_url", url=f"http://page.test{path}") for path in paths]
    tools = ["fetch_url", "write_file", "read_file"]
    rules = [{"when": {"tool": "write_file"}, "do": "allow"}]
    return work(launch(played=script(*first, *calls, FINAL, tools={}), tools=tools, rules=rules, **settings))


FILES = (think("write_file", name="a.txt", content="secret"), think("read_file", name="a.txt"))


def test_the_sites_own_tools_say_what_they_read_and_what_they_contact() -> None:
    specs = [tool.spec() for tool in TOOLS.values()]
    assert {spec.name: (spec.reads, spec.outward) for spec in specs if spec.reads or spec.outward} == {
        "read_file": ("private", ""),
        "list_files": ("private", ""),
        "search_files": ("private", ""),
        "search": ("private", ""),
        "sql_query": ("private", ""),
        "fetch_url": ("untrusted", "url"),
        "http_request": ("untrusted", "url"),
        "send_mail": ("", "to"),
    }


@pytest.mark.parametrize(
    ("effects", "said", "reads"),
    [
        ("none", None, ""),
        ("read", None, "private"),
        ("execute", None, "private"),
        ("read", "", ""),
        ("none", "untrusted", "untrusted"),
    ],
)
def test_a_tool_that_does_not_say_what_it_reads_counts_as_private(
    effects: Any, said: Any, reads: str
) -> None:
    assert replace(TOOLS["read_file"], effects=effects, reads=said).spec().reads == reads


def test_a_file_that_was_read_goes_to_no_page_unasked(web: Web) -> None:
    run = fetching("/?secret", first=FILES)
    assert (pending(run).host, web.asked) == ("page.test", [])
    decide(run, "reject", message="No.")
    assert work(run).status == "succeeded" and web.asked == []


def test_a_redirect_leads_to_no_host_that_would_be_asked_about(web: Web) -> None:
    run = fetching("/away", first=FILES, hosts=["page.test"])
    assert web.asked == ["page.test /away"]
    told = run.steps.filter(facts_json__contains="It was not contacted.").get()
    (fact,) = [fact for fact in json.loads(told.facts_json) if fact["kind"] == "react.tool.result"]
    assert "redirects to another host, other.test: 'http://other.test/taken?d=diary'" in fact["error"]


@pytest.mark.parametrize("settings", [{"hosts": ["page.test", "other.test"]}, {"hosts": ["*"]}])
def test_a_redirect_to_a_host_that_is_named_is_followed(web: Web, settings: dict[str, Any]) -> None:
    fetching("/away", first=FILES, **settings)
    assert web.asked == ["page.test /away", "other.test /taken?d=diary"]


def test_a_run_that_has_read_nothing_follows_where_it_is_led(web: Web) -> None:
    fetching("/away")
    assert web.asked == ["page.test /away", "other.test /taken?d=diary"]
