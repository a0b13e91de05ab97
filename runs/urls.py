"""Addresses of the pages: resources, with the deeds under them."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from runs.views import deciding, door, launching, steering, watching

urlpatterns = [
    path("", watching.home, name="home"),
    path("runs/", watching.run_list, name="runs"),
    path("runs/new/", launching.launch, name="launch"),
    path("runs/<int:run_id>/", watching.run_page, name="run"),
    path("runs/<int:run_id>/steps/<int:seq>/", watching.step_page, name="step"),
    path("runs/<int:run_id>/rows/", watching.other_rows, name="rows"),
    path("runs/<int:run_id>/export.json", watching.run_export, name="run-export"),
    path("runs/<int:run_id>/abort/", steering.abort, name="abort"),
    path("runs/<int:run_id>/pause/", steering.pause, name="pause"),
    path("runs/<int:run_id>/resume/", steering.resume, name="resume"),
    path("runs/<int:run_id>/rewind/", steering.rewind, name="rewind"),
    path("runs/<int:run_id>/files/<path:name>", watching.file, name="file"),
    path("needs-you/", deciding.needs_you, name="needs-you"),
    path("interrupts/<uuid:interrupt_id>/", deciding.card, name="interrupt"),
    path("interrupts/<uuid:interrupt_id>/decision/", deciding.decision, name="decision"),
    path("sign-in/", door.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("healthz", door.healthz, name="healthz"),
]
