"""Addresses of the pages: resources, with the deeds under them."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from runs.views import (
    artifacts,
    comparing,
    copying,
    deciding,
    door,
    halting,
    launching,
    mending,
    steering,
    watching,
)

urlpatterns = [
    path("", watching.home, name="home"),
    path("runs/", watching.run_list, name="runs"),
    path("runs/new/", launching.launch, name="launch"),
    path("runs/<int:run_id>/", watching.run_page, name="run"),
    path("runs/<int:run_id>/steps/<int:seq>/", watching.step_page, name="step"),
    path("runs/<int:run_id>/rows/", watching.other_rows, name="rows"),
    path("runs/<int:run_id>/compare/", comparing.choose, name="compare-choose"),
    path("runs/<int:run_id>/compare/<int:other_id>/", comparing.comparison, name="compare"),
    path("runs/<int:run_id>/export.json", watching.run_export, name="run-export"),
    path("runs/<int:run_id>/abort/", steering.abort, name="abort"),
    path("runs/<int:run_id>/pause/", steering.pause, name="pause"),
    path("runs/<int:run_id>/resume/", steering.resume, name="resume"),
    path("runs/<int:run_id>/rewind/", steering.rewind, name="rewind"),
    path("runs/<int:run_id>/fork/", copying.fork, name="fork"),
    path("runs/<int:run_id>/replay/", copying.replay, name="replay"),
    path("runs/<int:run_id>/script.json", copying.script, name="run-script"),
    path("runs/<int:run_id>/test.py", copying.test, name="run-test"),
    path("runs/<int:run_id>/files/<path:name>", artifacts.file, name="file"),
    path("runs/<int:run_id>/artifacts/", artifacts.artifacts, name="artifacts"),
    path("runs/<int:run_id>/artifacts/<path:name>/", artifacts.artifact, name="artifact"),
    path("runs/<int:run_id>/context/", mending.context, name="context"),
    path("runs/<int:run_id>/context/compact/", mending.compact, name="compact"),
    path("runs/<int:run_id>/context/pin/", mending.pin, name="pin"),
    path("runs/<int:run_id>/context/unpin/", mending.unpin, name="unpin"),
    path("runs/<int:run_id>/summaries/<int:seq>/edit/", mending.edit, name="summary-edit"),
    path("runs/<int:run_id>/summaries/<int:seq>/undo/", mending.undo, name="summary-undo"),
    path("needs-you/", deciding.needs_you, name="needs-you"),
    path("interrupts/<uuid:interrupt_id>/", deciding.card, name="interrupt"),
    path("interrupts/<uuid:interrupt_id>/decision/", deciding.decision, name="decision"),
    path("halt/", halting.halt, name="halt"),
    path("sign-in/", door.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("healthz", door.healthz, name="healthz"),
]
