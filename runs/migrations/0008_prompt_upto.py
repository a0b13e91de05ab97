from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_reviewers_mend"),
    ]

    operations = [
        migrations.AddField(
            model_name="exchange",
            name="prompt_upto",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
