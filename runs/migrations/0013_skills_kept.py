import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0012_reserved_epoch"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="site_skills",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="runs.scripttext",
            ),
        ),
    ]
