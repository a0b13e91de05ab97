"""Spans are sent to a collector beside the runs, and a dead collector costs nothing but a line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings as site
from django.core.exceptions import ImproperlyConfigured

from agentsite import providers, telemetry
from agentsite.environment import read_environment
from agentsite.management.commands import sweeper
from agentsite.telemetry import LOOK_S, Sender, traces_url
from runs import actions
from runs.models import Run, SentSpans
from runs.reading.spans import ROOT, span_id
from runs.store import sent_spans
from tests.collector import Collector
from tests.families import INNER_ANSWER, child_of, family
from tests.launching import FINAL, launch, think
from tests.running import decide, work
from tests.stack import comes, running_site, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def to(collector: Collector, *, content: bool = False) -> Sender:
    sent_spans.begin()
    return Sender(collector.address, content=content)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_run_arrives_as_it_grows_and_nothing_twice() -> None:
    with Collector() as collector:
        sender = to(collector)
        run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
        sender.look()
        assert collector.names == ["chat script", "execute_tool search", "chat script"]
        sender.look()
        assert len(collector.spans) == 3
        decide(run, "approve")
        work(run)
        sender.look()
        assert collector.names[3:] == [
            "wait_for_person tool_call",
            "execute_tool send",
            "chat script",
            "invoke_agent ruled",
        ]
        sender.look()
        assert len(collector.requests) == 2
    root = collector.spans[-1]
    assert {span.parent_span_id for span in collector.spans[:-1]} == {root.span_id}
    assert root.span_id == span_id(run, ROOT).to_bytes(8)


def test_a_child_run_arrives_below_its_call() -> None:
    with Collector() as collector:
        sender = to(collector)
        run = work(family(INNER_ANSWER))
        sender.look()
    by_id = {span.span_id: span for span in collector.spans}
    inner = by_id[span_id(child_of(run), ROOT).to_bytes(8)]
    assert by_id[inner.parent_span_id].name == "execute_tool agent.inner"
    assert len({span.trace_id for span in collector.spans}) == 1


def test_a_dead_collector_costs_one_line_and_gets_everything_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "REQUEST_S", 0.2)
    with Collector() as gone:
        sender = to(gone)
    run = work(launch(think("search", q="a"), FINAL))
    for _ in range(3):
        sender.look()
    (line,) = lines(caplog)
    assert "no answer" in line
    assert gone.address in line
    assert SentSpans.objects.get(run=run).upto == 0
    with Collector(port=gone.port) as back:
        sender.look()
        assert back.names == ["chat script", "execute_tool search", "chat script", "invoke_agent ruled"]
    assert not sender.is_away
    assert len(lines(caplog)) == 1


def test_it_goes_on_where_an_earlier_process_was() -> None:
    with Collector() as collector:
        sender = to(collector)
        work(launch(FINAL))
        sender.look()
        work(launch(think("search", q="a"), FINAL))
        to(collector).look()
        assert collector.names == [
            *("chat script", "invoke_agent ruled"),
            *("chat script", "execute_tool search", "chat script", "invoke_agent ruled"),
        ]


def test_runs_from_before_are_passed_over_and_so_are_steps() -> None:
    work(launch(FINAL))
    waiting = work(launch(think("send", to="bob"), FINAL))
    with Collector() as collector:
        sender = to(collector)
        sender.look()
        assert not collector.requests
        decide(waiting, "approve")
        work(waiting)
        sender.look()
        assert collector.names == [
            "execute_tool send",
            "chat script",
            "invoke_agent ruled",
        ]


def test_spans_that_are_refused_do_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    with Collector(statuses=(400,)) as collector:
        sender = to(collector)
        refused, other = work(launch(FINAL)), work(launch(FINAL))
        sender.look()
        sender.look()
    assert {dict_of(span)["agentsite.run.id"] for span in collector.spans} == {str(other.pk)}
    (line,) = lines(caplog)
    assert f"run {refused.pk}" in line
    assert "HTTP 400" in line


def test_a_wrong_key_loses_no_spans(caplog: pytest.LogCaptureFixture) -> None:
    with Collector(statuses=(401, 401)) as collector:
        sender = to(collector)
        work(launch(FINAL))
        for _ in range(3):
            sender.look()
    assert collector.names == ["chat script", "invoke_agent ruled"]
    (line,) = lines(caplog)
    assert "HTTP 401" in line


def test_content_is_sent_only_with_its_own_setting() -> None:
    with Collector() as collector:
        sender = to(collector)
        work(launch(FINAL, goal="a secret goal"))
        sender.look()
        assert "secret" not in str(collector.spans)
        work(launch(FINAL, goal="a secret goal"))
        to(collector, content=True).look()
        assert "a secret goal" in str(collector.spans[2:])


def test_headers_come_from_the_standard_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k")
    with Collector() as collector:
        sender = to(collector)
        work(launch(FINAL))
        sender.look()
    assert {name.lower(): value for name, value in collector.requests[0].items()}[
        "authorization"
    ] == "Bearer k"


def test_a_fork_is_sent_without_its_copied_steps() -> None:
    with Collector() as collector:
        sender = to(collector)
        run = work(launch(think("search", q="a"), FINAL))
        sender.look()
        before = len(collector.spans)
        replayed, _ = actions.replay(run, by=None)
        sender.look()
    (root,) = collector.spans[before:]
    assert dict_of(root)["agentsite.run.id"] == str(replayed.pk)
    assert [link.span_id for link in root.links] == [span_id(run, ROOT).to_bytes(8)]


def test_the_address_of_a_collector_may_name_its_path() -> None:
    for address in ("http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"):
        assert traces_url(address) == "http://c:4318/v1/traces"
    assert traces_url("https://c/otel/") == "https://c/otel/v1/traces"


def test_an_unusable_endpoint_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSITE_OTLP_ENDPOINT", "localhost:4318")
    with pytest.raises(ImproperlyConfigured, match="AGENTSITE_OTLP_ENDPOINT: give an address such as"):
        read_environment()


def test_switched_off_nothing_of_it_is_imported() -> None:
    told = (
        "import sys, threading, django; django.setup()\n"
        "from agentsite.management.commands import sweeper\n"
        "sweeper.send_spans(threading.Event())\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter',"
        " 'agentsite.telemetry', 'runs.reading.otlp'))])"
    )
    out = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_without_its_packages_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(site, "OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "agentsite.telemetry", None)
    monkeypatch.delattr("agentsite.telemetry", raising=False)
    sweeper.send_spans(threading.Event())
    (line,) = lines(caplog)
    assert "add_provider otel" in line
    monkeypatch.setattr(providers, "OTEL_PACKAGES", ("not_a_library.sdk",))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (sentence,) = providers.add_missing([providers.OTEL])
    assert "-r requirements-otel.lock" in sentence
    assert providers.lock_of(providers.OTEL).is_file()


def test_the_marks_of_a_run_go_with_it() -> None:
    run = work(launch(FINAL))
    sent_spans.begin()
    assert SentSpans.objects.get(run=run).whole
    Run.objects.filter(pk=run.pk).delete()
    assert not SentSpans.objects.exists()


@pytest.mark.stack
def test_a_whole_site_sends_the_spans_of_a_run(tmp_path: Path) -> None:
    with (
        Collector() as collector,
        running_site(tmp_path / "data", {"AGENTSITE_OTLP_ENDPOINT": collector.address}) as own,
    ):
        script = json.dumps({"replies": {"decision": [FINAL]}})

        def another_run_arrives() -> bool:
            """Launch one: those that end before the scheduler's first look are passed over."""
            own.manage("launch", "--machine", "ruled", "--goal", "tides", "--script", script, "--wait")
            return comes(lambda: "invoke_agent ruled" in collector.names, LOOK_S + 1)

        wait_for(another_run_arrives)
        assert "chat script" in collector.names


def dict_of(span: object) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}  # type: ignore[attr-defined]
