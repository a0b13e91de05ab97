"""The Celery application: a queue of hints, configured by Django's settings."""

import os
import warnings
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_init, worker_shutting_down
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
# In a container root is the usual user, and only JSON is accepted.
warnings.filterwarnings("ignore", message=".*superuser privileges", category=RuntimeWarning)

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "agentsite.transport:Transport")

app = Celery("agentsite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def keep_django_logging(**_: Any) -> None:
    """Keep Celery from setting its own log format."""


@worker_init.connect
def be_there(**_: Any) -> None:
    """Tell the database of a worker that was started by itself, too, and look for runs without hints."""
    from agentsite import presence
    from agentsite.hands import lend_hands

    presence.begin()
    lend_hands()


@worker_shutting_down.connect
def drain(**_: Any) -> None:
    """Release the runs of long calls, which Celery would wait for."""
    from agentsite.leaving import leave_in_a_thread

    leave_in_a_thread()
