"""Templates are read by people too."""

from pathlib import Path

from django.conf import settings

WIDTH = 120


def test_no_line_of_a_template_is_longer_than_a_screen() -> None:
    root = Path(settings.BASE_DIR) / "templates"
    long = [
        f"{path.relative_to(root)}:{number} has {len(line)} characters"
        for path in sorted(root.rglob("*.html"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > WIDTH
    ]
    assert not long, "\n".join(long)
