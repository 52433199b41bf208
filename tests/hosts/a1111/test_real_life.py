"""The extension's life in the real AUTOMATIC1111: started, reloaded, switched off, and what the host does meanwhile."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import time
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from tests.hosts.webui import NEEDED, WEBUI, WebUi, add_script, add_this_extension

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
PROMPT = "a red circle above a blue square"
LIMIT = ("--spillway-dedicated-limit", "400MiB")
BOOTS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder

    folder = tmp_path_factory.mktemp("models")
    for name in ("small", "other"):
        convert_folder(embedded_folder(), folder / "Stable-diffusion" / f"{name}.safetensors")
    return folder


def data_folder(folder: Path, models: Path, *, extended: bool) -> Path:
    folder.mkdir()
    shutil.copytree(models, folder / "models")
    (folder / "config.json").write_text(json.dumps({"live_previews_enable": False}))
    add_script(folder, "probe", Path(__file__).with_name("life_probe.py"))
    if extended:
        add_this_extension(folder)
    return folder


@pytest.fixture
def start(tmp_path, models):
    hosts = []

    def begin(name: str, *flags: str, extended: bool = True) -> WebUi:
        data = tmp_path / name
        data = data if data.exists() else data_folder(data, models, extended=extended)
        host = WebUi(data, data / "models" / "Stable-diffusion" / "small.safetensors", *flags, page=True)
        hosts.append(host)
        host.wait()
        return host

    yield begin
    for host in hosts:
        host.close()


def reload(host: WebUi, *disabled: str) -> None:
    """ "Reload UI", with these extensions switched off."""
    starts = host.log.read_text(errors="replace").count("Startup time")
    host.ask("/life/reload", {"disabled": list(disabled)})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if host.log.read_text(errors="replace").count("Startup time") > starts:
            return
        time.sleep(0.3)
    pytest.fail(f"the webui did not come back:\n{host.words()}")


def test_it_starts_without_a_new_word_and_in_the_same_time(start, record_property):
    seconds, words = {True: [], False: []}, {}
    for boot in range(BOOTS):
        for extended in (False, True) if boot % 2 else (True, False):
            host = start(f"{extended}", *(LIMIT if extended else ()), extended=extended)
            host.pictures(PROMPT)
            log = host.log.read_text(errors="replace")
            seconds[extended].append(float(re.search(r"Startup time: ([\d.]+)s", log).group(1)))
            words[extended] = {re.sub(r"[\d.:]+|/\S+", "", line) for line in log.splitlines() if "it/s" not in line}
            host.close()
    added = statistics.median(seconds[True]) - statistics.median(seconds[False])
    record_property("startup seconds without and with the extension", (seconds[False], seconds[True]))
    new = {line for line in words[True] - words[False] if not line.startswith(("Launching", "Startup", "Model loaded"))}
    assert new == set()
    assert added <= 0.5, seconds


def test_reload_keeps_one_of_it_and_off_leaves_nothing(start):
    plain = start("plain", extended=False)
    wanted, untouched = plain.pictures(PROMPT), plain.ask("/life")
    plain.close()
    host = start("extended", *LIMIT)
    host.ask("/spillway/v1/profile", {"profile": "lowvram"}, "PUT")
    assert np.array_equal(host.pictures(PROMPT), wanted)
    once = host.ask("/life")
    for name in ("hooks", "methods", "patched", "axes", "lowvram"):
        assert once[name], name

    reload(host)
    assert np.array_equal(host.pictures(PROMPT), wanted)
    again = host.ask("/life")
    for name in ("hooks", "methods", "patched", "axes"):
        assert sorted(again[name]) == sorted(once[name]), name
    monitors = [name for name in again["threads"] if "spillway" in name.lower()]
    assert len(monitors) == len(set(monitors)), monitors
    assert host.ask("/spillway/v1/profile")["profile"] == "lowvram"

    reload(host, "sd-webui-spillway")
    assert np.array_equal(host.pictures(PROMPT), wanted)
    off = host.ask("/life")
    for name in ("hooks", "methods", "patched", "axes", "host_hooks", "lowvram", "previews_beside"):
        assert off[name] == untouched[name], name
    with pytest.raises(urllib.error.HTTPError, match="404"):
        host.ask("/spillway/v1/memory")
    assert "Traceback" not in host.log.read_text(errors="replace")


def test_the_hosts_flags_are_the_first_profile_and_off_gives_them_back(start):
    plain = start("plain", "--medvram", extended=False)
    wanted, untouched = plain.pictures(PROMPT), plain.ask("/life")
    plain.close()
    host = start("extended", "--medvram", *LIMIT)
    assert host.ask("/spillway/v1/profile")["profile"] == "medvram"
    assert np.array_equal(host.pictures(PROMPT), wanted)
    assert host.ask("/life")["host_hooks"] == 0
    host.ask("/spillway/v1/profile", {"profile": "dedicated"}, "PUT")
    assert np.array_equal(host.pictures(PROMPT), wanted)
    assert not host.ask("/life")["lowvram"]
    reload(host, "sd-webui-spillway")
    assert np.array_equal(host.pictures(PROMPT), wanted)
    off = host.ask("/life")
    for name in ("hooks", "methods", "patched", "host_hooks", "lowvram", "previews_beside"):
        assert off[name] == untouched[name], name


@pytest.mark.parametrize("profile", ["dedicated", "medvram", "stream"])
def test_checkpoints_kept_loaded_come_and_go(start, profile):
    host = start("extended", *LIMIT)
    host.ask("/spillway/v1/profile", {"profile": profile}, "PUT")
    host.ask("/sdapi/v1/options", {"sd_checkpoints_limit": 2})
    override = {"override_settings_restore_afterwards": False}
    wanted = host.pictures(PROMPT)
    for checkpoint in ("other", "small", "other", "small"):
        pictures = host.pictures(PROMPT, override_settings={"sd_model_checkpoint": checkpoint}, **override)
        assert np.array_equal(pictures, wanted), "the two files hold the same weights"
        assert checkpoint in host.ask("/life")["title"]
    assert host.ask("/life")["loaded"] == 2
    host.ask("/sdapi/v1/unload-checkpoint", {})
    host.ask("/sdapi/v1/reload-checkpoint", {})
    assert np.array_equal(host.pictures(PROMPT), wanted)
    assert "Traceback" not in host.log.read_text(errors="replace")
