"""What an administrator registers for tools by name: `name=value, name=value` in a variable of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from pydantic import ValidationError

from agentsite.environment import database_of
from runs.adapters.documents import can_be_read
from runs.adapters.own_database import is_own_file
from runs.adapters.script_limits import ScriptLimits

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class NotRegistered(ImproperlyConfigured):
    """A variable that registers something can't be used; values are not repeated, for they may hold passwords."""

    def __init__(self, variable: str, why: str, form: str) -> None:
        super().__init__(f"{variable} can't be used: {why}. Write {form}.")


def sql_databases_of(text: str, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the URLs of the databases that agents may read, by name; `own` is Django's description of the site's."""
    form = "name=sqlite:////absolute/path or name=postgresql://reader:password@host/database, separated by commas"
    found = _named("AGENTSITE_SQL_DATABASES", text, form)
    for name, url in found.items():
        if not _is_database(url):
            raise NotRegistered("AGENTSITE_SQL_DATABASES", f"{name} has no URL of a database", form)
        if _is_own(database_of(url, Path(), 0), own):
            raise NotRegistered("AGENTSITE_SQL_DATABASES", f"{name} is the site's own, with its keys", form)
    return found


def document_folders_of(text: str, data_dir: Path) -> dict[str, Path]:
    """Return the folders of documents that agents may search, by name."""
    variable, form = "AGENTSITE_DOCUMENTS", "name=/absolute/path, separated by commas"
    found = {name: Path(value) for name, value in _named(variable, text, form).items()}
    for name, folder in found.items():
        if not folder.is_absolute():
            raise NotRegistered(variable, f"{name} has no absolute path", form)
        real, own = folder.resolve(), data_dir.resolve()
        if real.is_relative_to(own) or own.is_relative_to(real):
            raise NotRegistered(variable, f"{name} has the site's data directory, with its keys", form)
        if not can_be_read(folder):
            raise NotRegistered(variable, f"{name} is not a folder that this user may read", form)
    return found


def python_limits_of(text: str) -> ScriptLimits:
    """Return the limits of scripts: the defaults, with those that the text names."""
    variable = "AGENTSITE_PYTHON_LIMITS"
    form = f"name=number, separated by commas; names: {', '.join(ScriptLimits.model_fields)}"
    try:
        return ScriptLimits.model_validate(_named(variable, text, form))
    except ValidationError as fault:
        first = fault.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise NotRegistered(variable, why, form) from None


def _is_own(database: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    if database["ENGINE"].endswith("sqlite3"):
        return is_own_file(Path(database["NAME"]), own)
    return all(str(database.get(part, "")) == str(own.get(part, "")) for part in ("NAME", "HOST", "PORT"))


def _is_database(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "sqlite":
        return parts.path.startswith("//") and not parts.netloc
    return parts.scheme == "postgresql" and len(parts.path) > 1


def _named(variable: str, text: str, form: str) -> dict[str, str]:
    """Return each value by its name."""
    found: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, value = entry.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise NotRegistered(variable, "a name has small letters, digits, - and _, and = after it", form)
        if name in found:
            raise NotRegistered(variable, f"{name} appears twice", form)
        found[name] = value
    return found
