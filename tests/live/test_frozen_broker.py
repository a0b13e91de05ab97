"""A person waits for no broker: what they do is answered at once, and its hint follows once the broker listens."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import redis
from django.conf import settings as site
from django.test import Client
from django.urls import reverse

from agentsite.celery import app
from agentsite.environment import ROOT
from agentsite.transport import run_in
from runs import actions, hints
from runs.models import Run
from tests.cast import cast_member, signed_in
from tests.commands import database_url
from tests.launching import ALL_WELL, launch, run_with_letter, script
from tests.live.valkey import Valkey
from tests.running import pending, transitions
from tests.stack import LONGEST_S, own_environ, wait_for

pytestmark = [pytest.mark.django_db(transaction=True)]

AT_ONCE_S = 1.5
"""Less than whoever waits for the broker waits; more than a deed takes on a busy core."""


@pytest.fixture
def broker(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> Iterator[Valkey]:
    """The broker of a site, which takes this process's hints."""
    monkeypatch.setitem(app.conf, "broker_url", f"redis+socket://{valkey.socket}")
    app._after_fork()  # it forgets its connections
    hints.hint(1)
    wait_for(lambda: hinted(valkey))
    yield valkey
    valkey.thaw()
    hints.flush(10)
    monkeypatch.undo()
    app._after_fork()


def hinted(broker: Valkey) -> list[int]:
    """Return the runs that the queue names, in the order in which they were sent."""
    with redis.Redis(unix_socket_path=str(broker.socket)) as line:
        found = line.lrange(site.CELERY_TASK_DEFAULT_QUEUE, 0, -1)
    return [run_in(json.loads(message)) for message in reversed(found)]


def by_page(name: str) -> Callable[[Client, Run], int]:
    """A deed of a person on the run's page; the run that wants a worker then."""

    def press(client: Client, run: Run) -> int:
        assert client.post(reverse(name, args=[run.pk])).status_code == 302
        return run.pk

    return press


def decide(client: Client, run: Run) -> int:
    question = pending(run)
    form = {"revision": question.revision, "fingerprint": question.fingerprint, "verdict": "reject"}
    assert client.post(reverse("decision", args=[question.pk]), form).status_code == 302
    return run.pk


DEEDS: dict[str, Callable[[Client, Run], int]] = {
    "decide": decide,
    "abort": by_page("abort"),
    "pause": by_page("pause"),
    "launch": lambda client, run: launch(ALL_WELL).pk,
    "fork": lambda client, run: actions.fork(run, at=transitions(run)[0], by=None).pk,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_person_waits_for_no_frozen_broker_and_the_hint_follows(deed: str, broker: Valkey) -> None:
    eve = cast_member("eve", is_superuser=True)
    client, run = signed_in(eve), run_with_letter(eve)
    client.get(reverse("run", args=[run.pk]))
    broker.freeze()
    began = time.monotonic()
    wanting = DEEDS[deed](client, run)
    assert time.monotonic() - began < AT_ONCE_S
    broker.thaw()
    wait_for(lambda: wanting in hinted(broker))


def test_the_end_of_a_halt_waits_for_no_frozen_broker_however_many_runs_go_on(broker: Valkey) -> None:
    runs = [launch(ALL_WELL).pk for _ in range(30)]
    actions.halt_site(by=None, reason="")
    wait_for(lambda: set(runs) <= set(hinted(broker)))
    sent = len(hinted(broker))
    broker.freeze()
    began = time.monotonic()
    actions.unhalt_site(by=None)
    assert time.monotonic() - began < AT_ONCE_S
    broker.thaw()
    wait_for(lambda: len(hinted(broker)) == sent + len(runs))


def test_a_process_that_ends_waits_a_moment_for_its_hints_and_not_longer(broker: Valkey) -> None:
    broker.freeze()
    hints.hint(7)
    began = time.monotonic()
    assert not hints.flush(0.3)
    assert time.monotonic() - began < 0.3 + AT_ONCE_S
    broker.thaw()
    assert hints.flush(10)
    assert 7 in hinted(broker)


def test_a_command_that_ends_right_after_gets_its_hint_to_a_broker_that_is_slow(
    broker: Valkey, tmp_path: Path
) -> None:
    words = ("launch", "--machine", "ruled", "--goal", "tides", "--script", json.dumps(script(ALL_WELL)))
    environ = own_environ(tmp_path) | {"DATABASE_URL": database_url(), "REDIS_URL": broker.url}
    broker.freeze()
    with Popen(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=environ, stdout=PIPE, text=True
    ) as process:
        assert process.stdout is not None
        run = int(process.stdout.readline().removeprefix("Run ").partition(":")[0])
        broker.thaw()
        assert process.wait(LONGEST_S) == 0
    assert run in hinted(broker)
