"""A run says whether the installation's operator launched it: one whose owner was deleted has no owner either."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def take_owners_for_granted(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Earlier runs without an owner count as the operator's: as a rule they were launched by a command."""
    apps.get_model("runs", "Run").objects.filter(owner__isnull=True).update(by_operator=True)


class Migration(migrations.Migration):
    """A column, and what it is for earlier runs."""

    dependencies = [("runs", "0014_hosts_that_calls_may_contact")]
    operations = [
        migrations.AddField("run", "by_operator", models.BooleanField(default=False)),
        migrations.RunPython(take_owners_for_granted, migrations.RunPython.noop),
    ]
