"""`manage.py local_model`: a model with real weights, without a key or an account."""

import secrets
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import local_model
from agentsite.bootstrap import InstallFailed
from agentsite.migrating import prepare_database
from agentsite.ports import port_number, refuse_taken


class Command(BaseCommand):
    """Installs the model once, serves it on loopback under a fresh key, and registers it with the site."""

    help = "Serve SmolLM2-135M (Apache-2.0, 98 MB) on this machine until Ctrl-C and offer it to runs."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the port."""
        parser.add_argument("--port", type=port_number, help="on this machine only (default: any free port)")
        parser.add_argument("--data", metavar="DIR", help="the data directory of `up` (default: var)")

    def handle(self, *args: Any, port: int | None, **options: Any) -> None:
        """Serve until a signal."""
        from runs.actions import register_model  # a slow import, not for `--help`

        stopping = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        prepare_database()
        if port is not None:
            refuse_taken(port, "local_model")
        api_key = secrets.token_urlsafe(32)
        try:
            server = local_model.serve(local_model.install(settings.DATA_DIR), port or 0, api_key)
        except (InstallFailed, local_model.WrongWeights) as why:
            raise CommandError(str(why)) from None
        address = f"{server.listening_address}/v1"
        register_model(
            name=local_model.NAME,
            base_url=address,
            model_id=local_model.MODEL_ID,
            api_key=api_key,
            guided=True,
            context_tokens=local_model.CONTEXT_TOKENS // local_model.AT_A_TIME,
            max_output_tokens=local_model.LONGEST_REPLY,
            input_price=0.0,
            output_price=0.0,
        )
        self.stdout.write(f"{local_model.NAME} answers at {address} and is offered in the launch form.")
        self.stdout.write("It is a very small model: good for trying the site out, not for real work.")
        self.stdout.write("Ctrl-C stops it.")
        self.stdout.flush()
        stopping.wait()
        self.stdout.write("Stopped.")
