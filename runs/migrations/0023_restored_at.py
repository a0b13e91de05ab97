"""Mark restored runs, and runs that come from them; earlier versions told them by a row of the log alone."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q

from runs.engine.fact_kinds import name_of


def mark(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Fill the column of unfinished and ended runs that a restore paused, then of their forks and children."""
    run, step = apps.get_model("runs", "Run"), apps.get_model("runs", "Step")
    pauses = step.objects.filter(kind="pause", fact_kinds__contains=name_of("run.paused", "backup"))
    marked = dict(pauses.order_by("pk").values_list("run_id", "at"))
    while marked:
        for key, at in marked.items():
            run.objects.filter(pk=key).update(restored_at=at)
        later = run.objects.filter(Q(parent__in=marked) | Q(copied_from__in=marked), restored_at=None)
        found = later.values_list("pk", "parent_id", "copied_from_id")
        marked = {key: marked.get(parent) or marked[source] for key, parent, source in found}


class Migration(migrations.Migration):
    """The column."""

    dependencies = [("runs", "0022_seals_without_double_indexes")]
    operations = [
        migrations.AddField(
            model_name="run",
            name="restored_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(mark, migrations.RunPython.noop),
    ]
