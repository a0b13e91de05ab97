"""A message in the queue that is no hint is logged and dropped; the worker goes on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import redis

from agentsite.transport import hint_at
from runs.tasks import drive_run
from tests.stack import running_site, wait_for

QUEUE = "agentsite"


def with_body(body: object) -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return json.dumps(hint_at(1, QUEUE) | {"body": base64.b64encode(text.encode()).decode()})


def called(*args: object) -> str:
    return with_body([args, {}, {}])


def changed(**parts: Any) -> str:
    return json.dumps(hint_at(1, QUEUE) | parts)


MALFORMED: dict[str, str | bytes] = {
    "no JSON": "hello",
    "nothing": "",
    "bytes": b"\xff\xfe\x00",
    "deep": "[" * 100_000,
    "digits": "9" * 5_000,
    "a type that can't be made": '{"__type__": "datetime", "__value__": 5}',
    **{text: text for text in ("{}", "[]", "5", "null", '"x"')},
    "no headers": changed(headers=None),
    "headers in a list": changed(headers=[1]),
    "no task": changed(headers={}),
    "an unknown task": changed(headers={"task": "os.system", "id": "x"}),
    "a task in a list": changed(headers={"task": ["x"]}),
    "no body": changed(body=None),
    "a body that is no base64": changed(body="é%%"),
    "a body that is no JSON": with_body("hello"),
    "a body of another form": with_body({"a": 1}),
    "a short body": with_body([[1]]),
    "a deep body": with_body("[" * 100_000),
    "keywords": with_body([[1], {"nope": 1}, {}]),
    "no argument": called(),
    "two arguments": called(1, 2),
    "a text": called("1"),
    "a number that no run can have": called(10**30),
    "below": called(-1),
    "a fraction": called(1.5),
    "a truth": called(True),
    "a list": called([1]),
}

SCRIPT = {"replies": {"decision": [{"thought": "FINAL ANSWER: 42", "action": None}]}}


@pytest.mark.stack
def test_messages_that_are_no_hints_are_dropped_and_the_worker_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with running_site(tmp_path / "data") as site:
        worker, log = site.pids["worker"], site.data_dir / "logs" / "worker.log"
        with redis.Redis(unix_socket_path=str(site.data_dir / "broker" / "valkey.sock")) as broker:
            for message in MALFORMED.values():
                broker.lpush(QUEUE, message)
            told = site.manage(
                *("launch", "--machine", "ruled", "--goal", "x", "--script", str(script), "--wait", "--json")
            )
            assert json.loads(told)["run"]["answer"] == "42"
            wait_for(lambda: log.read_text().count("is no hint and is dropped") == len(MALFORMED))
            assert (broker.llen(QUEUE), broker.hlen("unacked")) == (0, 0)
        assert site.pids["worker"] == worker


def test_the_transport_knows_the_task_by_its_name() -> None:
    assert hint_at(1, QUEUE)["headers"]["task"] == drive_run.name
