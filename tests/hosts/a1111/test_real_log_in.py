"""Our routes in the real webui with ``--gradio-auth``: only for who has logged in on its page."""

from __future__ import annotations

import http.cookiejar
import json
import shutil
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
        shutil.rmtree(data, ignore_errors=True)


def test_a_stranger_is_refused(host):
    for method, order in (("GET", None), ("PUT", {"cap_bytes": 2**30})):
        with pytest.raises(urllib.error.HTTPError) as error:
            host.ask("/spillway/v1/cap" if order else "/spillway/v1/memory", order, method=method)
        assert error.value.code == 401
        assert "Log in first" in json.loads(error.value.read())["error"]


def test_who_has_logged_in_may(host):
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    form = urllib.parse.urlencode({"username": "ben", "password": "secret"}).encode()
    opener.open(f"{host.address}/login", form).close()
    with opener.open(f"{host.address}/spillway/v1/memory") as answer:
        assert json.loads(answer.read())["simulated"] is True
    with opener.open(f"{host.address}/docs") as answer:
        assert answer.status == 200
    assert "/spillway/v1/memory" in host.ask("/openapi.json")["paths"]
