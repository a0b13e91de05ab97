"""The web server's entrance: pages through Django, sockets through Channels, for this site's own origin."""

import gc
import os

from agentsite.pages import set_up

gc.disable()  # almost nothing of what is loaded is garbage
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
pages = set_up()

from channels.auth import AuthMiddlewareStack  # noqa: E402  (Django must be set up before its models are imported)
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from agentsite import presence  # noqa: E402
from agentsite.origin import SameOriginOnly  # noqa: E402
from runs.routing import websocket_urlpatterns  # noqa: E402

sockets = SameOriginOnly(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
presence.begin()
application = ProtocolTypeRouter({"http": pages, "websocket": sockets})
gc.freeze()
gc.enable()
