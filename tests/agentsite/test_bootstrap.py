"""manage.py on a bare Python: what it refuses, makes, repairs and remembers."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentsite import bootstrap
from agentsite.environment import ROOT

LOCKS = sorted(ROOT.glob("requirements*.lock"))


def empty_project(folder: Path, lock: str = "") -> Path:
    (folder / "requirements.lock").write_text(lock)
    return folder


def test_there_are_three_locks() -> None:
    assert [path.name for path in LOCKS] == [
        "requirements-local.lock",
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


def test_an_empty_lock_makes_an_environment_once(tmp_path: Path) -> None:
    root = empty_project(tmp_path)
    python = bootstrap.make_venv(root)
    assert bootstrap.runs(python, "-c", "import pip")
    stamp = bootstrap.stamp_file(root / ".venv", root / "requirements.lock")
    before = stamp.stat().st_mtime_ns
    assert bootstrap.make_venv(root) == python
    assert stamp.stat().st_mtime_ns == before


def test_a_half_made_environment_is_repaired_and_a_changed_lock_installed(tmp_path: Path) -> None:
    root = empty_project(tmp_path)
    broken = root / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a program")
    broken.chmod(0o755)
    python = bootstrap.make_venv(root)
    assert bootstrap.runs(python)
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


@pytest.mark.parametrize("argv", [["--data", "there"], ["--data=there"]])
def test_the_data_directory_of_up_is_known_before_the_settings_are_read(argv: list[str]) -> None:
    environ: dict[str, str] = {}
    bootstrap.take_data_dir(["manage.py", "up", *argv], environ)
    assert environ["AGENTSITE_DATA_DIR"] == str(Path("there").absolute())


@pytest.mark.parametrize("name", ["backup", "restore", "local_model"])
def test_commands_on_a_data_directory_are_told_it_as_up_is(name: str) -> None:
    environ: dict[str, str] = {}
    bootstrap.take_data_dir(["manage.py", name, "site.zip", "--data", "there"], environ)
    assert environ["AGENTSITE_DATA_DIR"] == str(Path("there").absolute())


def test_other_commands_keep_their_own_data_option() -> None:
    environ: dict[str, str] = {}
    bootstrap.take_data_dir(["manage.py", "launch", "--data", "there"], environ)
    assert environ == {}


def test_importing_the_bootstrap_needs_the_standard_library_alone() -> None:
    code = "import agentsite.bootstrap, sys; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
