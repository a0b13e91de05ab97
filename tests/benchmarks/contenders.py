"""What the speed of the product is held against: each contender drives one loop, in a process of its own.

    python3 -m tests.benchmarks.contenders NAME CYCLES

DATABASE_URL names an empty database. A cycle is one model call and one tool call with a result of 1 KB, both from a
script. Prints one line of JSON: cycles, transitions, seconds, CPU seconds of this process.

`product` and `worker` are the product: inline, and claimed and driven in slices as a worker does. `django` and
`driver` write a row and a conditional update for each transition, in plain SQL, through Django's connection and
without it.
`langgraph` is a graph of two nodes on a delta channel, its fastest; it needs langgraph and its checkpointers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

RESULT = "x" * 1000
"""The tool's result: about 1 KB."""

STATE = "y" * 200
"""What a transition of the plain contenders keeps beside its payload."""

URL = os.environ.get("DATABASE_URL", "")


def script_of(cycles: int) -> dict[str, Any]:
    """A script that calls one reading tool `cycles` - 1 times, then gives the answer."""
    calls = [
        {"thought": f"I look up number {n}", "action": {"tool": "search", "args": {"q": f"number {n}"}}}
        for n in range(cycles - 1)
    ]
    answer = {"thought": "FINAL ANSWER: done", "action": None}
    search = {
        "params": {"q": "string"},
        "required": ["q"],
        "effects": "read",
        "results": [{"output": RESULT}],
    }
    return {
        "replies": {"decision": [*calls, answer]},
        "tools": {"search": search},
        "usage": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.000001},
    }


def settings_of(cycles: int) -> dict[str, Any]:
    """The settings of a `ruled` run that is allowed so many cycles."""
    return {"max_steps": cycles + 1, "ruleset": [{"type": "forbid_guessing"}, {"type": "require_tool_use"}]}


# --- the product ----------------------------------------------------------------------------------------------------


@contextmanager
def site() -> Iterator[None]:
    """The product's settings on DATABASE_URL, with its tables."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"AGENTSITE_DATA_DIR": folder, "REDIS_URL": "", "DATABASE_POOL": "0"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield


def launched(cycles: int) -> Any:
    """A run of so many cycles that nobody drives yet."""
    from runs import actions

    script, settings = script_of(cycles), settings_of(cycles)
    return actions.start_run(machine="ruled", goal="benchmark", settings=settings, owner=None, script=script)


def transitions_of(run: Any) -> int:
    """How many transitions a run that has succeeded has made."""
    run.refresh_from_db()
    assert run.status == "succeeded", (run.status, run.exit_reason)
    return int(run.steps.filter(kind="transition").count())


def product(cycles: int) -> Iterator[int]:
    """Drive one run from its first step to its last, as `launch --inline` does."""
    with site():
        from runs import driver

        run = launched(cycles)
        yield 0
        driver.drive_inline(run.pk)
        yield transitions_of(run)


def worker(cycles: int) -> Iterator[int]:
    """Claim one run and drive it in slices until it ends, as a worker does."""
    with site():
        from runs import driver

        run = launched(cycles)
        yield 0
        while run.pk in driver.drive(run.pk):
            pass
        yield transitions_of(run)


# --- plain SQL ------------------------------------------------------------------------------------------------------

INSERT = "INSERT INTO bench_step (run, seq, facts, state) VALUES ({0}, {0}, {0}, {0})"
UPDATE = "UPDATE bench_run SET head = {0} WHERE id = {0} AND epoch = {0}"
TABLES = (
    "CREATE TABLE bench_run (id integer PRIMARY KEY, head integer, epoch integer)",
    "CREATE TABLE bench_step (run integer, seq integer, facts text, state text, PRIMARY KEY (run, seq))",
    "INSERT INTO bench_run VALUES (1, 0, 1)",
)
PER_CYCLE = 5
"""Transitions of a cycle of `ruled`: thought, validate, action, observation, commit."""


def django(cycles: int) -> Iterator[int]:
    """Write each transition in plain SQL through Django's connection, in a transaction of its own."""
    with site():
        from django.db import connection, transaction

        with connection.cursor() as cursor:
            for statement in TABLES:
                cursor.execute(statement)
            yield 0
            for seq in range(1, cycles * PER_CYCLE + 1):
                with transaction.atomic():
                    cursor.execute(INSERT.format("%s"), (1, seq, RESULT, STATE))
                    cursor.execute(UPDATE.format("%s"), (seq, 1, 1))
        yield cycles * PER_CYCLE


def driver(cycles: int) -> Iterator[int]:
    """Write each transition through the database's own driver."""
    with plain_connection() as (execute, commit, mark):
        for statement in TABLES:
            execute(statement, ())
        commit()
        yield 0
        for seq in range(1, cycles * PER_CYCLE + 1):
            execute(INSERT.format(mark), (1, seq, RESULT, STATE))
            execute(UPDATE.format(mark), (seq, 1, 1))
            commit()
        yield cycles * PER_CYCLE


@contextmanager
def plain_connection() -> Iterator[tuple[Callable[..., Any], Callable[[], Any], str]]:
    """A connection's `execute` and `commit`, and its mark for a value."""
    if URL.startswith("sqlite:"):
        file = sqlite3.connect(URL.removeprefix("sqlite:///"))
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=FULL")
        yield file.execute, file.commit, "?"
        file.close()
        return
    import psycopg

    with psycopg.connect(URL) as server:
        yield server.execute, server.commit, "%s"


# --- LangGraph ------------------------------------------------------------------------------------------------------


def langgraph(cycles: int) -> Iterator[int]:
    """A graph of a model and a tool whose messages are a delta channel, each node durable before the next."""
    from langgraph.channels.delta import DeltaChannel
    from langgraph.graph import END, START, StateGraph

    def added(messages: list[Any], writes: Any) -> list[Any]:
        return [*messages, *(message for write in writes for message in write)]

    State = TypedDict("State", {"messages": Annotated[list[Any], DeltaChannel(added)], "cycle": int})  # noqa: UP013

    def model(state: Any) -> dict[str, Any]:
        n = state["cycle"]
        return {"messages": [{"by": "model", "text": f"I look up number {n}"}], "cycle": n + 1}

    def tool(state: Any) -> dict[str, Any]:
        return {"messages": [{"by": "tool", "text": RESULT}]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_conditional_edges("tool", lambda state: END if state["cycle"] >= cycles else "model")
    with checkpointer() as saver:
        app = graph.compile(checkpointer=saver)
        given = {"messages": [], "cycle": 0}
        config = {"configurable": {"thread_id": "1"}, "recursion_limit": 10 * cycles + 10}
        yield 0
        app.invoke(given, config, durability="sync")
        yield cycles * 2


@contextmanager
def checkpointer() -> Iterator[Any]:
    """LangGraph's own store on DATABASE_URL."""
    if URL.startswith("sqlite:"):
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(URL.removeprefix("sqlite:///")) as saver:
            saver.setup()
            saver.conn.execute("PRAGMA synchronous=FULL")
            yield saver
        return
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(URL) as saver:
        saver.setup()
        yield saver


CONTENDERS: dict[str, Callable[[int], Iterator[int]]] = {
    "product": product,
    "worker": worker,
    "django": django,
    "driver": driver,
    "langgraph": langgraph,
}


def main() -> None:
    """Let one contender drive its loop, and print what it took."""
    name, cycles = sys.argv[1], int(sys.argv[2])
    loop = CONTENDERS[name](cycles)
    next(loop)
    started, cpu = time.perf_counter(), time.process_time()
    transitions = next(loop)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    for _ in loop:
        pass
    print(json.dumps({"cycles": cycles, "transitions": transitions, "seconds": seconds, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
