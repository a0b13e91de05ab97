"""Reviewers look at every run's records in the admin, operators at those of their own runs; neither changes any."""

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

RECORDS = ("budget", "compaction", "decision", "exchange", "interrupt", "step")


def let_them_look(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Give both groups, where a site still has them, the permissions, which Django would make after the last migration."""
    config = apps.get_app_config("runs")
    config.models_module = True
    create_permissions(config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
    config.models_module = None
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    wanted = permissions.objects.filter(
        content_type__app_label="runs", codename__in=[f"view_{name}" for name in RECORDS]
    )
    for group in groups.objects.filter(name__in=("operators", "reviewers")):
        group.permissions.add(*wanted)


class Migration(migrations.Migration):
    """What the groups may look at."""

    dependencies = [("runs", "0015_runs_by_the_operator")]
    operations = [migrations.RunPython(let_them_look, migrations.RunPython.noop)]
