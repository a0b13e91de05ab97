"""The sockets' addresses."""

from django.urls import path, re_path

from runs.consumers import InboxConsumer, RunConsumer, nowhere

websocket_urlpatterns = [
    path("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),
    path("ws/inbox/", InboxConsumer.as_asgi()),
    re_path("", nowhere),  # type: ignore[arg-type]
]
