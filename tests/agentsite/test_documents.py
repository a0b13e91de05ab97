"""The documents: links lead somewhere, no file cites one that is not there, and what they show works as they say."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.test import Client

from agentsite.environment import ROOT, Environment
from manage import own_settings
from runs import actions, driver
from runs.adapters.tool import Place
from runs.adapters.tools import TOOLS, tools_named
from runs.engine.machine import Machine
from runs.engine.settings import Settings
from runs.machines import CATALOGUE
from runs.models import Run
from runs.signals import on_after_compaction
from runs.store import halting
from tests.cast import alice, signed_in
from tests.chaos.findings import NAMES
from tests.chaos.report import KILL_POINTS
from tests.launching import ALL_WELL, launched, run_with_letter
from tests.running import check_everything, transitions

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "runs" / "README.md", *DOCS.rglob("*.md")])
OWN = ("agentsite", "runs", "docs", "tests", "templates", "static")

NAME = re.compile(r"\bI\d+\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(text_of(page)) if name == language]


def headings(page: Path) -> list[str]:
    return HEADING.findall(BLOCK.sub("", text_of(page)))


def anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(page: Path, heading: str) -> str:
    """The text from a heading to the next one of any level."""
    _, _, rest = text_of(page).partition(f"# {heading}\n")
    assert rest, f"{page.name} has no heading {heading!r}"
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a page's tables, without what parts a head from its rows."""
    found = [re.split(r"(?<!\\)\|", row) for row in ROW.findall(text)]
    return [[cell.strip() for cell in row] for row in found if not set("".join(row)) <= set("-: ")]


# --- links and citations ------------------------------------------------------------------------------------------


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", text_of(page))):
        if "://" in target:
            continue
        name, _, fragment = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), target
        if fragment:
            assert fragment in map(anchor, headings(there)), target


@every_page
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    for span in SPAN.findall(BLOCK.sub("", text_of(page))):
        if re.fullmatch(rf"({'|'.join(OWN)})/[\w./-]*", span):
            assert (ROOT / span).exists(), span


def test_the_map_names_files_that_are_there() -> None:
    listed = re.findall(
        r"^- `(runs/\w+/)`: (.+?)(?=\n- |\n\n)",
        text_of(ROOT / "runs" / "README.md"),
        re.MULTILINE | re.DOTALL,
    )
    assert listed
    for package, told in listed:
        for name in SPAN.findall(told):
            assert (ROOT / package / name).is_dir() or (ROOT / package / f"{name}.py").is_file(), (
                package + name
            )


CITED = re.compile(r"(?<![\w./-])((?:\.\./)*[\w./-]*\w\.md)\b|\b((?:spec|seeds)/\S*)")
SECTION = re.compile(r'(docs/\w+\.md), "([^"]+)"')
KEPT_ELSEWHERE = {"CHANGELOG.md"}
"""It speaks of what was true when it was written."""


def prose(path: Path) -> str:
    """What a file that may cite another says to readers: code in docstrings and comments, any other in all of it."""
    source = path.read_text(encoding="utf-8")
    if not any(part in source for part in (".md", "spec/", "seeds/")):
        return ""
    if path.suffix != ".py":
        return source
    said = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*said, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def own_files() -> Iterator[Path]:
    folders = (ROOT / name for name in OWN)
    for path in (*ROOT.glob("*.*"), *(path for folder in folders for path in folder.rglob("*"))):
        told = path.suffix in (".py", ".md", ".html", ".css", ".js", ".mjs", ".toml", ".in")
        if told and "vendor" not in path.parts and str(path.relative_to(ROOT)) not in KEPT_ELSEWHERE:
            yield path


def test_no_file_cites_a_document_that_is_not_there() -> None:
    faults = []
    for path in own_files():
        said = prose(path)
        for document, missing in CITED.findall(said):
            near = (ROOT / document, path.parent / document) if document else ()
            if missing or not any(one.exists() for one in near):
                faults.append(f"{path.relative_to(ROOT)}: {document or missing}")
        for document, heading in SECTION.findall(" ".join(said.split())):
            if heading not in headings(ROOT / document):
                faults.append(f"{path.relative_to(ROOT)}: {document} has no section {heading!r}")
    assert not faults, "\n".join(faults)


# --- tables that say what the code says ---------------------------------------------------------------------------


@pytest.mark.parametrize("machine", CATALOGUE.values(), ids=list(CATALOGUE))
def test_the_graph_and_the_settings_of_a_machine_are_those_of_the_code(machine: Machine) -> None:
    told = section(DOCS / "machines.md", machine.name)
    assert f"```mermaid\n{machine.mermaid()}\n```" in told
    check_settings(told, machine.settings, set(machine.settings.model_fields) - set(Settings.model_fields))
    for reason in machine.exit_reasons:
        assert f"`{reason}`" in text_of(DOCS / "machines.md"), reason


def test_the_settings_of_every_run_are_those_of_the_code() -> None:
    told = section(DOCS / "machines.md", "Settings of every run")
    check_settings(told, Settings, set(Settings.model_fields))


def check_settings(told: str, kind: type[Settings], names: set[str]) -> None:
    """The table has each setting, with the default that it has."""
    table = {row[0].strip("`"): row[1] for row in rows(told) if len(row) == 3 and row[0].strip("`") in names}
    assert set(table) == names
    for name, default in table.items():
        assert kind.model_validate({name: json.loads(default.strip("`"))}) == kind(), name


def test_the_environment_is_that_of_the_code() -> None:
    told = {
        row[0].strip("`"): row[1].strip("`") for row in rows(section(DOCS / "operating.md", "Environment"))
    }
    for field in Environment.model_fields.values():
        usual = field.default
        if isinstance(usual, Path):
            usual = usual.name
        if isinstance(usual, tuple):
            usual = ",".join(usual)
        wanted = "" if usual is None else str(usual).lower() if isinstance(usual, bool) else str(usual)
        assert told.get(str(field.alias)) == wanted, field.alias


def test_the_tools_are_those_of_the_code() -> None:
    told = [[cell.strip("`") for cell in row] for row in rows(section(DOCS / "tools.md", "Tools"))[1:]]
    specs = [TOOLS[name].spec() for name, *_ in told]
    assert {row[0] for row in told} == set(TOOLS)
    assert [row[2:5] for row in told] == [[spec.effects, spec.outward, spec.reads] for spec in specs]


def test_the_arguments_of_each_tool_are_those_of_the_code() -> None:
    told = rows(section(DOCS / "tools.md", "Arguments"))[1:]
    assert [[cell.replace("\\\\", "\\") for cell in row] for row in told] == [
        [f"`{name}`", f"`{argument}`", _type_of(schema), schema["description"], _default_of(schema)]
        for name in TOOLS
        for argument, schema in TOOLS[name].spec().parameters["properties"].items()
    ]


def _type_of(schema: dict[str, Any]) -> str:
    return ", ".join(f"`{choice}`" for choice in schema.get("enum", ())) or str(schema["type"])


def _default_of(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "required"
    return f"`{schema['default']}`" if schema["default"] not in ("", {}) else "empty"


def test_every_name_that_verify_or_the_bench_prints_is_explained() -> None:
    told = {row[0] for row in rows(text_of(DOCS / "invariants.md"))}
    printed = {
        name for path in (ROOT / "runs" / "store").glob("*.py") for name in NAME.findall(path.read_text())
    }
    assert {"I1", "I5"} < printed
    kill_points = {name.split()[0] for name in KILL_POINTS}
    assert printed | {*NAMES} | kill_points <= told
    assert "docs/invariants.md" in parser_of("verify").format_help()


def own_commands() -> set[str]:
    return {name for name, app in get_commands().items() if app in ("agentsite", "runs")}


def test_every_command_and_option_that_is_listed_is_there_and_none_is_missing() -> None:
    named: set[str] = set()
    for row in rows(text_of(DOCS / "commands.md")):
        words = [re.split(r"[ \[]", span)[0] for span in SPAN.findall(row[0])]
        if len(row) != 2 or not set(words) & own_commands():
            continue
        named |= set(words) & own_commands()
        options = {name for word in words if word in own_commands() for name in options_of(word)}
        for option in re.findall(r"--[a-z-]+", " ".join(row)):
            assert option in options, (row[0], option)
    assert named == own_commands()


def options_of(name: str) -> set[str]:
    parser = parser_of(name)
    found = {option for action in parser._actions for option in action.option_strings}
    return {*found, "--settings"}


def parser_of(name: str) -> Any:
    return load_command_class(get_commands()[name], name).create_parser("manage.py", name)


# --- commands -----------------------------------------------------------------------------------------------------

NOT_RUN = {
    "up": "starts servers until Ctrl-C",
    "local_model": "needs the network, and serves until Ctrl-C",
    "test": "runs all tests",
    "restore": "needs a stopped site and a data directory of its own",
    "check_machine": "its machine is installed when a process starts; tests/machines/test_checking.py runs it",
    "tests.chaos": "kills processes for minutes",
}
"""The commands that no test runs here, each with the reason: their arguments are read, and their help is printed."""


class Line(NamedTuple):
    """A command as a page shows it, without what stands before `manage.py` or the module."""

    words: list[str]
    code: int
    """The exit code that it is said to end with."""


def lines_of(page: Path) -> list[Line]:
    found = []
    for line in "".join(blocks(page, "sh")).splitlines():
        told = re.search(r"# exit code (\d+)$", line)
        words = shlex.split(line, comments=True)
        while words and "=" in words[0]:
            del words[0]  # a variable for the command
        if not words:
            continue
        python, *words = words
        assert python in ("python3", ".venv/bin/python") and words[0] in ("manage.py", "-m"), line
        found.append(Line(words[1:], int(told[1]) if told else 0))
    return found


@pytest.fixture
def place(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's data directory, and a folder with the examples to stand in."""
    settings.DATA_DIR = tmp_path / "var"
    (tmp_path / "var").mkdir()
    (tmp_path / "docs").symlink_to(DOCS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.database
@pytest.mark.django_db(transaction=True, reset_sequences=True)
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path) -> None:
    User.objects.create_superuser(username="admin")  # as `up` does
    for line in lines_of(page):
        if line.words[0] in NOT_RUN:
            check_readable(line.words)
            continue
        assert code_of(line.words) == line.code, line.words
        play_worker()
    check_everything()


def code_of(words: list[str]) -> int:
    """Run the command in this process. Return its exit code."""
    _, name, *rest = own_settings(["manage.py", *words])
    try:
        call_command(name, *rest, stdout=io.StringIO(), stderr=io.StringIO())
    except CommandError as fault:
        return fault.returncode
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def play_worker() -> None:
    """Drive what is due, as the site's worker would."""
    while halting.halt_now() is None and (due := Run.objects.due().first()):
        driver.drive_inline(due.pk)


def check_readable(words: list[str]) -> None:
    """The command takes these arguments, and explains itself."""
    name, *rest = words
    if name == "tests.chaos":
        shown = subprocess.run(
            [sys.executable, "-m", name, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert all(word in shown for word in rest if word.startswith("--"))
        return
    parser_of(name).parse_args(rest)
    assert "usage:" in parser_of(name).format_help()


def test_the_readme_begins_and_tests_the_site_with_one_command_each() -> None:
    found = [line.words for line in lines_of(ROOT / "README.md")]
    assert ["up"] in found and ["test"] in found


@pytest.mark.database
@pytest.mark.django_db
def test_the_readme_names_what_a_step_of_an_ended_run_offers() -> None:
    told = section(ROOT / "README.md", "Ten minutes").partition("\n4. ")[2].partition("\n\n")[0]
    labels = re.findall(r"\*([^*]+)\*", told)
    assert labels[-1] == "Roll back to here"
    owner = alice()
    for run, offered in ((launched(owner, ALL_WELL), labels[:-1]), (run_with_letter(owner), labels)):
        page = signed_in(owner).get(f"/runs/{run.pk}/?step={transitions(run)[0]}").text
        assert [label for label in labels if f"{label}…" in page] == offered


# --- examples -----------------------------------------------------------------------------------------------------


def module_of(page: Path, number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A page's example as a module of the name that its docstring gives it."""
    code = blocks(page, "python")[number]
    found = re.match(r'"""(\w+)\.py"""', code)
    name = found[1] if found else f"example_{number}"
    (place / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_the_tool_is_found_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = module_of(DOCS / "extending.md", 0, tmp_path, monkeypatch)
    (tool,) = tools_named("shop_tools:TOOL")
    where = Place(folder=tmp_path, key="key", deadline_s=1)
    assert tool.run(example.StockArguments(article="lamp"), where).value == {"article": "lamp", "pieces": 12}
    with pytest.raises(example.UnknownArticle, match="sofa"):
        tool.run(example.StockArguments(article="sofa"), where)


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_the_machine_plays_its_script_and_is_shown(
    place: Path, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    example = module_of(DOCS / "extending.md", 1, place, monkeypatch)
    monkeypatch.setitem(CATALOGUE, "one_answer", example.ONE_ANSWER)
    (script,) = (json.loads(block) for block in blocks(DOCS / "extending.md", "json"))
    run = actions.start_run(
        machine="one_answer", goal="When?", settings={}, owner=None, script=script, driven_by="the caller"
    )
    ended = driver.drive_inline(run.pk)
    assert (ended.status, ended.answer) == ("succeeded", "Tides come twice a day.")
    check_everything()
    client.force_login(User.objects.create_superuser(username="admin"))
    for address in ("new/", f"{run.pk}/", *(f"{run.pk}/steps/{seq}/" for seq in range(1, ended.head + 1))):
        assert client.get(f"/runs/{address}").status_code == 200, address


def test_the_receiver_hears_of_compactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = module_of(DOCS / "extending.md", 2, tmp_path, monkeypatch)
    with contextlib.ExitStack() as after:
        after.callback(on_after_compaction.disconnect, example.count)
        on_after_compaction.send(Run, run_id=3, tokens_before=900, tokens_after=400)
        on_after_compaction.send(Run, run_id=4, tokens_before=900, error="no summary")
    assert example.COUNTED == [(3, 500), (4, 0)]
