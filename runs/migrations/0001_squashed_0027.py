"""All tables, groups and indexes of a new site, in one; it replaces the migrations that older sites have applied."""

import uuid

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import runs.models.log
from runs.migrations._full_text import make_index
from runs.migrations._groups import RECORDS, give


class Migration(migrations.Migration):
    """The tables."""

    replaces = [
        ("runs", "0001_first"),
        ("runs", "0002_groups"),
        ("runs", "0003_context"),
        ("runs", "0004_copies_and_halt"),
        ("runs", "0005_full_text"),
        ("runs", "0006_halting"),
        ("runs", "0007_reviewers_mend"),
        ("runs", "0008_prompt_upto"),
        ("runs", "0009_restore_epoch"),
        ("runs", "0010_shared_limits"),
        ("runs", "0011_halts_kept"),
        ("runs", "0012_reserved_epoch"),
        ("runs", "0013_skills_kept"),
        ("runs", "0014_hosts_that_calls_may_contact"),
        ("runs", "0015_runs_by_the_operator"),
        ("runs", "0016_admin_groups"),
        ("runs", "0017_silent_looks"),
        ("runs", "0018_what_is_under_way"),
        ("runs", "0019_continues"),
        ("runs", "0020_model_seed"),
        ("runs", "0021_fact_kinds_and_figures"),
        ("runs", "0022_seals_without_double_indexes"),
        ("runs", "0023_restored_at"),
        ("runs", "0024_provider_kinds"),
        ("runs", "0025_turns_fallbacks_and_prices"),
        ("runs", "0026_admin_lists"),
        ("runs", "0027_mcp_servers"),
    ]
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Interrupt",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("seq", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=20)),
                ("title", models.TextField()),
                ("why", models.TextField(blank=True, default="")),
                ("tool", models.CharField(blank=True, default="", max_length=100)),
                ("args_json", models.TextField(default="{}")),
                ("schema_json", models.TextField(default="{}")),
                ("effects", models.CharField(blank=True, default="", max_length=8)),
                ("risk", models.CharField(default="unknown", max_length=8)),
                ("fingerprint", models.CharField(blank=True, default="", max_length=16)),
                ("limit", models.CharField(blank=True, default="", max_length=20)),
                ("figures_json", models.TextField(blank=True, default="")),
                ("host", models.CharField(blank=True, default="", max_length=260)),
                ("verdicts_json", models.TextField(default="[]")),
                ("revision", models.PositiveIntegerField(default=1)),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                ("on_timeout", models.CharField(default="deny", max_length=8)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("decided", "Decided"),
                            ("expired", "Expired"),
                            ("superseded", "Superseded"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": (models.OrderBy(models.F("deadline"), nulls_last=True), "created_at"),
            },
        ),
        migrations.CreateModel(
            name="McpServer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=40, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("stdio", "A program on this machine (stdio)"),
                            ("http", "An address (streamable HTTP)"),
                        ],
                        default="stdio",
                        max_length=5,
                    ),
                ),
                ("command", models.TextField(blank=True, default="")),
                ("variables", models.TextField(blank=True, default="")),
                ("address", models.CharField(blank=True, default="", max_length=500)),
                ("headers", models.TextField(blank=True, default="")),
                (
                    "timeout_s",
                    models.PositiveIntegerField(
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(3600),
                        ],
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("version", models.PositiveIntegerField(default=0)),
                ("fault", models.TextField(blank=True, default="")),
                ("looked_at", models.DateTimeField(blank=True, null=True)),
                ("look_wanted_at", models.DateTimeField(blank=True, null=True)),
                ("looking_since", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
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
        migrations.CreateModel(
            name="ScriptText",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("text", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="SiteHost",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "host",
                    models.CharField(
                        help_text="Such as example.com, *.example.com or example.com:8443.",
                        max_length=260,
                        unique=True,
                    ),
                ),
            ],
            options={
                "ordering": ("host",),
            },
        ),
        migrations.CreateModel(
            name="SiteRule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveIntegerField(default=100)),
                (
                    "rule_json",
                    models.TextField(help_text='As JSON, e.g. {"when": {"tool": "send_*"}, "do": "ask"}.'),
                ),
                ("enabled", models.BooleanField(default=True)),
            ],
            options={
                "ordering": ("position", "id"),
            },
        ),
        migrations.CreateModel(
            name="Skill",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.SlugField(max_length=80, unique=True)),
                ("text", models.TextField()),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Halt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("on", models.BooleanField(default=False)),
                ("by_name", models.CharField(blank=True, default="", max_length=150)),
                ("reason", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("ended_by", models.CharField(blank=True, default="", max_length=150)),
            ],
            options={
                "ordering": ("-id",),
                "permissions": (("halt_site", "Can stop everything on the site"),),
                "indexes": [models.Index(fields=["ended_at"], name="halt_ended")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("on", True)), fields=("on",), name="halt_one_at_a_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("on", True)),
                            models.Q(("ended_at__isnull", False), ("on", False)),
                            _connector="OR",
                        ),
                        name="halt_is_on_until_it_ends",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Decision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("verdict", models.CharField(max_length=10)),
                ("args_json", models.TextField(blank=True, null=True)),
                ("message", models.TextField(blank=True, default="")),
                ("to_step", models.PositiveIntegerField(blank=True, null=True)),
                ("allow_host", models.BooleanField(default=False)),
                ("by_name", models.CharField(max_length=150)),
                ("channel", models.CharField(max_length=10)),
                ("revision_seen", models.PositiveIntegerField(blank=True, null=True)),
                ("fingerprint_seen", models.CharField(blank=True, default="", max_length=16)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="decisions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "interrupt",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="decision",
                        to="runs.interrupt",
                    ),
                ),
            ],
            options={
                "ordering": ("at",),
            },
        ),
        migrations.CreateModel(
            name="ModelProfile",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=80, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("script", "Script (plays prepared replies)"),
                            ("openai", "OpenAI-compatible server"),
                            ("responses", "OpenAI (Responses API)"),
                            ("anthropic", "Anthropic"),
                            ("google", "Google Gemini"),
                            ("mistral", "Mistral"),
                            ("openrouter", "OpenRouter"),
                        ],
                        default="openai",
                        max_length=10,
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("base_url", models.URLField(blank=True, default="")),
                ("model_id", models.CharField(blank=True, default="", max_length=200)),
                ("sealed_key", models.TextField(blank=True, default="", editable=False)),
                (
                    "key_variable",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Name of an environment variable that holds the key.",
                        max_length=80,
                    ),
                ),
                (
                    "output_mode",
                    models.CharField(
                        choices=[
                            ("native", "JSON schema (response_format)"),
                            ("json_object", "JSON object, schema in the prompt"),
                            ("prompted", "Schema in the prompt only"),
                        ],
                        default="native",
                        max_length=12,
                    ),
                ),
                (
                    "input_price",
                    models.FloatField(blank=True, help_text="USD per million input tokens.", null=True),
                ),
                (
                    "output_price",
                    models.FloatField(blank=True, help_text="USD per million output tokens.", null=True),
                ),
                (
                    "cached_price",
                    models.FloatField(
                        blank=True,
                        help_text="USD per million input tokens that the server had cached.",
                        null=True,
                    ),
                ),
                (
                    "cache_write_price",
                    models.FloatField(
                        blank=True,
                        help_text="USD per million input tokens that the server wrote to its cache.",
                        null=True,
                    ),
                ),
                (
                    "reasoning_price",
                    models.FloatField(
                        blank=True,
                        help_text="USD per million reasoning tokens. Leave empty for the output price.",
                        null=True,
                    ),
                ),
                ("context_tokens", models.PositiveIntegerField(default=32000)),
                ("max_output_tokens", models.PositiveIntegerField(default=2000)),
                ("timeout_s", models.FloatField(default=120.0, help_text="Seconds for one call in all.")),
                (
                    "patience_s",
                    models.FloatField(
                        default=600.0,
                        help_text="Seconds that a call waits in all for a busy server, before a person is asked. 0: three attempts.",
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(86400),
                        ],
                    ),
                ),
                (
                    "most_calls",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="By all workers together. Leave empty for no limit.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="most calls at once",
                    ),
                ),
                (
                    "most_requests",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="By all workers together. Leave empty for no limit.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="most requests a minute",
                    ),
                ),
                (
                    "most_tokens",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Of prompts and replies, by all workers together. Leave empty for no limit.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="most tokens a minute",
                    ),
                ),
                (
                    "seed",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Sent with each call, so that the server can give the same reply again. Leave empty for none.",
                        null=True,
                    ),
                ),
                (
                    "guided",
                    models.BooleanField(
                        default=False,
                        help_text="For weak models: narrow reply schemas, worked examples, tools in the order given.",
                    ),
                ),
                (
                    "left_out",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Options that this server refused and that are no longer sent. Clear the field to try them again.",
                        max_length=200,
                    ),
                ),
                (
                    "script_json",
                    models.TextField(
                        blank=True, default="", help_text="The script of a model of kind script."
                    ),
                ),
                (
                    "fallback",
                    models.ForeignKey(
                        blank=True,
                        help_text="The model that takes over once the wait for a busy server is over. Leave empty to ask a person.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="runs.modelprofile",
                    ),
                ),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("machine", models.CharField(max_length=40)),
                ("goal", models.TextField()),
                ("settings_json", models.TextField(default="{}")),
                ("site_rules_json", models.TextField(default="[]")),
                ("site_hosts_json", models.TextField(default="[]")),
                ("model", models.CharField(blank=True, default="", max_length=80)),
                ("switched_to", models.CharField(blank=True, db_default="", default="", max_length=80)),
                ("by_operator", models.BooleanField(default=False)),
                ("parent_seq", models.PositiveIntegerField(blank=True, null=True)),
                ("child_name", models.CharField(blank=True, default="", max_length=40)),
                ("origin", models.CharField(blank=True, default="", max_length=8)),
                ("copied_upto", models.PositiveIntegerField(blank=True, null=True)),
                ("restored_at", models.DateTimeField(blank=True, null=True)),
                ("copied_usd", models.FloatField(default=0.0)),
                ("copied_tokens", models.PositiveBigIntegerField(default=0)),
                ("reserved_usd", models.FloatField(default=0.0)),
                ("reserved_tokens", models.PositiveBigIntegerField(default=0)),
                ("reserved_epoch", models.PositiveIntegerField(default=0)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("waiting", "Waiting"),
                            ("paused", "Paused"),
                            ("succeeded", "Succeeded"),
                            ("stopped", "Stopped"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                        max_length=10,
                    ),
                ),
                ("exit_reason", models.CharField(blank=True, max_length=40, null=True)),
                ("ok", models.BooleanField(blank=True, null=True)),
                ("answer", models.TextField(blank=True, null=True)),
                ("answer_source", models.CharField(blank=True, max_length=20, null=True)),
                ("node", models.CharField(max_length=40)),
                ("head", models.PositiveIntegerField(default=0)),
                ("head_hash", models.CharField(blank=True, default="", max_length=64)),
                ("prompt_hash", models.CharField(blank=True, default="", max_length=64)),
                ("model_calls", models.PositiveIntegerField(default=0)),
                ("cached_model_calls", models.PositiveIntegerField(default=0)),
                ("tool_calls", models.PositiveIntegerField(default=0)),
                ("input_tokens", models.PositiveBigIntegerField(default=0)),
                ("output_tokens", models.PositiveBigIntegerField(default=0)),
                ("cost_usd", models.FloatField(default=0.0)),
                ("active_seconds", models.FloatField(default=0.0)),
                ("epoch", models.PositiveIntegerField(default=0)),
                ("worker", models.CharField(blank=True, default="", max_length=40)),
                ("lease_until", models.DateTimeField(default=django.utils.timezone.now)),
                ("silent_looks", models.PositiveSmallIntegerField(default=0)),
                ("doing_json", models.TextField(blank=True, default="")),
                ("due_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "continues",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="continued_by",
                        to="runs.run",
                    ),
                ),
                (
                    "copied_from",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="copies",
                        to="runs.run",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="runs",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="runs.run",
                    ),
                ),
                (
                    "root",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="family",
                        to="runs.run",
                    ),
                ),
                (
                    "script",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.scripttext",
                    ),
                ),
                (
                    "site_skills",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runs.scripttext",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
                "permissions": (("decide_interrupt", "Can decide interrupts"),),
            },
        ),
        migrations.CreateModel(
            name="Remembered",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.PositiveIntegerField()),
                ("text", models.TextField(blank=True, default="")),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="remembered", to="runs.run"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ModelTurn",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("epoch", models.PositiveIntegerField()),
                ("tokens", models.PositiveBigIntegerField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "profile",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="turns",
                        to="runs.modelprofile",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="runs.run"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="interrupt",
            name="run",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="interrupts",
                to="runs.run",
            ),
        ),
        migrations.CreateModel(
            name="Exchange",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.PositiveIntegerField()),
                ("kind", models.CharField(max_length=12)),
                ("name", models.CharField(blank=True, default="", max_length=100)),
                ("nth", models.PositiveIntegerField(default=0)),
                ("attempt", models.PositiveSmallIntegerField(default=1)),
                ("request_json", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[("asked", "Asked"), ("started", "Started"), ("answered", "Answered")],
                        max_length=8,
                    ),
                ),
                ("answer_json", models.TextField(blank=True, null=True)),
                ("key", models.CharField(max_length=64)),
                ("fingerprint", models.CharField(blank=True, default="", max_length=16)),
                ("prompt_hash", models.CharField(blank=True, default="", max_length=64)),
                ("prompt_chars", models.PositiveIntegerField(default=0)),
                ("prompt_upto", models.PositiveIntegerField(default=0)),
                ("remembered", models.BooleanField(default=False)),
                ("input_tokens", models.PositiveIntegerField(default=0)),
                ("output_tokens", models.PositiveIntegerField(default=0)),
                ("cost_usd", models.FloatField(default=0.0)),
                ("started_at", models.DateTimeField()),
                ("answered_at", models.DateTimeField(blank=True, null=True)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="exchanges",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ("run", "seq"),
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("scope", models.CharField(max_length=80)),
                ("name", models.CharField(max_length=40)),
                ("used", models.FloatField(default=0)),
                ("limit", models.FloatField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="budgets",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ("id",),
            },
        ),
        migrations.CreateModel(
            name="Artifact",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("version", models.PositiveIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("inline", "Inline"),
                            ("file", "File"),
                            ("display", "Display"),
                            ("search", "Search"),
                        ],
                        max_length=8,
                    ),
                ),
                ("media_type", models.CharField(max_length=100)),
                ("size", models.PositiveBigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("seq", models.PositiveIntegerField()),
                ("call_seq", models.PositiveIntegerField(blank=True, null=True)),
                ("tool", models.CharField(blank=True, default="", max_length=100)),
                ("error", models.TextField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="artifacts",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ("run", "name", "version"),
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.PositiveIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("transition", "Transition"),
                            ("ask", "Ask"),
                            ("stop", "Stop"),
                            ("rewind", "Rewind"),
                            ("decision", "Decision"),
                            ("limit", "Limit"),
                            ("pause", "Pause"),
                            ("recovered", "Recovered"),
                            ("note", "Note"),
                            ("compaction", "Compaction"),
                        ],
                        max_length=12,
                    ),
                ),
                ("live", models.BooleanField(default=True)),
                ("node", models.CharField(max_length=40)),
                ("edge", models.CharField(blank=True, max_length=40, null=True)),
                ("to", models.CharField(blank=True, max_length=40, null=True)),
                ("facts_json", models.TextField(default="[]")),
                ("fact_kinds", runs.models.log.FactKinds(default="", editable=False)),
                ("state_json", models.TextField(blank=True, null=True)),
                ("at", models.DateTimeField()),
                ("ms", models.FloatField(default=0.0)),
                ("seals", models.TextField(blank=True, default="", editable=False)),
                ("hash", models.CharField(max_length=64)),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ("run", "seq"),
            },
        ),
        migrations.CreateModel(
            name="Compaction",
            fields=[],
            options={
                "ordering": ("-run", "-seq"),
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("runs.step",),
        ),
        migrations.CreateModel(
            name="McpTool",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("found_json", models.TextField(blank=True, default="")),
                ("found_sha256", models.CharField(blank=True, default="", max_length=64)),
                ("approved_json", models.TextField(blank=True, default="")),
                ("approved_sha256", models.CharField(blank=True, default="", max_length=64)),
                ("approved_by", models.CharField(blank=True, default="", max_length=150)),
                ("approved_at", models.DateTimeField(blank=True, null=True)),
                ("enabled", models.BooleanField(default=True)),
                ("effects", models.CharField(default="send", max_length=10)),
                ("repeatable", models.BooleanField(default=False)),
                ("reads", models.CharField(blank=True, default="untrusted", max_length=10)),
                ("outward", models.CharField(blank=True, default="", max_length=260)),
                (
                    "server",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tools", to="runs.mcpserver"
                    ),
                ),
            ],
            options={
                "ordering": ("name",),
                "constraints": [models.UniqueConstraint(fields=("server", "name"), name="mcp_tool_once")],
            },
        ),
        migrations.AddConstraint(
            model_name="modelprofile",
            constraint=models.CheckConstraint(
                condition=models.Q(("fallback", models.F("id")), _negated=True),
                name="model_not_its_own_fallback",
            ),
        ),
        migrations.AddConstraint(
            model_name="remembered",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="remembered_once"),
        ),
        migrations.AddIndex(
            model_name="modelturn",
            index=models.Index(fields=["profile", "began_at"], name="model_turn_by_time"),
        ),
        migrations.AddIndex(
            model_name="interrupt",
            index=models.Index(fields=["status", "deadline"], name="interrupt_pending"),
        ),
        migrations.AddConstraint(
            model_name="interrupt",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="interrupt_once"),
        ),
        migrations.AddConstraint(
            model_name="exchange",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="exchange_once"),
        ),
        migrations.AddConstraint(
            model_name="exchange",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("answer_json__isnull", False), ("status", "answered")),
                    models.Q(models.Q(("status", "answered"), _negated=True), ("answer_json__isnull", True)),
                    _connector="OR",
                ),
                name="exchange_answer_when_answered",
            ),
        ),
        migrations.AddConstraint(
            model_name="budget",
            constraint=models.UniqueConstraint(fields=("run", "scope", "name"), name="budget_once"),
        ),
        migrations.AddConstraint(
            model_name="budget",
            constraint=models.CheckConstraint(
                condition=models.Q(("used__gte", 0)), name="budget_used_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="artifact",
            constraint=models.UniqueConstraint(
                fields=("run", "name", "version"), name="artifact_version_once"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["owner", "-id"], name="run_of_owner"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["status", "-id"], name="run_by_status"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["created_at"], name="run_by_date"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status__in", ("queued", "running"))), fields=["due_at"], name="run_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "status__in",
                        (
                            "queued",
                            "running",
                            "waiting",
                            "paused",
                            "succeeded",
                            "stopped",
                            "failed",
                            "cancelled",
                        ),
                    )
                ),
                name="run_status_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("exit_reason__isnull", False),
                        ("status__in", ("succeeded", "stopped", "failed", "cancelled")),
                    ),
                    models.Q(
                        ("exit_reason__isnull", True),
                        ("status__in", ("queued", "running", "waiting", "paused")),
                    ),
                    _connector="OR",
                ),
                name="run_reason_when_finished",
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(fields=("parent", "parent_seq"), name="run_one_child_per_ask"),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("kind", "compaction")), fields=["id"], name="step_compactions"
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="step_once"),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.CheckConstraint(condition=models.Q(("seq__gte", 1)), name="step_counts_from_1"),
        ),
        make_index(),
        give(
            {
                "operators": ["add_run", *RECORDS],
                "reviewers": ["view_run", "decide_interrupt", "change_compaction", *RECORDS],
            }
        ),
    ]
