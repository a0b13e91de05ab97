"""manage.py on a bare Python: what it refuses, makes, repairs and remembers."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from agentsite import bootstrap
from agentsite.environment import ROOT

LOCKS = sorted(ROOT.glob("requirements*.lock"))


def empty_project(folder: Path, lock: str = "") -> Path:
    (folder / "requirements.lock").write_text(lock)
    return folder


def test_each_set_of_packages_has_its_lock() -> None:
    assert [path.name for path in LOCKS] == [
        "requirements-anthropic.lock",
        "requirements-google.lock",
        "requirements-local.lock",
        "requirements-mcp.lock",
        "requirements-mistral.lock",
        "requirements-otel.lock",
        "requirements-python.lock",
        "requirements-test.lock",
        "requirements.lock",
    ]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_by_hash_and_names_no_host(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert "--find-links" not in text and "--index-url" not in text
    pins = [line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    assert pins and all(line.endswith("\\") for line in pins)


def test_an_old_python_is_told_so() -> None:
    with pytest.raises(bootstrap.PythonTooOld, match=r"needs Python 3.11 or newer; this is Python 3.9"):
        bootstrap.check_python((3, 9))


def test_the_bootstrap_parses_on_an_old_python() -> None:
    import ast

    for name in ("manage.py", "agentsite/__init__.py", "agentsite/bootstrap.py"):
        ast.parse((ROOT / name).read_text(), feature_version=(3, 7))


def test_a_half_made_environment_is_repaired_once_and_a_changed_lock_installed(tmp_path: Path) -> None:
    root = empty_project(tmp_path)
    broken = root / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a program")
    broken.chmod(0o755)
    python = bootstrap.make_venv(root)
    assert bootstrap.runs(python, "-c", "import pip")
    stamp = bootstrap.stamp_file(root / ".venv", root / "requirements.lock")
    before = stamp.stat().st_mtime_ns
    assert bootstrap.make_venv(root) == python
    assert stamp.stat().st_mtime_ns == before
    (root / "requirements.lock").write_text(
        "no-such-package-of-agentsite==1 --hash=sha256:" + "0" * 64 + "\n"
    )
    with pytest.raises(bootstrap.InstallFailed) as failed:
        bootstrap.install(python, root / ".venv", root / "requirements.lock")
    assert "no-such-package-of-agentsite" in str(failed.value)


def test_without_ensurepip_the_sentence_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(bootstrap.NoVenvModule, match="apt-get install python3-venv"):
        bootstrap.create_venv(tmp_path / ".venv")


@pytest.mark.parametrize("name", sorted(bootstrap.TAKE_DATA))
@pytest.mark.parametrize(
    "words",
    [
        ["--data", "there"],
        ["--data=there"],
        ["--dat", "there"],
        ["--da=there"],
        ["file.zip", "--data", "there"],
        ["--data", "there", "file.zip", "--force"],
        ["--data", "elsewhere", "--data=there"],
    ],
    ids=" ".join,
)
def test_the_data_directory_is_known_before_the_settings_are_read(name: str, words: list[str]) -> None:
    environ = {"AGENTSITE_DATA_DIR": "/usual"}
    bootstrap.take_data_dir(["manage.py", name, *words], environ)
    assert environ["AGENTSITE_DATA_DIR"] == str(Path("there").absolute())


def test_every_command_that_declares_a_data_directory_takes_it() -> None:
    """One that did not would work, and restore, in another directory than the one that it was told."""
    ours = [name for name, app in get_commands().items() if app in {"agentsite", "runs"}]
    declare = {name for name in ours if "--data" in options_of(name)}
    assert declare == bootstrap.TAKE_DATA


def test_every_command_says_whether_it_wants_a_site_to_be_there() -> None:
    ours = {name for name, app in get_commands().items() if app in {"agentsite", "runs"}}
    assert ours - bootstrap.WANT_A_SITE - bootstrap.WANT_NONE == {
        "up",
        "local_model",
        "sweeper",
        "drive_alone",
    }
    assert not bootstrap.WANT_A_SITE - ours and not bootstrap.WANT_NONE - ours - {"help"}


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["./manage.py", "verify", "--all"], "there"),
        (["manage.py", "verify", "--help"], "none"),
        (["manage.py", "restore", "site.zip"], "none"),
        (["manage.py"], "none"),
        (["manage.py", "up"], "made"),
        (["manage.py", "migrate"], "made"),
        (["celery", "verify"], "made"),
    ],
)
def test_what_a_process_wants_of_a_site_is_read_from_how_it_was_started(argv: list[str], wanted: str) -> None:
    assert bootstrap.site_wanted(argv) == wanted


def options_of(name: str) -> set[str]:
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("words", [["--data"], ["file.zip", "--", "--data", "there"], ["--drain", "5"]])
def test_what_names_no_data_directory_is_left_for_the_command(words: list[str]) -> None:
    environ: dict[str, str] = {}
    bootstrap.take_data_dir(["manage.py", "restore", *words], environ)
    assert environ == {}


def test_an_empty_data_directory_is_not_the_folder_at_hand() -> None:
    with pytest.raises(SystemExit, match="--data is empty"):
        bootstrap.take_data_dir(["manage.py", "restore", "file.zip", "--data", ""], {})


def test_other_commands_keep_their_own_data_option() -> None:
    environ: dict[str, str] = {}
    bootstrap.take_data_dir(["manage.py", "launch", "--data", "there"], environ)
    assert environ == {}


def test_importing_the_bootstrap_needs_the_standard_library_alone() -> None:
    code = "import agentsite.bootstrap, sys; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
