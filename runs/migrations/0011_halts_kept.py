from django.db import migrations, models
from django.db.models import Q


def forget_what_is_over(apps, schema_editor):
    """A switch that is off says who took it back, and not who threw it, nor when: it tells nothing of a halt."""
    apps.get_model("runs", "Halt").objects.filter(on=False).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0010_shared_limits"),
    ]

    operations = [
        migrations.RunPython(forget_what_is_over, migrations.RunPython.noop),
        migrations.AlterModelOptions(
            name="halt",
            options={
                "ordering": ("-id",),
                "permissions": (("halt_site", "Can stop everything on the site"),),
            },
        ),
        migrations.AddField(
            model_name="halt",
            name="ended_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="halt",
            name="ended_by",
            field=models.CharField(blank=True, default="", max_length=150),
        ),
        migrations.AddIndex(
            model_name="halt",
            index=models.Index(fields=["ended_at"], name="halt_ended"),
        ),
        migrations.AddConstraint(
            model_name="halt",
            constraint=models.UniqueConstraint(
                condition=Q(on=True), fields=("on",), name="halt_one_at_a_time"
            ),
        ),
        migrations.AddConstraint(
            model_name="halt",
            constraint=models.CheckConstraint(
                condition=Q(on=True, ended_at__isnull=True) | Q(on=False, ended_at__isnull=False),
                name="halt_is_on_until_it_ends",
            ),
        ),
    ]
