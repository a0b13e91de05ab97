"""The site's addresses: the pages of `runs`, the admin, and sign-in."""

from django.contrib import admin
from django.urls import include, path

from agentsite.favicon import favicon
from agentsite.sign_in_link import UNDER, sign_in_with_link

admin.autodiscover()
urlpatterns = [
    path("admin/", admin.site.urls),
    path(f"{UNDER}<str:token>/", sign_in_with_link, name="sign-in-link"),
    path("favicon.ico", favicon, name="favicon"),
    path("", include("runs.urls")),
]

handler400 = "agentsite.refusals.bad_request"
