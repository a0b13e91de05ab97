"""`manage.py sign_in_link`: a fresh link while the site runs, for a person without a password."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite.ports import address_of
from agentsite.sign_in_link import make_link
from agentsite.supervise import read_record


class Command(BaseCommand):
    """Prints a link. People who may run this command may read the database anyway."""

    help = "Print a link that signs a person in once, within an hour."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the person and the site's address."""
        parser.add_argument("person", nargs="?", default="admin", help="a user name (default: admin)")
        parser.add_argument("--address", help="default: where the site runs; else http://127.0.0.1:8000")

    def handle(self, *args: Any, person: str, address: str | None, **options: Any) -> None:
        """Print the link, alone on its line."""
        found = User.objects.filter(username=person, is_active=True).first()
        if found is None:
            names = ", ".join(User.objects.filter(is_active=True).values_list("username", flat=True)[:10])
            raise CommandError(f"There is no active user {person!r}. Users: {names or 'none yet'}.")
        self.stdout.write(make_link(found, address or running_at()))


def running_at() -> str:
    """Return the address noted by a running `up` in the data directory; without it the usual one."""
    noted = read_record(settings.DATA_DIR / "run" / "up.json").get("address")
    return noted if isinstance(noted, str) else address_of(8000)
