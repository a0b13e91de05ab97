"""The full-text index over `Remembered`."""

from django.db import migrations

from runs.migrations._full_text import make_index


class Migration(migrations.Migration):
    """The index."""

    dependencies = [("runs", "0004_copies_and_halt")]
    operations = [make_index()]
