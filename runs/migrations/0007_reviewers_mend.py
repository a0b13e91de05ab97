"""Reviewers may look at compactions, and change what the model reads."""

from django.db import migrations

from runs.migrations._groups import give


class Migration(migrations.Migration):
    """The permissions."""

    dependencies = [("runs", "0006_halting")]
    operations = [give({"reviewers": ["view_compaction", "change_compaction"]})]
