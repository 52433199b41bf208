"""What the routes answer, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import platform

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.settings import SettingsFile
from sd_webui_spillway.timing.summary import badge_text
from sd_webui_spillway.units import GIB
from tests.fakes.host import CARD_BYTES, LOST_PROMPT, OOM_PROMPT, WEIGHTS_BYTES

V1 = "/spillway/v1"


def make(session, **fields):
    return session.generate(ImageRequest(**{"width": 64, "height": 64, "steps": 2, "seed": 1, **fields}))


def test_memory_has_figures_a_word_the_cap_and_history(client, session):
    first = client.get(f"{V1}/memory").json()
    assert first["snapshot"]["dedicated_total_bytes"] == CARD_BYTES
    assert first["snapshot"]["simulated"] is True
    assert first["state"] == "comfortable"
    assert first["cap_bytes"] == session.cap_bytes()
    assert first["job_running"] is False
    assert first["history"], "a running monitor has a history"
    newest = first["history"][-1]["taken_at"]
    later = client.get(f"{V1}/memory", params={"since": newest}).json()
    assert all(point["taken_at"] > newest for point in later["history"])


def test_profiles_list_all_with_reasons_and_what_auto_would_take(client, session):
    make(session, batch_count=3)
    answer = client.get(f"{V1}/profile", params={"width": 64, "height": 64, "steps": 2, "batch": 1}).json()
    rows = {row["profile"]: row for row in answer["rows"]}
    assert list(rows) == [profile.value for profile in Profile]
    assert "measured" in rows["sequential"]["unavailable_because"]
    assert rows["stream"]["unavailable_because"]
    assert rows["dedicated"]["predicted_dedicated_bytes"] > 0
    assert rows["lowvram"]["predicted_shared_bytes"] == WEIGHTS_BYTES // 4
    assert rows["dedicated"]["predicted_shared_bytes"] is None
    assert rows["dedicated"]["measured_count"] == 2, "the warm-up image does not count"
    assert rows["lowvram"]["measured_seconds"] is None
    assert answer["auto"]["profile"] == "dedicated"
    assert answer["auto"]["reason"].endswith("that are free.")


def test_a_profile_is_switched(client, session, host):
    answer = client.put(f"{V1}/profile", json={"profile": "medvram"})
    assert answer.status_code == 200
    assert answer.json()["switch_seconds"] >= 0
    assert session.settings.profile is Profile.MEDVRAM
    assert host.switched == [Profile.MEDVRAM]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", "profile", {"profile": "warp"}, 400, "There is no profile “warp”"),
        ("PUT", "profile", {}, 400, "There is no profile"),
        ("PUT", "profile", {"profile": "stream"}, 409, "unavailable, because"),
        ("PUT", "cap", {"cap_ram_percent": 140}, 400, "from 0 to 100 %"),
        ("PUT", "cap", {"cap_bytes": -1}, 400, "cannot be negative"),
        ("PUT", "cap", {"cap_bytes": "much"}, 400, "must be a number"),
        ("PUT", "settings", {"badges": "maybe"}, 400, "must be on or off"),
        ("PUT", "settings", {"vae_tiling": "sometimes"}, 400, "one of auto, always, never"),
        ("PUT", "settings", {"dedicated_percent": 49}, 400, "from 50 to 100 %"),
        ("PUT", "settings", {"dedicated_percent": 80.5}, 400, "whole number"),
        ("PUT", "settings", {"profile": "medvram"}, 400, "There is no setting “profile”"),
        ("PUT", "settings", {"self": 1}, 400, "There is no setting"),
        ("GET", "profile?width=100", None, 400, "multiple of 8"),
        ("GET", "profile?width=wide", None, 400, "width"),
        ("GET", "images?limit=0", None, 400, "limit"),
    ],
)
def test_bad_input_is_one_sentence(client, method, path, body, status, words):
    answer = client.request(method, f"{V1}/{path}", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert "detail" in answer.json()


@pytest.mark.parametrize("content", [b"{", b"[1]", b"null"])
def test_a_body_that_is_no_object_is_refused(client, content):
    answer = client.put(f"{V1}/cap", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]


def test_the_cap_is_set_by_size_by_share_and_back_to_the_default(client, session):
    assert client.put(f"{V1}/cap", json={"cap_bytes": 2 * GIB}).json() == {"cap_bytes": 2 * GIB}
    half = client.put(f"{V1}/cap", json={"cap_ram_percent": 50}).json()
    assert half == {"cap_bytes": 8 * GIB}
    client.put(f"{V1}/cap", json={"cap_bytes": None, "cap_ram_percent": None})
    assert session.settings.cap_bytes is None
    assert session.settings.cap_ram_percent is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "profile"), ("PUT", "cap"), ("PUT", "settings"), ("POST", "images/clear"), ("POST", "jobs/stop"),
     ("POST", "jobs/step-down")],
)
def test_another_site_changes_nothing(client, session, method, path, headers):
    make(session)
    answer = client.request(method, f"{V1}/{path}", json={"profile": "medvram", "badges": False}, headers=headers)
    assert answer.status_code == 403
    assert session.log.count() == 1
    assert session.settings.profile is Profile.AUTO
    assert session.settings.badges is True


def test_a_form_of_another_site_is_refused_even_without_an_origin(client, session):
    make(session)
    answer = client.post(f"{V1}/images/clear", content=b"a=b", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 403
    assert session.log.count() == 1


def test_the_same_origin_may_change(client, session):
    headers = {"Origin": "http://127.0.0.1:7870", "Sec-Fetch-Site": "same-origin"}
    assert client.put(f"{V1}/settings", json={"badges": False}, headers=headers).status_code == 200
    assert session.settings.badges is False


def test_jobs(client, session):
    assert client.get(f"{V1}/jobs/current").json() == {"running": False}
    assert client.get(f"{V1}/jobs/last").json() == {"job_id": None}
    result = make(session, prompt=f"{OOM_PROMPT}, {LOST_PROMPT}", batch_size=2, batch_count=2)
    last = client.get(f"{V1}/jobs/last").json()
    assert last["job_id"] == result.job_id
    assert len(last["images"]) == 3
    assert last["given_up"][0]["outcome"] == "given up"
    assert "went from" in last["images"][0]["rungs"][0]
    assert client.post(f"{V1}/jobs/stop", json={}).json() == {"stopping": False}
    assert client.post(f"{V1}/jobs/step-down", json={}).json() == {"stepping_down": False}


def test_images_are_filtered_and_paged_newest_first(client, session):
    make(session, batch_count=3)
    make(session, width=128, batch_count=2)
    page = client.get(f"{V1}/images", params={"limit": 2, "offset": 1}).json()
    assert page["count"] == 5
    assert len(page["images"]) == 2
    times = [image["started_at"] for image in page["images"]]
    assert times == sorted(times, reverse=True)
    assert client.get(f"{V1}/images", params={"width": 128, "height": 64}).json()["count"] == 2
    assert client.get(f"{V1}/images", params={"profile": "spill"}).json()["count"] == 0
    choices = client.get(f"{V1}/images/choices").json()
    assert choices["sizes"] == [[64, 64], [128, 64]]
    assert choices["profiles"] == ["dedicated"]


def test_badges_are_found_by_file_name(client, session):
    result = make(session, batch_size=2)
    names = [image.path.name for image in result.images]
    answer = client.get(f"{V1}/images", params={"files": [*names, "unknown.png"]}).json()
    assert set(answer["files"]) == set(names)
    for image in result.images:
        found = answer["files"][image.path.name]
        assert found["badge"] == badge_text(image.record)
        assert found["record_id"] == image.record.record_id


def test_badges_are_found_by_the_beginning_of_an_id(client, session):
    result = make(session, batch_size=2)
    prefixes = [image.record.record_id[:8] for image in result.images]
    answer = client.get(f"{V1}/images", params={"ids": [*prefixes, "00000000", "%", "abc"]}).json()
    assert set(answer["ids"]) == set(prefixes)
    for image in result.images:
        assert answer["ids"][image.record.record_id[:8]]["record_id"] == image.record.record_id


def test_settings_are_changed_one_by_one_and_kept(client, session, tmp_path):
    before = client.get(f"{V1}/settings").json()
    assert before["dedicated_percent"] == 90
    assert before["choices"]["vae_tiling"] == ["auto", "always", "never"]
    after = client.put(f"{V1}/settings", json={"dedicated_percent": 75, "ladder_tile": False}).json()
    assert (after["dedicated_percent"], after["ladder_tile"], after["infotext"]) == (75, False, True)
    assert session.settings.dedicated_percent == 75
    assert client.get(f"{V1}/memory").json()["edge_share"] == 0.75
    assert SettingsFile(tmp_path / "settings.json").value == session.settings


def test_the_drivers_spill_is_offered_on_windows_only(client, session, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    assert "Windows" in client.get(f"{V1}/settings").json()["unavailable_because"]["spill_kind"]["driver"]
    refused = client.put(f"{V1}/settings", json={"spill_kind": "driver"})
    assert refused.status_code == 409
    assert "Windows" in refused.json()["error"]
    monkeypatch.setattr("sys.platform", "win32")
    assert client.put(f"{V1}/settings", json={"spill_kind": "driver"}).json()["spill_kind"] == "driver"
    assert session.settings.spill_kind == "driver"
    answer = client.get(f"{V1}/profile").json()
    assert answer["spill_kind"] == "driver"
    spill = next(row for row in answer["rows"] if row["profile"] == "spill")
    assert "the graphics driver moves out" in spill["summary"]


@pytest.mark.parametrize("how", [{"params": {"lang": "zh"}}, {"headers": {"Accept-Language": "zh-CN,zh;q=0.9"}}])
def test_sentences_come_in_the_language_asked_for(client, session, how):
    make(session, prompt=f"{OOM_PROMPT}, {LOST_PROMPT}", batch_size=2)
    rows = {row["profile"]: row for row in client.get(f"{V1}/profile", **how).json()["rows"]}
    assert rows["medvram"]["summary"] == "显卡上每次只放一个组件（文本编码器、UNet、VAE）"
    assert rows["stream"]["unavailable_because"] == "需要 CUDA 显卡，其复制引擎可与计算并行"
    last = client.get(f"{V1}/jobs/last", **how).json()
    assert last["sentence"].startswith("2 张中完成 1 张，用时 ")
    assert last["images"][0]["rungs"][0].startswith("UNet在第 1 / 2 步显存不足")
    assert last["images"][0]["profile_used"] == "lowvram", "what a program reads stays as it is"
    refused = client.put(f"{V1}/profile", json={"profile": "stream"}, **how)
    assert refused.json()["error"].startswith("方案“stream”不可用：")


def test_a_doctor_tells_all_that_a_report_needs(client, session):
    make(session)
    answer = client.get(f"{V1}/doctor").json()
    assert answer["versions"]["python"] == platform.python_version()
    assert {"torch", "gradio", "psutil", "nvidia_driver", "spillway"} <= set(answer["versions"])
    assert answer["memory"]["dedicated_total_bytes"] == CARD_BYTES
    assert answer["shared"]["cap_bytes"] == answer["shared"]["ledger_cap_bytes"] == session.cap_bytes()
    assert {row["profile"]: row["unavailable_because"] for row in answer["profiles"]}["dedicated"] is None
    assert answer["log"]["image_count"] == 1
    assert answer["notices"] == list(session.info().notices)
    session.log.close()
    assert "closed" in client.get(f"{V1}/doctor").json()["log"]["error"]


def test_every_route_is_described(client):
    described = set(client.get("/openapi.json").json()["paths"])
    wanted = ("memory", "profile", "cap", "settings", "images", "jobs/current", "jobs/last", "doctor")
    assert {f"{V1}/{name}" for name in wanted} <= described
    assert "/spillway/v1/assets/{name}" not in described


def test_exports_hold_the_filtered_log(client, session):
    make(session, batch_count=2)
    make(session, width=128)
    text = client.get(f"{V1}/images.csv", params={"width": 64})
    assert "attachment" in text.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(text.content.decode("utf-8-sig"))))
    assert len(rows) == 2
    assert "total_seconds" in rows[0]
    assert len(json.loads(client.get(f"{V1}/images.json").content)) == 3


def test_clearing_empties_the_log(client, session):
    make(session, batch_count=2)
    assert client.post(f"{V1}/images/clear", json={}).json() == {"cleared": 2}
    assert session.log.count() == 0


def test_assets_are_served_and_nothing_else_is(client):
    script = client.get(f"{V1}/assets/spillway.mjs")
    assert script.status_code == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert client.get(f"{V1}/assets/style.css").headers["content-type"].startswith("text/css")
    for name in ("pyproject.toml", "..%2Fpyproject.toml", "nothing.mjs", "..%5Cstyle.css"):
        assert client.get(f"{V1}/assets/{name}").status_code == 404
