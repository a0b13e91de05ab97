"""The site's icon, at the place where browsers look without a link."""

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
    """Redirect to the icon under its hashed name."""
    return redirect(static("img/mark.svg"))
