"""The site's settings for tests: a data directory that goes away, no broker, fast passwords, no sync."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="agentsite-tests-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
os.environ["AGENTSITE_DATA_DIR"] = str(FOLDER)
os.environ["REDIS_URL"] = ""

from agentsite.settings import *  # noqa: E402,F403  (the environment above must be set first)
from agentsite.settings import DATABASES, STATIC_ROOT, STORAGES  # noqa: E402

STATIC_ROOT.mkdir(exist_ok=True)
STORAGES = STORAGES | {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
if "init_command" in (
    sqlite := DATABASES["default"].get("OPTIONS", {})
):  # no test in one process cuts the power
    sqlite["init_command"] = sqlite["init_command"].replace("synchronous=FULL", "synchronous=OFF")
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AXES_ENABLED = False
TELLS_PRESENCE = False  # a process of tests is no site, and drops its database
