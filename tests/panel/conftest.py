"""A session over the fake host, and a client for its routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sd_webui_spillway.session import Session
from tests.fakes.host import FakeHost
from tests.fakes.session import open_session


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(step_pause_seconds=0.001)


@pytest.fixture
def session(host: FakeHost, tmp_path: Any) -> Iterator[Session]:
    session = open_session(host, tmp_path)
    yield session
    session.close()


@pytest.fixture
def client(session: Session) -> Iterator[Any]:
    pytest.importorskip("httpx", reason="fastapi's test client needs httpx")
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from sd_webui_spillway.panel.routes import build_router

    app = FastAPI()
    app.include_router(build_router(session))
    with TestClient(app, base_url="http://127.0.0.1:7870") as client:
        yield client
