"""The real page over the fake host, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sd_webui_spillway.session import Session
from tests.fakes.host import FakeHost
from tests.fakes.session import open_session

from .chromium import running_browser


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "browser":
            item.add_marker(pytest.mark.browser)


@dataclass
class Served:
    """The page's server and what lies behind it."""

    url: str
    session: Session
    host: FakeHost


@dataclass
class Watched:
    """A page, and what it complained about in our name."""

    page: Any
    complaints: list[str] = field(default_factory=list)


@contextmanager
def serve_app(app: Any) -> Iterator[str]:
    """The address at which the app answers until the block ends."""
    from sd_webui_spillway.panel.app import PanelServer, bind

    ready = threading.Event()
    server = PanelServer(app, bind(0), lambda _url: ready.set())
    thread = threading.Thread(target=server.serve_until_stopped, daemon=True)
    thread.start()
    assert ready.wait(60), "the page did not come up"
    yield server.url
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("gradio", reason="the page needs gradio")
    from sd_webui_spillway.panel.app import build_app

    host = FakeHost()
    session = open_session(host, tmp_path_factory.mktemp("served"))
    with serve_app(build_app(session)) as url:
        yield Served(url, session, host)
    session.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def contexts(browser: Any) -> Iterator[dict[Any, Any]]:
    contexts: dict[Any, Any] = {}
    yield contexts
    for context in contexts.values():
        context.close()


@pytest.fixture
def open_page(served: Served, browser: Any, contexts: dict[Any, Any]) -> Iterator[Callable[..., Watched]]:
    pages: list[Any] = []

    def open_it(query: str = "?__theme=light", *, width: int = 1280, height: int = 900, **options: Any) -> Watched:
        # One context keeps what gradio's page is made of in its cache; loading that anew takes seconds.
        key = tuple(sorted({"locale": "en-US", **options}.items()))
        if key not in contexts:
            contexts[key] = browser.new_context(**dict(key))
        page = contexts[key].new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        watched = Watched(page)

        def complain(message: Any) -> None:
            if message.type == "error" and "/spillway/" in message.location.get("url", ""):
                watched.complaints.append(message.text)

        def fail(error: Any) -> None:
            if "/spillway/" in str(error.stack):
                watched.complaints.append(str(error))

        page.on("console", complain)
        page.on("pageerror", fail)
        page.goto(served.url + query, wait_until="domcontentloaded")
        page.wait_for_selector("#spillway-meter [data-taken-at]", timeout=60_000)
        page.wait_for_selector("#spillway-profiles .spillway-profile", timeout=10_000)
        return watched

    yield open_it
    # One test's failure must not become the next one's.
    served.session.stop()
    served.session.change_settings(badges=True)
    for page in pages:
        page.close()
