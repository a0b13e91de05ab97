"""What every answer of the site carries, who gets in, and which sockets are refused."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from agentsite import urls as addresses
from agentsite.csp import POLICY, ContentSecurityPolicy
from agentsite.logs import OneLine


def test_the_policy_names_the_host_that_was_asked(rf: RequestFactory) -> None:
    request = rf.get("/", headers={"host": "localhost:8000"})
    answer = ContentSecurityPolicy(lambda _: HttpResponse()).process_response(request, HttpResponse())
    policy = answer.headers["Content-Security-Policy"]
    assert "connect-src 'self' ws://localhost:8000 wss://localhost:8000" in policy
    assert "unsafe" not in policy
    assert "data:" not in policy
    for part in (
        *(
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "object-src 'none'",
        ),
        *("base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"),
    ):
        assert part in policy.split("; ")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/", 302),
        ("/sign-in/", 200),
        ("/healthz", 200),
        ("/nowhere/", 404),
        ("/static/css/icons.css", 200),
        ("/static/icons/clock.svg", 200),
        ("/static/nothing.js", 404),
        ("/admin", 301),
        ("/admin/login/", 200),
    ],
)
def test_every_answer_has_the_policy(client: Client, address: str, status: int) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert answer["Content-Security-Policy"].startswith(POLICY)
    if answer.streaming:
        answer.close()


@pytest.mark.django_db
def test_refusals_and_faults_have_the_policy(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    user = User.objects.create_user("alice")
    client.force_login(user)
    for answer, status in (
        (client.get("/", headers={"host": "evil.example"}), 400),
        (client.get("/bad/"), 400),
        (client.post("/"), 403),
        (client.get("/refused/"), 403),
        (client.get("/nowhere/"), 404),
        (client.get("/broken/"), 500),
    ):
        assert answer.status_code == status
        assert answer["Content-Security-Policy"].startswith(POLICY)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/runs/",
        "/nowhere/",
        "/runs/7/",
        "/admin/jsi18n/",
        "/admin/runs/",
        "/halt/",
        "/bad/",
        "/refused/",
    ],
)
def test_no_cache_keeps_what_one_person_was_shown(address: str, settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("alice"))
    said = client.get(address)["Cache-Control"]
    assert "no-store" in said and "private" in said


@pytest.mark.django_db
def test_what_is_the_same_for_everyone_may_be_kept(client: Client) -> None:
    for address in ("/static/css/icons.css", "/favicon.ico"):
        answer = client.get(address)
        assert "no-store" not in answer["Cache-Control"] and not answer.cookies
        if answer.streaming:
            answer.close()


def raises(fault: type[Exception]) -> Any:
    """A page that fails."""

    def view(request: HttpRequest) -> HttpResponse:
        raise fault("on purpose")

    return view


urlpatterns = [
    path("bad/", raises(BadRequest)),
    path("refused/", raises(PermissionDenied)),
    path("broken/", raises(RuntimeError)),
    *addresses.urlpatterns,
]


def test_a_stricter_policy_of_a_view_stays(rf: RequestFactory) -> None:
    answer = HttpResponse(headers={"Content-Security-Policy": "default-src 'none'"})
    same = ContentSecurityPolicy(lambda _: answer).process_response(rf.get("/"), answer)
    assert same.headers["Content-Security-Policy"] == "default-src 'none'"


@pytest.mark.django_db
def test_nobody_sees_a_page_without_signing_in(client: Client) -> None:
    assert client.get("/")["Location"].startswith("/sign-in/")


def test_a_log_record_is_one_line_even_with_a_traceback() -> None:
    import logging

    try:
        raise ValueError("two\nlines")
    except ValueError as why:
        info = (type(why), why, why.__traceback__)
    record = logging.LogRecord("runs.store", logging.ERROR, __file__, 1, "a\nb", None, info)
    line = OneLine().format(record)
    assert "\n" not in line
    assert "ERROR runs.store a\\nb traceback=" in line and "ValueError: two" in line
