"""Django's settings, from the environment (environment.py lists the variables)."""

import sys
from typing import Any

from agentsite.bootstrap import site_wanted
from agentsite.environment import (
    ROOT,
    celery_broker_of,
    cookie_name,
    data_in,
    database_of,
    install_machines,
    read_environment,
    redis_url_of,
    refuse_without_site,
)
from agentsite.mail import mail_of
from agentsite.registered import document_folders_of, python_limits_of, sql_databases_of
from runs.modules import look_in

ENVIRONMENT = read_environment()
BASE_DIR = ROOT
if (_site := site_wanted(sys.argv)) == "there":
    refuse_without_site(ENVIRONMENT)
DATA_DIR, SECRET_KEY = data_in(ENVIRONMENT, _site)
look_in(DATA_DIR / "modules")  # tools and machines of the site's own
DEBUG = ENVIRONMENT.debug
HTTPS = ENVIRONMENT.https
ALLOWED_HOSTS = list(ENVIRONMENT.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(ENVIRONMENT.csrf_trusted_origins)

INSTALLED_APPS = [
    "agentsite",
    "runs",
    "agentsite.administration.Administration",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "axes",
]
MIDDLEWARE = [
    "agentsite.csp.ContentSecurityPolicy",  # first, so that no answer is without it
    "agentsite.csp.KeptNowhere",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "agentsite.known_browser.RememberBrowser",
    "runs.views.sign_in.SignInFirst",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
    "runs.views.formless.LeadToForm",
    "runs.views.requests.SayWhyNot",
]
ROOT_URLCONF = "agentsite.urls"
ASGI_APPLICATION = "agentsite.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates", *install_machines(ENVIRONMENT)],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database_of(ENVIRONMENT.database_url, DATA_DIR, ENVIRONMENT.database_pool)}
TELLS_PRESENCE = True
"""True if processes of the site register in a server's database (presence.py)."""
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# People
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "sign-in"
PASSWORD_RESET_TIMEOUT = 3600  # also the lifetime of the sign-in link of `up`
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_USERNAME_CALLABLE = "agentsite.known_browser.counted_name"
AXES_LOCKOUT_CALLABLE = "agentsite.known_browser.locked_out"
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
AXES_DISABLE_ACCESS_LOG = True

# Browser security
SESSION_ENGINE = "agentsite.sessions"
SESSION_COOKIE_NAME = cookie_name("session", DATA_DIR, SECRET_KEY)
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_NAME = cookie_name("csrf", DATA_DIR, SECRET_KEY)
CSRF_COOKIE_SAMESITE = "Lax"
MESSAGES_COOKIE_NAME = cookie_name("messages", DATA_DIR, SECRET_KEY)
KNOWN_BROWSER_COOKIE_NAME = cookie_name("browser", DATA_DIR, SECRET_KEY)
MESSAGE_STORAGE = "agentsite.messages.Messages"
CSRF_FAILURE_VIEW = "agentsite.refusals.forged_form"
CSRF_COOKIE_SECURE = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = 86400 if HTTPS else 0
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 2**20  # a long script fits, and a body never fills the memory
ANONYMOUS_BODY_BYTES = 64 * 2**10  # larger ones of people who are signed out are not read (web.py, door.py)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# Static files
STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "agentsite.static_files.HashedStaticFiles"},
}
MEDIA_ROOT = DATA_DIR / "media"

WHITENOISE_KEEP_ONLY_HASHED_FILES = True  # half the files to compress at the first start

# Time and language
TIME_ZONE = "UTC"
USE_TZ = True
LANGUAGE_CODE = "en-us"
USE_I18N = False

# Mail, which agents send with the tool send_mail
_mail = mail_of(ENVIRONMENT.email_url, ENVIRONMENT.email_from)
EMAIL_HOST, EMAIL_PORT = _mail["EMAIL_HOST"], _mail["EMAIL_PORT"]
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail["EMAIL_HOST_USER"], _mail["EMAIL_HOST_PASSWORD"]
EMAIL_USE_SSL, EMAIL_USE_TLS = _mail["EMAIL_USE_SSL"], _mail["EMAIL_USE_TLS"]
EMAIL_TIMEOUT, DEFAULT_FROM_EMAIL = _mail["EMAIL_TIMEOUT"], _mail["DEFAULT_FROM_EMAIL"]
EMAIL_DOMAINS = ENVIRONMENT.email_domains

SQL_DATABASES = sql_databases_of(ENVIRONMENT.sql_databases, DATABASES["default"])
"""What agents may read with the tool sql_query: URLs by name."""

DOCUMENT_FOLDERS = document_folders_of(ENVIRONMENT.documents, DATA_DIR)
"""What agents may read with the tool search: folders by name."""

PYTHON_LIMITS = python_limits_of(ENVIRONMENT.python_limits)
"""What a script of the tool python may use."""

# OpenTelemetry: where spans of runs are sent, and whether with content
OTLP_ENDPOINT = ENVIRONMENT.otlp_endpoint
OTLP_CONTENT = ENVIRONMENT.otlp_content

# The broker carries hints only: without one everything still works, a little later
REDIS_URL = redis_url_of(ENVIRONMENT.redis_url, DATA_DIR)
HINTS = ENVIRONMENT.hints and bool(REDIS_URL)
QUEUE_APPLICATION = "agentsite.celery.app"
DRAIN_SECONDS = ENVIRONMENT.drain
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {}

LEASE_SECONDS = ENVIRONMENT.lease_seconds
PROCESS_NAME = ENVIRONMENT.process_name
MACHINE_DEFAULTS = {
    "planned": {
        "retry_buffer": ENVIRONMENT.retry_buffer,
        "replan_failure_threshold": ENVIRONMENT.replan_failure_threshold,
    }
}
"""The site's values for settings that a launch does not name."""

CELERY_BROKER_URL = celery_broker_of(REDIS_URL)
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 0}
CELERY_TASK_DEFAULT_QUEUE = "agentsite"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = ENVIRONMENT.broker_timeout
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 3600,
    "socket_timeout": ENVIRONMENT.broker_timeout,
    "socket_connect_timeout": ENVIRONMENT.broker_timeout,
    "socket_keepalive": REDIS_URL.startswith("redis"),
    "health_check_interval": 15,
    "retry_on_timeout": False,
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "agentsite.logs.OneLine"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": ENVIRONMENT.log_level},
    "loggers": {
        "django": {"handlers": [], "level": ENVIRONMENT.log_level, "propagate": True},
        "django.server": {"handlers": [], "level": ENVIRONMENT.log_level, "propagate": True},
        # Refused requests have their one line from agentsite.refusals
        "django.security": {"level": "CRITICAL"},
        "django.request": {"level": "ERROR", "filters": ["no_503"]},
        # It warns at each try while the server is away, which runs.store.health logs now and then
        "psycopg.pool": {"level": "ERROR"},
    },
    "filters": {
        "no_503": {  # the unhealthy part has its one line from runs.store.health
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: getattr(record, "status_code", 0) != 503,
        }
    },
}
