"""The panel's HTTP routes on the webui's own server, behind the webui's own log-ins."""

from __future__ import annotations

import base64
import binascii
import importlib
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import Depends
from fastapi.security import HTTPBasic
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ...panel.origin import AsgiApp, Receive, Scope, Send
from ...panel.routes import PREFIX, build_router
from ...session import Session

_LOG_IN = "Log in first, as for the webui itself."


def add_routes(app: Any, session: Session) -> None:
    """Add them to the webui's app, once; "Reload UI" makes a new app and comes here again.

    With ``--api-auth`` a request needs one of its names and passwords, with ``--gradio-auth`` the log-in of the page;
    with both, one of the two is enough.
    """
    if any(getattr(route, "path", "").startswith(PREFIX) for route in app.routes):
        return
    accounts = _accounts(importlib.import_module("modules.shared").cmd_opts.api_auth)
    for route in build_router(session, [Depends(_ShownAsLocked())] if accounts else []).routes:
        if isinstance(route, Route):  # what include_router would make of it differs between versions of fastapi
            route.app = _LoggedInOnly(route.app, app, accounts)
            app.router.routes.append(route)
    app.openapi_schema = None  # made anew, with these routes in it


def _accounts(api_auth: str | None) -> dict[str, str]:
    """Passwords by name, from ``name:password,name:password``."""
    pairs = (pair.partition(":") for pair in (api_auth or "").split(",") if pair.strip())
    return {name: password for name, _, password in pairs}


class _ShownAsLocked(HTTPBasic):
    """Shows the lock of the webui's own routes at ``/docs``. It asks for nothing itself: :class:`_LoggedInOnly` does,
    before the route is reached, and also lets in who has logged in on the page."""

    def __init__(self) -> None:
        super().__init__(scheme_name="HTTPBasic")

    async def __call__(self) -> None:  # type: ignore[override] # fastapi 0.94 could not read the request's annotation
        return None


class _LoggedInOnly:
    """Answers 401 to whoever is not logged in. Around a route's app, for it must not depend on which handlers of
    errors the webui has."""

    def __init__(self, inner: AsgiApp, app: Any, accounts: Mapping[str, str]) -> None:
        self._inner = inner
        self._app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._may(Request(scope)):
            await self._inner(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Basic"} if self._accounts else {}
        answer = JSONResponse({"error": _LOG_IN, "detail": None}, status_code=401, headers=headers)
        await answer(scope, receive, send)

    def _may(self, request: Request) -> bool:
        page_asks = getattr(self._app, "auth", None) is not None
        if not page_asks and not self._accounts:
            return True
        return (page_asks and self._is_logged_in(request)) or self._has_password(request)

    def _is_logged_in(self, request: Request) -> bool:
        """gradio 3 names its cookies ``access-token`` and ``access-token-unsecure``, gradio 4 adds an id to both."""
        tokens: Mapping[str, str] = getattr(self._app, "tokens", {})
        cookies = (value for name, value in request.cookies.items() if name.startswith("access-token"))
        return any(tokens.get(value) is not None for value in cookies)

    def _has_password(self, request: Request) -> bool:
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        wanted = self._accounts.get(name)
        return wanted is not None and secrets.compare_digest(password.encode(), wanted.encode())
