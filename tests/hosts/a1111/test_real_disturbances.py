"""What comes between in the real AUTOMATIC1111 while a job runs — a stop, another extension's hook, a switch of the
profile, a card that another program fills — costs no more than it must under every profile."""

from __future__ import annotations

import json
import time
import urllib.error
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from tests.hosts.webui import NEEDED, WEBUI, WebUi, opened

from . import features_rig as rig
from .features_rig import PROMPT, Pictures, options, place, same, state

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
PROFILES = ("lowvram", "sequential", "stream", "spill")
AMPLE_BYTES, NOTHING_BYTES = 400 * 2**20, 64 * 2**10
LONG = {"n_iter": 3, "steps": 12, "return_grid": False}
BATCH = {"batch_size": 4, "return_grid": False}
HOOKED = {**BATCH, "alwayson_scripts": {"whole batch": {"args": [True]}}}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    data = tmp_path_factory.mktemp("disturbed")
    rig.make_models(data)
    rig.dress(data, extended=True)
    host = rig.begin(data, "--spillway-dedicated-limit", rig.AMPLE)
    yield host
    host.close()


@pytest.fixture(scope="module")
def wanted(host) -> dict[str, Pictures]:
    """What ``dedicated`` draws with room for everything: other tests hold it against the host alone."""
    place(host, "dedicated")
    orders = {"plain": {}, "long": LONG, "batch": BATCH, "hooked": HOOKED}
    return {name: host.pictures(PROMPT, **order) for name, order in orders.items()}


@pytest.fixture(params=PROFILES)
def profile(request, host, wanted):
    """In force; afterwards the next picture is right, and everything lies as before."""
    place(host, request.param)
    assert same(host.pictures(PROMPT), wanted["plain"])
    before = state(host)
    yield request.param
    host.ask("/features/room", {"bytes": AMPLE_BYTES})
    options(host, sd_model_checkpoint="small.safetensors")
    assert same(host.pictures(PROMPT), wanted["plain"])
    after = state(host)
    beside = [found.pop("used_bytes") - found["resident_bytes"] for found in (before, after)]
    assert after.pop("pinned_bytes") <= before.pop("pinned_bytes"), "a stream that was begun anew may pin less"
    assert after.pop("unets") <= before.pop("unets"), "the copy that counts is made once"
    assert after == before
    assert beside[1] - beside[0] < 64 * 2**10


def begun(host: WebUi, pool: ThreadPoolExecutor, image: int, **order) -> Future:
    """A request under way, its sampling of this image begun."""
    asked = pool.submit(host.ask, "/sdapi/v1/txt2img", {
        "prompt": PROMPT, "sampler_name": "Euler", "scheduler": "Automatic", "seed": 5, "width": 64, "height": 64,
        "cfg_scale": 7, **order,
    })  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not asked.done():
        now = host.ask("/sdapi/v1/progress?skip_current_image=true")["state"]
        if now["job_count"] > 0 and (now["job_no"], now["sampling_step"]) >= (image, 2):
            return asked
        time.sleep(0.02)
    pytest.fail(f"the job did not come to image {image + 1}")


def images(answer: dict) -> Pictures:
    return [opened(image) for image in answer["images"]]


@pytest.mark.parametrize("how", ["interrupt", "skip"])
def test_a_stopped_image_ends_and_the_others_are_right(host, wanted, profile, how):
    with ThreadPoolExecutor(1) as pool:
        job = begun(host, pool, 0, **LONG)
        host.ask(f"/sdapi/v1/{how}", {})
        made = images(job.result(120))
    assert not same(made[:1], wanted["long"][:1]), "the picture was finished before it was stopped"
    assert same(made[1:], wanted["long"][1:] if how == "skip" else [])
    records = host.ask("/spillway/v1/images?limit=3")["images"]
    stopped = records[2] if how == "skip" else records[0]
    assert stopped["message"].startswith("Stopped by the user after ")
    assert stopped["profile_used"] == profile


def test_a_hook_on_the_whole_batch_is_heeded(host, wanted, profile):
    assert not same(wanted["hooked"], wanted["batch"])
    assert same(host.pictures(PROMPT, **HOOKED), wanted["hooked"])
    assert set(host.ask("/features/seen")["rows"]) == {8}
    assert same(host.pictures(PROMPT, **BATCH), wanted["batch"])


def test_with_such_a_hook_other_rungs_are_taken(host, wanted):
    place(host, "medvram")
    host.pictures(PROMPT, **HOOKED)
    (whole,) = host.ask("/spillway/v1/images?limit=1")["images"]
    host.ask("/features/room", {"bytes": whole["peak_dedicated_bytes"] - 2**18})
    try:
        assert same(host.pictures(PROMPT, **HOOKED), wanted["hooked"])
        seen, (first, *_) = host.ask("/features/seen")["rows"], host.ask("/spillway/v1/images?limit=4")["images"]
        host.pictures(PROMPT, **BATCH)
        unhooked = host.ask("/spillway/v1/images?limit=4")["images"][-1]
    finally:
        host.ask("/features/room", {"bytes": AMPLE_BYTES})
    assert set(seen) == {8}
    assert any("went from medvram to " in rung for rung in first["rungs"]), first["rungs"]
    assert not any("each step runs in " in rung for rung in first["rungs"]), first["rungs"]
    assert any("each step runs in " in rung for rung in unhooked["rungs"]), "without the hook this batch is split"


@pytest.mark.parametrize("rows", [2, 4])
def test_a_batch_too_large_is_split_before_it_runs_out(host, wanted, rows):
    """Parts of a batch round differently on a processor; what a person sees is the same."""
    place(host, "medvram")
    host.pictures(PROMPT, **BATCH)
    room = host.ask("/features/rows", {"rows": rows, "batch_size": BATCH["batch_size"]})
    host.ask("/features/room", room)
    try:
        made = host.pictures(PROMPT, **BATCH)
        records = host.ask("/spillway/v1/images?limit=4")["images"]
    finally:
        host.ask("/features/room", {"bytes": AMPLE_BYTES})
    said = f"the batch does not fit at once as medvram: each step runs in {2 * BATCH['batch_size'] // rows} parts"
    assert [rung for record in records for rung in record["rungs"]] == [said] * 4
    assert {record["profile_used"] for record in records} == {"medvram"}
    assert max(record["peak_dedicated_bytes"] for record in records) <= room["bytes"]
    for picture, whole in zip(made, wanted["batch"], strict=True):
        assert np.abs(picture - whole).max() <= 1


def test_a_switch_asked_during_a_job_is_refused_and_harms_nothing(host, wanted, profile):
    with ThreadPoolExecutor(1) as pool:
        job = begun(host, pool, 1, **LONG)
        with pytest.raises(urllib.error.HTTPError, match="409") as refused:
            place(host, "medvram")
        made = images(job.result(120))
    assert json.loads(refused.value.read())["error"] == "A job is running; wait for it or stop it first."
    assert same(made, wanted["long"])
    assert host.ask("/spillway/v1/profile")["profile"] == profile
    place(host, "medvram")
    assert state(host)["profiles"] == ["medvram"]
    assert same(host.pictures(PROMPT), wanted["plain"])
    place(host, profile)


def answer_to_switch(host: WebUi, profile: str) -> int:
    try:
        place(host, profile)
    except urllib.error.HTTPError as refused:
        return refused.code
    return 200


def test_switches_while_a_checkpoint_is_loaded(host, profile):
    answers = []
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(options, host, sd_model_checkpoint="other.safetensors")
        while not loading.done():
            answers.append(answer_to_switch(host, ("medvram", profile)[len(answers) % 2]))
        loading.result()
    assert set(answers) <= {200, 409}
    assert answers
    place(host, profile)
    made = host.pictures(PROMPT)
    found = state(host)
    assert (found["profiles"], found["current"]) == ([profile], [True])
    place(host, "dedicated")
    assert same(host.pictures(PROMPT), made)
    place(host, profile)


def test_a_card_that_is_full_costs_one_sentence(host, profile):
    host.ask("/features/room", {"bytes": NOTHING_BYTES})
    with pytest.raises(urllib.error.HTTPError) as refused:
        host.pictures(PROMPT)
    sentence = json.loads(refused.value.read())["errors"]
    assert " does not fit " in sentence
    assert sentence.count(".") - sentence.count("0.") <= 2, sentence
    assert host.ask("/spillway/v1/memory")


def test_a_card_that_fills_during_a_job_costs_what_is_not_made_yet(host, wanted, profile):
    with ThreadPoolExecutor(1) as pool:
        job = begun(host, pool, 1, **LONG)
        host.ask("/features/room", {"bytes": NOTHING_BYTES})
        answer = job.result(120)
    info = json.loads(answer["info"])
    assert same(images(answer), wanted["long"][:1])
    assert info["all_seeds"] == [5]
    assert [notice.split(":")[0] for notice in info["spillway"]["notices"]] == [
        "Image 2 of 3 could not be made", "Image 3 of 3 could not be made",
    ]  # fmt: skip
