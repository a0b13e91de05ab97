"""Tools that the environment names, and what a tool says of a call that was cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs.adapters.tool import Arguments, NotHappened, Place, Result, Tool
from runs.adapters.toolbox import MayHaveHappened, Toolbox
from runs.adapters.tools import BadToolName, tools_named
from runs.engine.effects import Failed, ToolCall, ToolReturned


class Letter(Arguments):
    """Who gets one."""

    to: str


def post(arguments: Letter, place: Place) -> Result:
    return Result({"to": arguments.to, "key": place.key})


POST = Tool("post", "Posts a letter.", Letter, "send", False, 1, post)
BOTH = [POST, Tool("ring", "Rings.", Letter, "send", False, 1, post)]
NUMBER = 5


def test_tools_are_named_by_module_and_name() -> None:
    assert tools_named("") == ()
    assert tools_named(f"{__name__}:POST") == (POST,)
    assert [tool.name for tool in tools_named(f"{__name__}:BOTH, {__name__}:POST")] == [
        "post",
        "ring",
        "post",
    ]


@pytest.mark.parametrize(
    "name", ["nowhere.to.be.found:X", f"{__name__}:NOTHING", f"{__name__}:NUMBER", "", "os"]
)
def test_what_is_no_tool_is_said(name: str) -> None:
    if not name:
        assert tools_named(name) == ()
        return
    with pytest.raises(BadToolName, match="AGENTSITE_TOOLS") as caught:
        tools_named(name)
    assert name in str(caught.value)


def box(folder: Path, **changes: Any) -> Toolbox:
    tool = Tool(**({**POST.__dict__} | changes))
    return Toolbox(["post"], folder, None, (), tools={"post": tool})


CALL = ToolCall(tool="post", args={"to": "bob"}, effects="send")


def breaks(arguments: Letter, place: Place) -> Result:
    raise TimeoutError("no answer")


def refuses(arguments: Letter, place: Place) -> Result:
    raise ConnectionRefusedError("nobody is there")


def test_a_deed_that_was_cut_off_may_have_happened(tmp_path: Path) -> None:
    with pytest.raises(MayHaveHappened):
        box(tmp_path, run=breaks).call(CALL, 1, "k")


def test_what_has_surely_not_begun_or_may_be_repeated_is_tried_again(tmp_path: Path) -> None:
    for changes in ({"run": refuses}, {"run": breaks, "idempotent": True}):
        failed = box(tmp_path, **changes).call(CALL, 1, "k")
        assert isinstance(failed, Failed) and failed.blame == "transient"
    read = CALL.model_copy(update={"effects": "read"})
    failed = box(tmp_path, run=breaks, effects="read").call(read, 1, "k")
    assert isinstance(failed, Failed) and failed.blame == "transient"


def test_a_tool_is_asked_whether_a_call_happened(tmp_path: Path) -> None:
    def happened(arguments: Letter, place: Place) -> Result | NotHappened | None:
        if place.key == "yes":
            return Result("posted")
        return NotHappened.FOR_SURE if place.key == "no" else None

    asked = box(tmp_path, happened=happened)
    assert asked.happened(CALL, "yes") == ToolReturned(value="posted")
    assert asked.happened(CALL, "no") is NotHappened.FOR_SURE
    assert asked.happened(CALL, "perhaps") is None
    assert box(tmp_path).happened(CALL, "yes") is None
    assert box(tmp_path, happened=breaks).happened(CALL, "yes") is None
    assert asked.can_ask(CALL) and not box(tmp_path).can_ask(CALL)
