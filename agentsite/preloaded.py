"""Loads the project once, for the processes that are forked to drive one run each (`runs/driver/alone.py`)."""

import django

django.setup()

from agentsite.management.commands import drive_alone  # noqa: E402

__all__ = ["drive_alone"]
