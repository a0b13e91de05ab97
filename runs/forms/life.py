"""Refuse forms from pages made before a restore: a form names the restore epoch of its page."""

from __future__ import annotations

from django.http import HttpRequest

from runs.store.backups import restored_id


class PageOfAnotherLife(Exception):
    """The form comes from a page made before the site was restored: nothing of it counts."""

    sentence = (
        "The site was restored from a backup after this page was loaded, so the page is out of date. "
        "Nothing was done. Go back, copy what you typed, then reload the page."
    )


def check_life(request: HttpRequest) -> None:
    """Refuse a form from a page of another restore epoch; a form without one passes."""
    said = request.POST.get("life")
    if said is not None and said != restored_id():
        raise PageOfAnotherLife
