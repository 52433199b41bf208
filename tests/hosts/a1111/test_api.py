"""The routes on the webui's server are behind the log-ins that the webui has."""

from __future__ import annotations

import sys
import types

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from sd_webui_spillway.hosts.a1111.api import add_routes

USER = ("ann", "se:cret")


@pytest.fixture
def client(session, monkeypatch):
    def make(api_auth: str | None = None, page_asks: bool = False) -> TestClient:
        shared = types.ModuleType("modules.shared")
        shared.cmd_opts = types.SimpleNamespace(api_auth=api_auth)
        modules = types.ModuleType("modules")
        modules.__path__ = []
        monkeypatch.setitem(sys.modules, "modules", modules)
        monkeypatch.setitem(sys.modules, "modules.shared", shared)
        app = FastAPI()
        app.auth, app.tokens = ({"ben": "x"} if page_asks else None), {"token-of-ben": "ben"}
        app.openapi()
        add_routes(app, session)
        add_routes(app, session)
        return TestClient(app)

    return make


def test_without_a_log_in_everybody_may(client):
    assert client().get("/spillway/v1/memory").status_code == 200


def test_a_name_and_password_of_the_api(client):
    asked = client("bob:y,ann:se:cret")
    refused = asked.get("/spillway/v1/memory")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"] == "Basic"
    assert refused.json()["error"].startswith("Log in first")
    assert asked.get("/spillway/v1/memory", auth=USER).status_code == 200
    assert asked.get("/spillway/v1/memory", auth=("ann", "wrong")).status_code == 401
    assert asked.get("/spillway/v1/memory", auth=("eve", "y")).status_code == 401
    assert asked.get("/spillway/v1/memory", headers={"Authorization": "Basic !"}).status_code == 401
    assert asked.put("/spillway/v1/cap", json={"cap_bytes": 1}).status_code == 401


@pytest.mark.parametrize("cookie", ["access-token", "access-token-unsecure", "access-token-unsecure-x7"])
def test_the_log_in_of_the_page(client, cookie):
    asked = client(page_asks=True)
    assert asked.get("/spillway/v1/memory").status_code == 401
    asked.cookies.set(cookie, "made up")
    assert asked.get("/spillway/v1/memory").status_code == 401
    asked.cookies.set(cookie, "token-of-ben")
    assert asked.get("/spillway/v1/memory").status_code == 200


def test_with_both_one_is_enough(client):
    asked = client("ann:se:cret", page_asks=True)
    assert asked.get("/spillway/v1/memory").status_code == 401
    assert asked.get("/spillway/v1/memory", auth=USER).status_code == 200
    asked.cookies.set("access-token", "token-of-ben")
    assert asked.get("/spillway/v1/memory").status_code == 200


def test_a_change_from_another_site_is_refused_all_the_same(client):
    asked = client("ann:se:cret")
    headers = {"Origin": "http://elsewhere.example"}
    answer = asked.put("/spillway/v1/cap", json={"cap_bytes": 2**30}, headers=headers, auth=USER)
    assert answer.status_code == 403


def test_the_documentation_shows_the_lock_where_there_is_one(client):
    locked = client("ann:se:cret").get("/openapi.json").json()
    assert locked["paths"]["/spillway/v1/cap"]["put"]["security"] == [{"HTTPBasic": []}]
    assert locked["components"]["securitySchemes"] == {"HTTPBasic": {"type": "http", "scheme": "basic"}}
    for asked in (client(), client(page_asks=True)):
        assert "security" not in asked.get("/openapi.json").json()["paths"]["/spillway/v1/cap"]["put"]


def test_who_logged_in_on_the_page_may_with_a_header_that_is_no_password(client):
    asked = client("ann:se:cret", page_asks=True)
    asked.cookies.set("access-token", "token-of-ben")
    assert asked.get("/spillway/v1/memory", headers={"Authorization": "Basic !"}).status_code == 200


def test_they_are_in_the_documentation_once(client):
    asked = client("ann:se:cret")
    paths = asked.get("/openapi.json").json()["paths"]
    assert {"/spillway/v1/memory", "/spillway/v1/profile", "/spillway/v1/images"} <= set(paths)
    routes = [route.path for route in asked.app.routes]
    assert routes.count("/spillway/v1/memory") == 1
