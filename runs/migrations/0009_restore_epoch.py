from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0008_prompt_upto"),
    ]

    operations = [
        migrations.CreateModel(
            name="RestoreEpoch",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("value", models.CharField(max_length=32)),
                ("restored", models.CharField(blank=True, default="", max_length=32)),
            ],
        ),
    ]
