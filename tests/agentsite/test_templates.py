"""Templates are read by people too."""

from pathlib import Path

from django.conf import settings

from runs.machines import FOLDERS

WIDTH = 120


def test_no_line_of_a_template_is_longer_than_a_screen() -> None:
    root = Path(settings.BASE_DIR)
    folders = [root / "templates", *(folder / "templates" for folder in FOLDERS.values())]
    long = [
        f"{path}:{number} has {len(line)} characters"
        for path in sorted(path for folder in folders for path in folder.rglob("*.html"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > WIDTH
    ]
    assert not long, "\n".join(long)
