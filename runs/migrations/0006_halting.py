from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0005_full_text"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="halt",
            options={"permissions": (("halt_site", "Can stop everything on the site"),)},
        ),
    ]
