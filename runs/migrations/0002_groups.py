"""The groups: operators launch runs, reviewers see all of them and decide."""

from django.db import migrations

from runs.migrations._groups import give


class Migration(migrations.Migration):
    """Groups and their permissions."""

    dependencies = [
        ("runs", "0001_first"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [give({"operators": ["add_run"], "reviewers": ["view_run", "decide_interrupt"]})]
