"""Our routes and settings in the real webui with its page, ``--gradio-auth`` and ``--api-auth``: for who has logged in
there, or has a password, as for the webui's own routes."""

from __future__ import annotations

import base64
import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.hosts.a1111.watched import prepare
from tests.hosts.webui import NEEDED, WEBUI, WebUi

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]


PASSWORD = ("ann", "key")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    data = tmp_path_factory.mktemp("a1111-log-in")
    prepare(data, "small")
    checkpoint = data / "models" / "Stable-diffusion" / "small.safetensors"
    host = WebUi(
        data, checkpoint, "--gradio-auth", "ben:secret", "--api-auth", ":".join(PASSWORD),
        "--spillway-dedicated-limit", "256MiB", page=True,
    )  # fmt: skip
    try:
        host.wait()
        yield host
    finally:
        host.close()


def request(host, route: str, order: dict | None = None, method: str | None = None, **headers: str):
    data = json.dumps(order).encode() if order is not None else None
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return urllib.request.Request(host.address + route, data, headers, method=method)


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def status(host, *args, **headers) -> tuple[int, str | None]:
    """And what the browser is told to ask for."""
    try:
        with urllib.request.urlopen(request(host, *args, **headers), timeout=60) as answer:
            return answer.status, None
    except urllib.error.HTTPError as error:
        return error.code, error.headers["WWW-Authenticate"]


CHANGE = ("/spillway/v1/cap", {"cap_bytes": 2**31}, "PUT")


@pytest.mark.parametrize("credentials", [None, basic("ann", "wrong"), basic("eve", "key"), "Basic !", "Bearer key"])
def test_a_stranger_is_refused_as_the_webui_refuses(host, credentials):
    """The webui, too, names the scheme in its error, for the browser to ask for a password; but its own handler of
    errors (v1.10.1, ``modules/api/api.py``, ``api_middleware``) leaves the header out of the answer."""
    headers = {"Authorization": credentials} if credentials else {}
    assert status(host, "/sdapi/v1/options", **headers)[0] == 401
    for order in (("/spillway/v1/memory",), CHANGE, ("/spillway/v1/images/clear", {})):
        assert status(host, *order, **headers) == (401, "Basic")


def test_a_password_of_the_api_opens_both(host):
    for order in (("/sdapi/v1/options",), ("/spillway/v1/memory",), CHANGE):
        assert status(host, *order, Authorization=basic(*PASSWORD)) == (200, None)


def test_a_change_from_another_site_is_refused_all_the_same(host):
    for headers in ({"Origin": "http://elsewhere.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert status(host, *CHANGE, Authorization=basic(*PASSWORD), **headers)[0] == 403


def test_the_documentation_shows_our_routes_locked_as_the_webuis(host):
    with urllib.request.urlopen(request(host, "/openapi.json")) as answer:
        documented = json.loads(answer.read())
    of_the_webui = documented["paths"]["/sdapi/v1/options"]["get"]["security"]
    assert of_the_webui
    ours = [
        operation["security"]
        for path, methods in documented["paths"].items() if path.startswith("/spillway/")
        for operation in methods.values()
    ]  # fmt: skip
    assert len(ours) > 10
    assert all(security == of_the_webui for security in ours)


@pytest.fixture(scope="module")
def ask(host):
    """As a browser that has logged in."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"username": "ben", "password": "secret"}).encode()
    opener.open(f"{host.address}/login", form).close()

    def asked(route: str, order: dict | None = None, method: str | None = None, **headers: str):
        with opener.open(request(host, route, order, method, **headers), timeout=180) as answer:
            return json.loads(answer.read())

    return asked


def test_who_has_logged_in_on_the_page_may(ask):
    assert ask("/spillway/v1/memory")["cap_bytes"] > 0


def test_our_settings_are_among_the_webuis(ask):
    key = {"Authorization": basic(*PASSWORD)}
    assert ask("/sdapi/v1/options", **key)["spillway_profile"] == "auto"
    ask("/sdapi/v1/options", {"spillway_profile": "lowvram", "spillway_cap_gib": 2}, **key)
    assert ask("/spillway/v1/memory")["cap_bytes"] == 2 * 2**30
    ask("/watch/plan", {})
    ask("/sdapi/v1/txt2img", {"prompt": "a circle", "steps": 2, "width": 64, "height": 64}, **key)
    assert ask("/watch/state")["profiles"] == ["lowvram"]
    ask("/spillway/v1/profile", {"profile": "auto"}, method="PUT")
    assert ask("/sdapi/v1/options", **key)["spillway_profile"] == "auto"
