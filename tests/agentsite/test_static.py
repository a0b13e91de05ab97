"""Static files bear names that change with their content, imported modules and drawings included."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from django.core.files.storage import FileSystemStorage

from agentsite.environment import ROOT
from agentsite.static_files import HashedStaticFiles

IMPORTED = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["']""")
NAMED = re.compile(r"""url\(["']?([^"')]+)["']?\)""")


def hashed(folder: Path) -> dict[str, Path]:
    """The project's own static files as they are served, by the name that they have in `static/`."""
    storage = HashedStaticFiles(location=str(folder), base_url="/static/")
    source = FileSystemStorage(location=str(folder))
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    for _, _, fault in storage.post_process({name: (source, name) for name in names}):
        assert not isinstance(fault, Exception), fault
    return {name: folder / storage.stored_name(name) for name in names}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the static files."""
    return Path(shutil.copytree(ROOT / "static", tmp_path / "static"))


def test_a_module_names_the_modules_that_it_imports_by_their_content(folder: Path) -> None:
    served = hashed(folder)
    known = {path.resolve() for path in served.values()}
    imports = 0
    for name, path in served.items():
        if name.endswith(".js"):
            for other in IMPORTED.findall(path.read_text()):
                assert (path.parent / other).resolve() in known, f"{name} imports {other}"
                imports += 1
    assert imports > 10


def test_a_change_of_a_module_renames_whoever_imports_it(folder: Path, tmp_path: Path) -> None:
    later = Path(shutil.copytree(folder, tmp_path / "later"))
    with (later / "js" / "line.js").open("a") as module:
        module.write("\nexport const LATER = true;\n")
    before, after = hashed(folder), hashed(later)
    renamed = {name for name in before if before[name].name != after[name].name}
    assert {"js/line.js", "js/live.js", "js/inbox.js"} <= renamed
    assert "js/theme.js" not in renamed
    assert "css/base.css" not in renamed


def test_style_sheets_name_files_of_this_site_by_their_content(folder: Path) -> None:
    served = hashed(folder)
    known = {path.resolve() for path in served.values()}
    for name, path in served.items():
        if name.endswith(".css"):
            for other in NAMED.findall(path.read_text()):
                assert (path.parent / other).resolve() in known, f"{name} names {other}"


def test_every_icon_has_its_drawing_and_every_drawing_its_icon() -> None:
    sheet = (ROOT / "static" / "css" / "icons.css").read_text()
    drawn = dict(re.findall(r'\.icon--(\w+) \{\s*--icon: url\("\.\./icons/(\w+)\.svg"\);', sheet))
    assert len(drawn) == sheet.count("--icon: ")
    assert drawn == {name: name for name in drawn}
    assert {path.stem for path in (ROOT / "static" / "icons").iterdir()} == set(drawn)
