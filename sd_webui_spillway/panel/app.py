"""The panel as a page of its own, on this machine's own address only."""

from __future__ import annotations

import errno
import socket
import sys
import webbrowser
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from .. import __version__
from ..errors import BadInputError, UnavailableError
from ..session import Session
from .assets import require_assets
from .gradio_compat import mount, new_blocks
from .origin import SameOriginOnly
from .page import HeadInjector
from .panel import build_panel
from .pictures import Pictures
from .routes import PREFIX, build_router

ADDRESS = "127.0.0.1"
DEFAULT_PORT = 7870
_TITLE = "Spillway"


def head_markup() -> str:
    """What the page's head needs: the style, the script, and a width that phones keep to."""
    asset = f"{PREFIX}/assets"
    return (
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="{asset}/style.css?v={__version__}">'
        f'<script type="module" src="{asset}/spillway.mjs?v={__version__}"></script>'
    )


def build_app(session: Session) -> FastAPI:
    """The routes and the gradio page over a session, safe from other sites.

    Raises:
        UnavailableError: the page's own files are missing.
    """
    require_assets()
    pictures = Pictures(session.output_folder)
    app = FastAPI(title=_TITLE, version=__version__)
    app.include_router(build_router(session))
    with new_blocks(_TITLE) as blocks:
        build_panel(session, pictures, standalone=True)
    app = mount(app, blocks, pictures.folders)
    app.add_middleware(HeadInjector, markup=head_markup())
    app.add_middleware(SameOriginOnly)
    # A name that another site points at this machine would pass as the same origin.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[ADDRESS, "localhost"])
    return app


def bind(port: int) -> socket.socket:
    """A socket that listens on this machine at ``port``; 0 takes any that is free.

    Raises:
        BadInputError: no port number. UnavailableError: the port is in use or may not be used.
    """
    if not 0 <= port <= 65535:
        raise BadInputError(f"The port must be from 0 to 65535, not {port}.")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # On Windows SO_REUSEADDR would let two servers share a port; elsewhere it only spares the wait after a restart.
    option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR) if sys.platform == "win32" else None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR if option is None else option, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        why = "in use by another program" if error.errno == errno.EADDRINUSE else "not free to use"
        raise UnavailableError(
            f"Port {port} is {why}; choose another one or end that program.", detail=str(error)
        ) from error
    return listener


class PanelServer(uvicorn.Server):
    """Serves an app on a socket and tells when it answers. ``should_exit = True`` ends it from any thread."""

    def __init__(
        self,
        app: FastAPI,
        listener: socket.socket,
        on_ready: Callable[[str], None] | None = None,
        on_exit: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws_ping_interval=None)
        )
        self._listener = listener
        self._on_ready = on_ready
        self._on_exit = on_exit
        self.url = f"http://{ADDRESS}:{listener.getsockname()[1]}/"

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and self._on_ready is not None:
            self._on_ready(self.url)

    async def shutdown(self, sockets: Any = None) -> None:
        self._on_exit()  # first: the event loop does not end while a page's event waits for a job
        await super().shutdown(sockets=sockets)

    def serve_until_stopped(self) -> None:
        """Block until asked to end; Ctrl-C ends it without a traceback."""
        try:
            self.run(sockets=[self._listener])
        except KeyboardInterrupt:
            pass
        finally:
            self._listener.close()


def serve(
    session: Session,
    port: int = DEFAULT_PORT,
    *,
    open_browser: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the panel until Ctrl-C. The session stays open; whoever built it closes it.

    Args:
        port: on 127.0.0.1; 0 takes any that is free.
        open_browser: show the page in the user's browser once it answers.
        on_ready: told the page's address once it answers.

    Raises:
        UnavailableError: the port is in use. BadInputError: no port number.
    """
    listener = bind(port)

    def ready(url: str) -> None:
        if on_ready is not None:
            on_ready(url)
        if open_browser:
            webbrowser.open(url)

    try:
        app = build_app(session)
    except BaseException:
        listener.close()
        raise
    PanelServer(app, listener, ready, session.stop).serve_until_stopped()
