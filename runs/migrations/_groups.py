"""The groups that people are put in, and their permissions: operators launch runs, reviewers see and decide all."""

from collections.abc import Iterable, Mapping

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

RECORDS = tuple(
    f"view_{name}" for name in ("budget", "compaction", "decision", "exchange", "interrupt", "step")
)
"""The permissions to look at a run's records in the admin."""


def give(permissions: Mapping[str, Iterable[str]], *, make: bool = True) -> migrations.RunPython:
    """Return the operation that gives groups permissions, by codename; missing groups are made, if `make`."""

    def run(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
        config = apps.get_app_config("runs")
        config.models_module = True  # Django would make permissions only after the last migration
        create_permissions(config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
        config.models_module = None
        groups, known = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
        if make:
            for name in permissions:
                groups.objects.get_or_create(name=name)
        for group in groups.objects.filter(name__in=permissions):
            wanted = known.objects.filter(
                content_type__app_label="runs", codename__in=list(permissions[group.name])
            )
            group.permissions.add(*wanted)

    return migrations.RunPython(run, migrations.RunPython.noop)
