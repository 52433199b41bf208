"""Keeping other web sites away from a server that listens on this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSED = "Another web site asked for this; it is refused."


def scope_headers(scope: Scope) -> dict[str, str]:
    """The request's headers, names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", [])}


def is_cross_origin(headers: MutableMapping[str, str] | dict[str, str]) -> bool:
    """True where a browser says that another site sent the request. A program that is no browser says neither."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    return not origin or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


class SameOriginOnly:
    """ASGI middleware: refuses every state-changing request, and every web socket, that another site sends."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        changes = kind == "websocket" or (kind == "http" and scope["method"] not in SAFE_METHODS)
        if not (changes and is_cross_origin(scope_headers(scope))):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            body = ('{"error": "' + REFUSED + '", "detail": null}').encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})
