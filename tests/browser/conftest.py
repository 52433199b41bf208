"""The real page over the fake host, in a real browser."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sd_webui_spillway.session import Session
from tests.fakes.host import FakeHost
from tests.fakes.session import open_session

from .chromium import ARGUMENTS, find_chromium


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


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("gradio", reason="the page needs gradio")
    from sd_webui_spillway.panel.app import PanelServer, bind, build_app

    host = FakeHost()
    session = open_session(host, tmp_path_factory.mktemp("served"))
    ready = threading.Event()
    server = PanelServer(build_app(session), bind(0), lambda _url: ready.set())
    thread = threading.Thread(target=server.serve_until_stopped, daemon=True)
    thread.start()
    assert ready.wait(60), "the page did not come up"
    yield Served(server.url, session, host)
    server.should_exit = True
    thread.join(10)
    session.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    path = find_chromium()
    if path is None:
        assert "SPILLWAY_BROWSER_REQUIRED" not in os.environ, "no browser found, and this run must have one"
        pytest.skip("browser tests need Chromium, Chrome or Edge; name one in SPILLWAY_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


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
