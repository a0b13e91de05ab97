"""The request tool: any method to a public server, never redirected, and only sent where it may be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from pydantic import ValidationError

from runs.adapters.public_web import UrlRefused
from runs.adapters.tool import Place, Tool, ToolError
from runs.adapters.toolbox import MayHaveHappened, Toolbox
from runs.adapters.tools import TOOLS
from runs.adapters.tools.http_request import MAX_CHARACTERS, HeaderRefused, request_tool
from runs.adapters.wire import trusted
from runs.engine.effects import Failed, ToolReturned
from runs.engine.tools import check_arguments
from tests.adapters.pages import PUBLIC_ADDRESS, Answer, Dripping, TableNet, Web

JSON = (("Content-Type", "application/json"), ("X-Left", "9"))
API = "http://api.test/orders"


def tool_in(web: Web, names: Mapping[str, list[str]] | None = None, deadline_s: float = 5) -> Tool:
    net = TableNet(web, {"api.test": [PUBLIC_ADDRESS]} if names is None else names)
    return request_tool(lambda: net, trusted, deadline_s)


def request(web: Web, method: str, url: str = API, **more: Any) -> Any:
    tool = tool_in(web)
    arguments = tool.arguments.model_validate({"method": method, "url": url, **more})
    return tool.run(arguments, Place(Path("none"), "key", tool.deadline_s)).value


def test_a_request_is_sent_whole_and_its_answer_comes_back() -> None:
    with Web({"api.test /orders": Answer(b'{"id": 7}', 201, JSON)}) as web:
        result = request(web, "POST", body='{"n": 1}', headers={"Authorization": "Bearer x"})
    assert (result["status"], result["text"], result["cut"]) == (201, '{"id": 7}', False)
    assert result["headers"]["x-left"] == "9"
    (sent,) = web.received
    assert (sent.method, sent.body) == ("POST", b'{"n": 1}')
    assert (sent.headers["Authorization"], sent.headers["Content-Type"]) == ("Bearer x", "application/json")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method_is_sent_as_it_is(method: str) -> None:
    with Web({"api.test /orders": Answer(b"ok")}) as web:
        assert request(web, method)["status"] == 200
    assert [sent.method for sent in web.received] == [method]


def test_a_text_goes_as_text_unless_a_header_says_otherwise() -> None:
    with Web({"api.test /orders": Answer(b"ok")}) as web:
        request(web, "POST", body="Grüße")
        request(web, "POST", body="a=b", headers={"content-type": "application/x-www-form-urlencoded"})
    kinds = [sent.headers.get("Content-Type", sent.headers.get("content-type")) for sent in web.received]
    assert kinds == ["text/plain; charset=utf-8", "application/x-www-form-urlencoded"]
    assert web.received[0].body == "Grüße".encode()


@pytest.mark.parametrize("status", [302, 404, 422, 429, 503])
def test_whatever_the_status_is_it_is_the_result_and_no_redirect_is_followed(status: int) -> None:
    answer = Answer(b"why", status, (("Location", "http://other.test/"), ("Content-Type", "text/plain")))
    with Web({"api.test /orders": answer}) as web:
        result = request(web, "POST")
    assert (result["status"], result["text"], len(web.asked)) == (status, "why", 1)
    assert result["headers"]["location"] == "http://other.test/"


def test_what_is_no_text_is_left_out_and_said() -> None:
    with Web({"api.test /orders": Answer(b"\x89PNG", headers=(("Content-Type", "image/png"),))}) as web:
        result = request(web, "GET")
    assert (result["status"], result["text"]) == (200, "")
    assert "image/png" in result["unread"]


def test_a_long_answer_is_cut() -> None:
    with Web({"api.test /orders": Answer(b"x" * (MAX_CHARACTERS + 1))}) as web:
        result = request(web, "GET")
    assert (len(result["text"]), result["cut"]) == (MAX_CHARACTERS, True)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost/", "http://169.254.169.254/", "file:///etc/passwd"]
)
def test_no_private_address_is_contacted(url: str) -> None:
    with Web({}) as web:
        tool = tool_in(
            web, {"127.0.0.1": ["127.0.0.1"], "localhost": ["::1"], "169.254.169.254": ["169.254.169.254"]}
        )
        with pytest.raises((UrlRefused, ValidationError)):
            tool.run(
                tool.arguments.model_validate({"method": "GET", "url": url}), Place(Path("none"), "key", 5)
            )
    assert web.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "other.test"},
        {"content-length": "1"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"X-A": "b\r\nHost: c"},
        {"X A": "b"},
        {"X-A": "Grüße"},
    ],
)
def test_a_header_that_would_change_the_request_is_refused(headers: dict[str, str]) -> None:
    with Web({}) as web, pytest.raises(HeaderRefused) as caught:
        request(web, "GET", headers=headers)
    assert web.received == []
    assert isinstance(caught.value, ToolError)


def test_a_method_that_only_reads_takes_no_body() -> None:
    with Web({}) as web, pytest.raises(ToolError, match="takes no body"):
        request(web, "GET", body="x")


def test_an_unknown_method_or_too_many_headers_are_no_arguments() -> None:
    arguments = TOOLS["http_request"].arguments
    for wrong in ({"method": "TRACE", "url": API}, {"method": "GET", "url": API, "headers": {"a": 1}}):
        with pytest.raises(ValidationError):
            arguments.model_validate(wrong)


# --- effects ------------------------------------------------------------------------------------------------


def test_reading_needs_no_approval_and_everything_else_sends() -> None:
    spec = TOOLS["http_request"].spec()
    effects = {method: spec.effects_with({"method": method}) for method in ("GET", "HEAD", "POST", "DELETE")}
    assert effects == {"GET": "read", "HEAD": "read", "POST": "send", "DELETE": "send"}
    assert (spec.outward, spec.reads, spec.idempotent) == ("url", "untrusted", False)
    assert list(spec.parameters["properties"]) == ["method", "url", "headers", "body"]
    assert [fault.param for fault in check_arguments(spec, {"url": API}).faults] == ["method"]


def called(tool: Tool, folder: Path, method: str) -> ToolReturned | Failed:
    box = Toolbox([tool.name], folder, None, [], {tool.name: tool})
    return box.call(tool.spec().call_with({"method": method, "url": API}), 1, "key")


def test_a_request_that_was_cut_off_may_have_happened_and_one_that_reads_is_tried_again(
    tmp_path: Path,
) -> None:
    with Web({"api.test /orders": Dripping()}) as web:
        tool = tool_in(web, deadline_s=0.3)
        with pytest.raises(MayHaveHappened):
            called(tool, tmp_path, "POST")
        failed = called(tool, tmp_path, "GET")
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


class Shut(TableNet):
    """A network on which nothing can be reached."""

    def connect(self, address: str, port: int, wait_s: float) -> httpcore2.NetworkStream:
        raise httpcore2.ConnectError("refused")


def test_what_was_surely_not_sent_is_tried_again(tmp_path: Path) -> None:
    with Web({}) as web:
        for net in (Shut(web, {"api.test": [PUBLIC_ADDRESS]}), TableNet(web, {})):
            failed = called(request_tool(partial(next, repeat(net)), trusted), tmp_path, "POST")
            assert isinstance(failed, Failed)
            assert failed.blame == "transient"
    assert web.received == []
