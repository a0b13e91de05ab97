"""A run as spans by OpenTelemetry's conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes

from runs import actions
from runs.adapters.tool import NotHappened
from runs.models import Exchange, ModelProfile, Run
from runs.reading.otlp import as_json, readable
from runs.reading.spans import ROOT, UNANSWERED, Span, family_of, span_id, spans_of
from tests.commands import refused, told
from tests.compacting import compacted_run
from tests.families import INNER_ANSWER, asking_family, child_of, family
from tests.launching import ALLOW, FINAL, busy_run, launch, play, think
from tests.running import decide, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = {
    value
    for module in (gen_ai_attributes, error_attributes)
    for name, value in vars(module).items()
    if name.isupper()
}


def named(spans: list[Span], begin: str) -> list[Span]:
    return [span for span in spans if span.name.startswith(begin)]


def exported(run: Run, *more: str) -> list[dict[str, Any]]:
    """The spans of the printed OTLP request."""
    request = json.loads(told("export", str(run.pk), "--format", "otlp", *more)[0])
    ((resource,),) = [request["resourceSpans"]]
    ((scope,),) = [resource["scopeSpans"]]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def test_a_run_is_an_agent_with_its_chats_tools_and_waits() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    decide(run, "approve")
    spans = spans_of(work(run))
    assert [span.name for span in spans] == [
        "chat script",
        "execute_tool search",
        "chat script",
        "wait_for_person tool_call",
        "execute_tool send",
        "chat script",
        "invoke_agent ruled",
    ]
    *calls, root = spans
    assert root.parent is None
    assert {call.parent for call in calls} == {root.ref}
    assert {span.ref.trace for span in spans} == {root.ref.trace}
    assert len({span.ref for span in spans}) == len(spans)
    assert all(root.start <= call.start <= call.end for call in calls)
    assert root.end == run.ended_at
    assert not any(span.error for span in spans)


def test_each_span_has_its_conventional_attributes() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    decide(run, "approve")
    spans = spans_of(work(run))
    chat = named(spans, "chat")[0].attributes
    assert (chat["gen_ai.operation.name"], chat["gen_ai.provider.name"]) == ("chat", "script")
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (100, 20)
    assert chat["gen_ai.response.finish_reasons"] == ("stop",)
    (tool,) = named(spans, "execute_tool")
    asked = Exchange.objects.get(run=run, kind="tool_call")
    assert tool.attributes["gen_ai.tool.name"] == "send"
    assert tool.attributes["gen_ai.tool.call.id"] == asked.key
    (wait,) = named(spans, "wait")
    assert wait.attributes["agentsite.decision.verdict"] == "approve"
    assert wait.attributes["agentsite.decision.channel"] == "command"
    assert wait.attributes["agentsite.question.tool"] == "send"
    assert wait.end > wait.start
    for span in spans:
        foreign = {name for name in span.attributes if not name.startswith("agentsite.")}
        assert foreign <= NAMES


def test_a_span_read_again_is_the_same() -> None:
    run = busy_run()
    assert spans_of(run, content=True) == spans_of(Run.objects.get(pk=run.pk), content=True)


def test_a_failed_tool_and_a_failed_run_say_so() -> None:
    run = play("ruled", think("broken"), {"$error": "fatal"})
    spans = spans_of(run)
    (tool,) = named(spans, "execute_tool")
    assert tool.error == "recoverable"
    assert named(spans, "chat")[-1].error == "fatal"
    assert spans[-1].error == run.exit_reason
    assert not any(span.message for span in spans)
    assert "the server said no" in named(spans_of(run, content=True), "execute_tool")[0].message
    assert readable(tool).attributes["error.type"] == tool.error  # type: ignore[index]


def test_a_call_that_a_rule_or_a_person_answered_is_no_call() -> None:
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL))
    decide(run, "reject", message="no")
    decide(work(run), "respond", message="sent already")
    spans = spans_of(work(run))
    assert not named(spans, "execute_tool")
    verdicts = [span.attributes["agentsite.decision.verdict"] for span in named(spans, "wait")]
    assert verdicts == ["reject", "respond"]


def test_content_is_left_out_unless_asked_for() -> None:
    run = work(launch(think("search", q="high water"), FINAL, goal="secret goal"))
    plain = told("export", str(run.pk), "--format", "otlp")[0]
    assert not any(word in plain for word in ("secret goal", "high water", "three results", "FINAL"))
    whole = told("export", str(run.pk), "--format", "otlp", "--content")[0]
    assert all(word in whole for word in ("secret goal", "high water", "three results", "FINAL"))
    spans = spans_of(run, content=True)
    (message,) = json.loads(str(named(spans, "chat")[-1].attributes["gen_ai.output.messages"]))
    assert message["role"] == "assistant"
    assert "FINAL ANSWER: 42" in message["parts"][0]["content"]


def test_child_runs_hang_below_their_call() -> None:
    run = work(family(INNER_ANSWER))
    child = child_of(run)
    spans = {span["spanId"]: span for span in exported(run)}
    assert {span["traceId"] for span in spans.values()} == {f"{spans_of(run)[-1].ref.trace:032x}"}
    inner = spans[f"{span_id(child, ROOT):016x}"]
    call = spans[inner["parentSpanId"]]
    assert call["name"] == "execute_tool agent.inner"
    assert spans[call["parentSpanId"]]["name"] == "invoke_agent ruled"
    assert list(family_of(run)) == [run, child]


def test_copied_steps_are_not_sent_as_fresh_calls() -> None:
    run = work(launch(think("search", q="a"), FINAL))
    fork = actions.fork(run, at=transitions(run, "continue")[0], by=None)
    spans = spans_of(work(fork))
    assert [span.name for span in spans[:-1]] == ["chat script"]
    assert spans[-1].link == spans_of(run)[-1].ref
    assert spans[-1].ref.trace != spans_of(run)[-1].ref.trace
    replayed, _ = actions.replay(run, by=None)
    assert [span.name for span in spans_of(replayed)] == ["invoke_agent ruled"]


def test_a_model_is_named_with_its_provider() -> None:
    profile = ModelProfile.objects.create(
        name="Claude", kind="anthropic", model_id="claude-5", enabled=True, script_json=""
    )
    run = work(launch(FINAL))
    Run.objects.filter(pk=run.pk).update(model=profile.name)
    (chat,) = named(spans_of(run), "chat")
    assert chat.name == "chat claude-5"
    assert chat.attributes["gen_ai.provider.name"] == "anthropic"


def test_an_open_question_has_no_span_until_it_is_answered_or_the_run_ends() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    assert pending(run)
    assert not named(spans_of(run), "wait")
    actions.abort(run, by=None)
    (wait,) = named(spans_of(work(run)), "wait")
    assert "agentsite.decision.verdict" not in wait.attributes
    assert not wait.error


def test_only_what_came_after_a_step_is_read() -> None:
    run = work(launch(think("search", q="a"), FINAL))
    all_of_it = spans_of(run)
    assert spans_of(run, after=all_of_it[0].seq) == all_of_it[1:]


def test_json_and_protobuf_say_the_same() -> None:
    spans = spans_of(busy_run(), content=True)
    (resource,) = encode_spans([readable(span) for span in spans]).resource_spans
    binary = resource.scope_spans[0].spans
    text = json.loads(as_json(spans))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["spanId"] for span in text] == [span.span_id.hex() for span in binary]
    assert [int(span["startTimeUnixNano"]) for span in text] == [span.start_time_unix_nano for span in binary]
    assert [{one["key"] for one in span["attributes"]} for span in text] == [
        {one.key for one in span.attributes} for span in binary
    ]


def test_options_that_do_not_fit_are_refused() -> None:
    run = launch(FINAL)
    assert "needs --format otlp" in refused("export", str(run.pk), "--content")


def test_a_call_lost_with_its_worker_is_told_apart_from_the_one_made_anew() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    assert not named(spans_of(run), "execute_tool")
    slice_of(run, far_side=NotHappened.FOR_SURE)
    lost, anew = named(spans_of(run), "execute_tool")
    assert (lost.error, anew.error) == (UNANSWERED, "")
    assert lost.end <= anew.start
    assert lost.attributes["gen_ai.tool.call.id"] != anew.attributes["gen_ai.tool.call.id"]


def test_a_run_of_a_machine_that_is_gone_still_has_its_spans() -> None:
    run = work(launch(think("search", q="a"), FINAL))
    plain = [span.name for span in spans_of(run)]
    Run.objects.filter(pk=run.pk).update(machine="gone")
    assert [span.name for span in spans_of(run, content=True)] == [*plain[:-1], "invoke_agent gone"]


@pytest.mark.parametrize("machine", ["contract", "checklist", "planned", "ruled"])
def test_every_machine_has_spans_with_content(machine: str) -> None:
    run = work(asking_family(machine, "ruled"))
    assert run.finished
    spans = [span for one in family_of(run) for span in spans_of(one, content=True)]
    assert {span.name.split()[0] for span in spans} == {"invoke_agent", "chat", "execute_tool"}
    ids = {span.ref for span in spans}
    assert [span.parent for span in spans if span.parent not in ids] == [None]


def test_a_summary_is_a_model_call() -> None:
    run = compacted_run()
    roles = [span.attributes["agentsite.role"] for span in named(spans_of(run, content=True), "chat")]
    assert "summary" in roles


def test_calls_of_a_script_hang_below_its_call() -> None:
    pytest.importorskip("pydantic_monty")
    code = 'search(q="a")\nsend(to="bob")'
    run = work(launch(think("python", code=code), FINAL, tools=["python"]))
    decide(run, "approve")
    spans = spans_of(work(run))
    assert run.status == "succeeded"
    python, *resumed = named(spans, "execute_tool python")
    inner = [*named(spans, "execute_tool search"), *named(spans, "execute_tool send"), *named(spans, "wait")]
    assert len(inner) == 3
    assert python.parent == spans[-1].ref
    assert {span.parent for span in (*inner, *resumed)} == {python.ref}
    assert not any(span.error for span in spans)
