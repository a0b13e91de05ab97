"""A machine's declared graph as SVG: nodes in a column, edges that skip or return in lanes beside it.

The layout is computed from the declaration once; the run page lights the current node and counts the visits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runs.engine.machine import END, Edge, Machine
from runs.machines import CATALOGUE
from runs.reading.words import spoken

NODE_WIDTH = 124
NODE_HEIGHT = 30
ROW = 62
LANE = 22
TOP = 8
LONG_LABEL = 14
"""Characters of a label beside a lane; a longer one is replaced by the number of edges."""


@dataclass(frozen=True)
class Box:
    """A node's place: its middle."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Arrow:
    """The path of one or more edges, and its label's place; `turned` labels run along a lane."""

    edges: tuple[Edge, ...]
    path: str
    label_x: float
    label_y: float
    turned: bool


@dataclass(frozen=True)
class Layout:
    """The whole drawing."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True)
class _Lane:
    edges: tuple[Edge, ...]
    first: int
    last: int
    side: int
    """-1: left, for edges that return; 1: right, for edges that skip nodes."""
    number: int


def order_of(machine: Machine) -> list[str]:
    """Return the nodes from the first on, each after the one it is first reached from, the end last."""
    order: list[str] = []

    def visit(node: str) -> None:
        if node in order or node == END:
            return
        order.append(node)
        for edge in machine.edges:
            if edge.source == node:
                visit(edge.target)

    visit(machine.start)
    return [*order, END]


def ways_of(machine: Machine) -> dict[tuple[str, str], tuple[Edge, ...]]:
    """Return the edges by source and target: those that share both are drawn as one arrow."""
    ways: dict[tuple[str, str], tuple[Edge, ...]] = {}
    for edge in machine.edges:
        way = (edge.source, edge.target)
        ways[way] = (*ways.get(way, ()), edge)
    return ways


@cache
def layout_of(machine_name: str) -> Layout:
    """Return the drawing of a machine, computed once."""
    machine = CATALOGUE[machine_name]
    order = order_of(machine)
    place = {name: index for index, name in enumerate(order)}
    ways = ways_of(machine)
    lanes = _lanes(ways, place)
    left = 1 + max((lane.number + 1 for lane in lanes if lane.side < 0), default=0)
    right = 1 + max((lane.number + 1 for lane in lanes if lane.side > 0), default=0)
    middle = left * LANE + NODE_WIDTH / 2
    boxes = tuple(Box(name, middle, TOP + NODE_HEIGHT / 2 + index * ROW) for index, name in enumerate(order))
    arrows = [_lane_arrow(lane, boxes) for lane in lanes]
    laned = {lane.edges for lane in lanes}
    arrows += [
        _straight(edges, boxes[place[source]]) for (source, _), edges in ways.items() if edges not in laned
    ]
    width = left * LANE + NODE_WIDTH + right * LANE
    return Layout(width, TOP * 2 + NODE_HEIGHT + (len(order) - 1) * ROW, boxes, tuple(arrows))


def _lanes(ways: Mapping[tuple[str, str], tuple[Edge, ...]], place: Mapping[str, int]) -> list[_Lane]:
    """Return a lane for each way that is not a step to the next node; short ones nearest to the column."""
    wanted = [way for way in ways if place[way[1]] != place[way[0]] + 1]
    wanted.sort(key=lambda way: abs(place[way[1]] - place[way[0]]))
    lanes: list[_Lane] = []
    for source, target in wanted:
        side = -1 if place[target] <= place[source] else 1
        first, last = sorted((place[source], place[target]))
        taken = {
            lane.number for lane in lanes if lane.side == side and lane.first <= last and first <= lane.last
        }
        number = next(index for index in range(len(wanted)) if index not in taken)
        lanes.append(_Lane(ways[source, target], first, last, side, number))
    return lanes


def _straight(edges: tuple[Edge, ...], box: Box) -> Arrow:
    start, end = box.y + NODE_HEIGHT / 2, box.y + ROW - NODE_HEIGHT / 2
    return Arrow(edges, f"M{box.x} {start}V{end - 5}", box.x + 7, (start + end) / 2 + 3, turned=False)


def _lane_arrow(lane: _Lane, boxes: tuple[Box, ...]) -> Arrow:
    source = next(box for box in boxes if box.name == lane.edges[0].source)
    target = next(box for box in boxes if box.name == lane.edges[0].target)
    edge_x = source.x + lane.side * NODE_WIDTH / 2
    lane_x = edge_x + lane.side * LANE * (lane.number + 1)
    # Leaving and arriving edges of one node stand apart.
    nudge = 6 if lane.side < 0 else -6
    y1, y2 = source.y + nudge, target.y - nudge
    down = 1 if y2 > y1 else -1
    bend = min(8, abs(y2 - y1) / 2)
    path = (
        f"M{edge_x} {y1}H{lane_x - lane.side * bend}Q{lane_x} {y1} {lane_x} {y1 + down * bend}"
        f"V{y2 - down * bend}Q{lane_x} {y2} {lane_x - lane.side * bend} {y2}H{edge_x + lane.side * 5}"
    )
    # Turned text grows to the left of its place.
    return Arrow(lane.edges, path, lane_x - 4, (y1 + y2) / 2, turned=True)


def graph_svg(machine_name: str, current: str = "", visits: tuple[tuple[str, int], ...] = ()) -> SafeString:
    """Return the machine's graph; `current` is lit, `visits` are counted."""
    layout = layout_of(machine_name)
    counted = dict(visits)
    return format_html(
        '<svg class="graph" viewBox="0 0 {} {}" role="img" aria-label="{}" data-graph="{}">'
        '<defs><marker id="graph-tip-{}" class="graph__tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>{}{}</svg>',
        layout.width,
        layout.height,
        _description(machine_name, current),
        machine_name,
        machine_name,
        format_html_join("", "{}", ((_arrow(arrow, machine_name),) for arrow in layout.arrows)),
        format_html_join("", "{}", ((_box(box, current, counted),) for box in layout.boxes)),
    )


def _description(machine_name: str, current: str) -> str:
    now = f", now at {spoken(current)}" if current else ""
    return f"The graph of {machine_name}{now}"


def _arrow(arrow: Arrow, machine_name: str) -> SafeString:
    first = arrow.edges[0]
    turn = format_html(' transform="rotate(-90 {} {})"', arrow.label_x, arrow.label_y) if arrow.turned else ""
    words = [f"{spoken(edge.name)} ({edge.when})" if edge.when else spoken(edge.name) for edge in arrow.edges]
    names = ", ".join(spoken(edge.name) for edge in arrow.edges)
    label = f"{len(arrow.edges)}×" if arrow.turned and len(names) > LONG_LABEL else names
    return format_html(
        '<g class="graph__edge" data-source="{}" data-target="{}"><title>{}</title>'
        '<path d="{}" marker-end="url(#graph-tip-{})"/><text class="graph__label{}" x="{}" y="{}"{}>{}</text></g>',
        first.source,
        first.target,
        f"{spoken(first.source)} → {spoken(first.target)}: {', '.join(words)}",
        arrow.path,
        machine_name,
        " graph__label--turned" if arrow.turned else "",
        arrow.label_x,
        arrow.label_y,
        turn,
        label,
    )


def _box(box: Box, current: str, visits: Mapping[str, int]) -> SafeString:
    count = visits.get(box.name, 0)
    half_width, half_height = NODE_WIDTH / 2, NODE_HEIGHT / 2
    badge: str | SafeString = ""
    if count:
        badge = format_html(
            '<text class="graph__count" x="{}" y="{}">{}</text>', box.x + half_width - 7, box.y + 4, count
        )
    return format_html(
        '<g class="graph__node" data-node="{}" data-current="{}" data-visited="{}">'
        '<rect x="{}" y="{}" width="{}" height="{}" rx="{}"/>'
        '<text class="graph__name" x="{}" y="{}">{}</text>{}</g>',
        box.name,
        "true" if box.name == current else "false",
        "true" if count else "false",
        box.x - half_width,
        box.y - half_height,
        NODE_WIDTH,
        NODE_HEIGHT,
        half_height if box.name == END else 7,
        box.x - half_width + 10,
        box.y + 4,
        spoken(box.name),
        badge,
    )
