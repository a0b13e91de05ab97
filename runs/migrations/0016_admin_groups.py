"""Reviewers look at every run's records in the admin, operators at those of their own runs; neither changes any."""

from django.db import migrations

from runs.migrations._groups import RECORDS, give


class Migration(migrations.Migration):
    """The permissions of both groups, if a site still has them."""

    dependencies = [("runs", "0015_runs_by_the_operator")]
    operations = [give({"operators": RECORDS, "reviewers": RECORDS}, make=False)]
