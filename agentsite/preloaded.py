"""Load the project once, for the forked processes that drive one run each (`runs/driver/alone.py`)."""

import django

django.setup()

from agentsite.management.commands import drive_alone  # noqa: E402

__all__ = ["drive_alone"]
