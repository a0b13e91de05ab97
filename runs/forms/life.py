"""A form names the life of the site that its page was made in: one from before a restore changes nothing."""

from __future__ import annotations

from django.http import HttpRequest

from runs.store.backups import restored_id


class PageOfAnotherLife(Exception):
    """What was sent comes from a page that was made before the site was restored: nothing of it counts."""

    sentence = (
        "The site was restored from a backup after this page was loaded, so the page is out of date. "
        "Nothing was done. Go back, copy what you typed, then reload the page."
    )


def check_life(request: HttpRequest) -> None:
    """Refuse a form from a page of another life of the site; a form that names no life passes."""
    said = request.POST.get("life")
    if said is not None and said != restored_id():
        raise PageOfAnotherLife
