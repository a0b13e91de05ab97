"""The site's skills: a run has them as they stood when it began, whatever an administrator does to them later."""

from __future__ import annotations

from typing import Any

import pytest

from runs import actions, driver
from runs.models import Run, ScriptText, Skill
from runs.reading.prompts import full_terms
from runs.store import verifying
from runs.store.creating import terms_hash
from tests.launching import FINAL, launch, script, think
from tests.machines.decisions import INLINE, call, done, fill
from tests.replaying import check_replay
from tests.running import transitions, work
from tests.workers import slice_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")

LOOK = {"action": "decision", "show_skills": ["house"]}
SEARCH = {
    "effects": "read",
    "params": {"q": "string", "n": "integer"},
    "required": ["q"],
    "results": [{"output": "three results"}],
}
PLAYED = {"replies": {"decision": [LOOK, call(), done(fill())]}, "tools": {"search": SEARCH}}


@pytest.fixture(autouse=True)
def house() -> Skill:
    return Skill.objects.create(name="house", text="Say it once.")


def begun() -> Run:
    """A run that may be shown the skill, and has not been yet."""
    return actions.start_run(
        machine="contract", goal="g", settings={"contract": [INLINE]}, owner=None, script=PLAYED
    )


def skills_of(run: Run) -> dict[str, str]:
    return full_terms(Run.objects.get(pk=run.pk)).skills


def shown(run: Run) -> bool:
    return run.steps.filter(kind="transition", facts_json__contains='"skills":["house"]').exists()


def changed(house: Skill) -> None:
    house.text = "Say it twice."
    house.save()


def deleted(house: Skill) -> None:
    house.delete()


@pytest.mark.parametrize("meddle", [changed, deleted])
def test_a_replay_has_the_skills_that_there_were(house: Skill, meddle: Any) -> None:
    run = work(begun())
    assert shown(run)
    meddle(house)
    made = check_replay(run)
    assert skills_of(made) == skills_of(run) == {"house": "Say it once."}
    check_replay(made)


@pytest.mark.parametrize("meddle", [changed, deleted])
def test_a_run_that_has_begun_keeps_its_skills(house: Skill, meddle: Any) -> None:
    run = begun()
    slice_of(run, driver.Slice(moves=1))
    meddle(house)
    assert shown(work(run))
    assert skills_of(run) == {"house": "Say it once."}
    check_replay(run)


def test_a_fork_has_the_skills_of_today_as_it_has_todays_rules(house: Skill) -> None:
    run = work(begun())
    changed(house)
    fork = work(actions.fork(run, at=transitions(run)[0], by=None))
    assert skills_of(fork) == {"house": "Say it twice."}
    deleted(house)
    check_replay(fork)


def test_a_child_has_the_skills_that_there_were_when_it_began(house: Skill) -> None:
    subgraphs = {"inner": {"machine": "contract", "settings": {"contract": [INLINE]}}}
    ask = think("agent.inner", goal="Look up the tides")
    run = work(launch(played=script(ask, FINAL, subgraphs={"inner": PLAYED}), subgraphs=subgraphs))
    deleted(house)
    child = Run.objects.get(parent=run)
    assert shown(child)
    assert (skills_of(child), skills_of(run)) == ({"house": "Say it once."}, {})
    check_replay(run)


def test_the_runs_own_skills_go_before_the_sites() -> None:
    own = {"contract": [INLINE], "skills": {"house": "My own.", "mine": "Mine."}}
    run = actions.start_run(machine="contract", goal="g", settings=own, owner=None, script=PLAYED)
    assert skills_of(run) == {"house": "My own.", "mine": "Mine."}


def test_a_run_from_before_skills_were_kept_has_those_of_the_site(house: Skill) -> None:
    run = begun()
    run.site_skills = None
    run.head_hash = terms_hash(run)
    run.save()
    changed(house)
    assert shown(work(run))
    assert skills_of(run) == {"house": "Say it twice."}
    check_replay(run)


def test_a_change_of_the_skills_that_a_run_began_with_is_found() -> None:
    run = work(begun())
    kept = ScriptText.objects.filter(pk=run.site_skills_id)
    text = kept.get().text
    for other in ('{"house":"Say it twice."}', "{"):
        kept.update(text=other)
        assert verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run)) is not None
    kept.update(text=text)
