"""The standalone page: it is built under the installed gradio, carries our script, and keeps to this machine."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request

import pytest

from sd_webui_spillway.errors import BadInputError, UnavailableError
from sd_webui_spillway.panel import app as panel_app
from sd_webui_spillway.panel.app import PanelServer, bind, build_app, serve

pytest.importorskip("gradio", reason="the page needs gradio")


@pytest.fixture
def url(session):
    ready = threading.Event()
    server = PanelServer(build_app(session), bind(0), lambda _url: ready.set())
    thread = threading.Thread(target=server.serve_until_stopped, daemon=True)
    thread.start()
    assert ready.wait(30), "the page did not come up"
    yield server.url
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive(), "the server did not end"


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, answer.headers, answer.read().decode()


def test_the_page_carries_our_style_and_script_once(url):
    status, headers, page = get(url, Accept="text/html", **{"Accept-Encoding": "gzip, br"})
    assert status == 200
    assert page.count("/assets/spillway.mjs") == 1
    assert page.index("/assets/style.css") < page.index("</head>")
    assert int(headers["content-length"]) == len(page.encode())
    assert get(f"{url}spillway/v1/host")[0] == 200


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Host": "evil.example:7870"}])
def test_a_foreign_name_for_this_machine_is_refused(url, headers):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{url}spillway/v1/memory", **headers)
    assert refused.value.code == 400


def test_gradios_own_events_are_refused_to_other_sites(url):
    for path in ("run/predict", "queue/join", "gradio_api/queue/join"):
        request = urllib.request.Request(
            url + path, data=b"{}", headers={"Origin": "https://evil.example", "Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 403


def test_a_busy_port_is_one_sentence_that_names_it(session):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"Port {port} is in use") as error:
            serve(session, port)
    assert error.value.detail


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_port_that_is_none_is_refused(session, port):
    with pytest.raises(BadInputError, match="from 0 to 65535"):
        serve(session, port)


def test_only_this_machine_is_listened_to():
    with bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_missing_files_are_named(session, monkeypatch):
    monkeypatch.setattr("sd_webui_spillway.panel.assets.asset_path", lambda name: None)
    with pytest.raises(UnavailableError, match=r"spillway\.mjs is missing"):
        panel_app.build_app(session)
