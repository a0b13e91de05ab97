"""The time, in a zone by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pydantic import Field

from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError


class NowArguments(Arguments):
    """The zone."""

    zone: str = Field(default="UTC", max_length=64, description="A zone such as Europe/Berlin; else UTC.")


class ZoneUnknown(ToolError):
    """No zone of that name."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        super().__init__(f"There is no time zone {zone!r}; give one such as Europe/Berlin or UTC.")


def read_clock(zone: str, moment: datetime) -> dict[str, str]:
    """Return `moment` as a clock in `zone` shows it."""
    try:
        there = moment.astimezone(ZoneInfo(zone) if zone != "UTC" else UTC)
    except (KeyError, ValueError, OSError):
        raise ZoneUnknown(zone) from None
    return {"time": there.isoformat(timespec="seconds"), "weekday": _WEEKDAYS[there.weekday()], "zone": zone}


# Not strftime: its words follow the machine's locale.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def now_tool(clock: Callable[[], datetime]) -> Tool:
    """Return the tool that reads `clock`."""

    def run(arguments: NowArguments, place: Place) -> Result:
        return Result(read_clock(arguments.zone, clock()))

    return Tool(
        name="now",
        description="Gives the date, time and weekday now.",
        arguments=NowArguments,
        effects="read",
        reads="",
        idempotent=True,
        cacheable=False,
        deadline_s=2,
        run=run,
    )


TOOL = now_tool(lambda: datetime.now(UTC))
