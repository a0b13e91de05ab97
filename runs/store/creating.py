"""Create a run: its row, its budget lines, its own folder."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from runs.engine.machine import Terms
from runs.engine.settings import LIMIT_NAMES, Settings
from runs.engine.values import canonical, clean, storable
from runs.machines import CATALOGUE
from runs.models import Budget, Run, ScriptText, Skill
from runs.store.db import for_people


@dataclass(frozen=True, slots=True)
class NewRun:
    """The checked values of a launch."""

    machine: str
    goal: str
    settings: dict[str, Any]
    """As given, so defaults stay defaults."""
    checked: Settings
    script: dict[str, Any] | None
    model: str
    owner_id: int | None
    by_operator: bool = False
    """The installation's operator launches it, not a person."""
    site_rules: tuple[dict[str, Any], ...] = ()
    site_hosts: tuple[str, ...] = ()


def folder_of(run_id: int) -> Path:
    """Return the run's own directory for files; it need not exist."""
    return Path(settings.DATA_DIR) / "runs" / str(run_id) / "files"


def clear_folder(run_id: int) -> None:
    """Empty the directory of a new run: a number is reused if its first run was never committed."""
    folder = folder_of(run_id).parent
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def terms_hash(run: Run) -> str:
    """Return the first hash of the chain: that of the launch's terms."""
    parts = [run.machine, run.goal, run.settings_json, run.site_rules_json, run.script_json, run.model]
    if run.site_skills is not None:
        parts.append(run.site_skills.text)
    if run.site_hosts_json != "[]":
        parts.append(run.site_hosts_json)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _skills_now(checked: Settings) -> ScriptText | None:
    """Return the site's skills, for a machine that shows them."""
    if getattr(checked, "skills", None) is None:
        return None
    return _kept(canonical(dict(Skill.objects.values_list("name", "text"))))


def _kept(text: str) -> ScriptText:
    """Return the text's own row, written once."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    script, _ = ScriptText.objects.get_or_create(digest=digest, defaults={"text": text})
    return script


def unsaved(new: NewRun) -> Run:
    """Return the run's row, not yet written."""
    run = Run(
        machine=new.machine,
        goal=new.goal,
        settings_json=canonical(clean(new.settings)),
        site_rules_json=canonical(list(new.site_rules)),
        site_hosts_json=canonical(list(new.site_hosts)),
        script=_kept(canonical(storable(new.script))) if new.script is not None else None,
        site_skills=_skills_now(new.checked),
        model=new.model,
        owner_id=new.owner_id,
        by_operator=new.by_operator,
        node=CATALOGUE[new.machine].start,
        due_at=Now(),
    )
    run.head_hash = terms_hash(run)
    return run


@for_people
def create_run(new: NewRun) -> Run:
    """Write a run that has not begun, with its budget."""
    with transaction.atomic():
        run = unsaved(new)
        insert(run, new.checked)
        run.refresh_from_db()
    return run


def insert(run: Run, checked: Settings) -> None:
    """Write the run's row and its budget; its folder is empty."""
    run.save(force_insert=True)
    clear_folder(run.pk)
    open_budgets(run, checked)


def open_budgets(run: Run, checked: Settings) -> None:
    """Write the budget lines as of before the first step."""
    machine = CATALOGUE[run.machine]
    state = machine.open(Terms(goal=run.goal, settings=checked))
    lines = [Budget(run=run, **row._asdict()) for row in machine.budget(state)]
    for name in LIMIT_NAMES:
        limit = checked.limits.of(name)
        if limit is not None:
            lines.append(Budget(run=run, scope="limits", name=name, used=0, limit=limit))
    Budget.objects.bulk_create(lines)
