"""The two groups that people are put in: operators launch runs, reviewers see all of them and decide."""

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

GROUPS = {"operators": ["add_run"], "reviewers": ["view_run", "decide_interrupt"]}


def make_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make them, with permissions that Django would only make after the last migration."""
    config = apps.get_app_config("runs")
    config.models_module = True
    create_permissions(config, apps=apps, verbosity=0, using=schema_editor.connection.alias)
    config.models_module = None
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for name, codenames in GROUPS.items():
        group, _ = groups.objects.get_or_create(name=name)
        group.permissions.add(
            *permissions.objects.filter(content_type__app_label="runs", codename__in=codenames)
        )


class Migration(migrations.Migration):
    """Groups and what they may."""

    dependencies = [
        ("runs", "0001_first"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
