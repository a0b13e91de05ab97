"""Reviewers may look at compactions, and change what the model reads."""

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

CODENAMES = ["view_compaction", "change_compaction"]


def let_reviewers_mend(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Give the group the permissions, which Django would only make after the last migration."""
    config = apps.get_app_config("runs")
    config.models_module = True
    create_permissions(config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
    config.models_module = None
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    reviewers, _ = groups.objects.get_or_create(name="reviewers")
    reviewers.permissions.add(
        *permissions.objects.filter(content_type__app_label="runs", codename__in=CODENAMES)
    )


class Migration(migrations.Migration):
    """What the group may."""

    dependencies = [("runs", "0006_halting")]
    operations = [migrations.RunPython(let_reviewers_mend, migrations.RunPython.noop)]
