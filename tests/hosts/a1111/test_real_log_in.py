"""Our routes and settings in the real webui with its page and ``--gradio-auth``: for who has logged in there."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.hosts.webui import NEEDED, WEBUI, WebUi, add_script, add_this_extension

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder

    data = tmp_path_factory.mktemp("a1111-log-in")
    checkpoint = data / "models" / "Stable-diffusion" / "small.safetensors"
    convert_folder(embedded_folder(), checkpoint)
    add_this_extension(data)
    add_script(data, "zz-watch-probe", Path(__file__).with_name("watch_probe.py"))
    host = WebUi(data, checkpoint, "--gradio-auth", "ben:secret", "--spillway-dedicated-limit", "256MiB", page=True)
    try:
        host.wait()
        yield host
    finally:
        host.close()


def test_a_stranger_is_refused(host):
    for method, order in (("GET", None), ("PUT", {"cap_bytes": 2**30})):
        with pytest.raises(urllib.error.HTTPError) as error:
            host.ask("/spillway/v1/cap" if order else "/spillway/v1/memory", order, method=method)
        assert error.value.code == 401
        assert "Log in first" in json.loads(error.value.read())["error"]


@pytest.fixture(scope="module")
def ask(host):
    """As a browser that has logged in."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"username": "ben", "password": "secret"}).encode()
    opener.open(f"{host.address}/login", form).close()

    def asked(route: str, order: dict | None = None, method: str | None = None):
        data = json.dumps(order).encode() if order is not None else None
        request = urllib.request.Request(
            host.address + route, data, {"Content-Type": "application/json"}, method=method
        )
        with opener.open(request, timeout=180) as answer:
            return json.loads(answer.read())

    return asked


def test_who_has_logged_in_may(ask):
    assert ask("/spillway/v1/memory")["cap_bytes"] > 0
    assert "/spillway/v1/memory" in ask("/openapi.json")["paths"]


def test_our_settings_are_among_the_webuis(ask):
    assert ask("/sdapi/v1/options")["spillway_profile"] == "auto"
    ask("/sdapi/v1/options", {"spillway_profile": "lowvram", "spillway_cap_gib": 2})
    assert ask("/spillway/v1/memory")["cap_bytes"] == 2 * 2**30
    ask("/watch/plan", {})
    ask("/sdapi/v1/txt2img", {"prompt": "a circle", "steps": 2, "width": 64, "height": 64})
    assert ask("/watch/state")["profiles"] == ["lowvram"]
    ask("/spillway/v1/profile", {"profile": "auto"}, method="PUT")
    assert ask("/sdapi/v1/options")["spillway_profile"] == "auto"
