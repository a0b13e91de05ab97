"""Where browsers look for the site's icon when a page names none."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe


@login_not_required
@require_safe
@cache_control(max_age=3600)
def favicon(request: HttpRequest) -> HttpResponse:
    """The icon under its hashed name."""
    return redirect(static("img/mark.svg"))
