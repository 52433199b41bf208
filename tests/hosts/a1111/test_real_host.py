"""The extension in the real AUTOMATIC1111, on a simulated card: memory runs out at each step of a job in the second of
three iterations, and every image that can be made comes back."""

from __future__ import annotations

import json
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.hosts.a1111.watched import FROM_PICTURE, ORDER, Watched, prepare, start_picture, started
from tests.hosts.webui import NEEDED, WEBUI

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
LATENT = {"enable_hr": True, "hr_scale": 2, "denoising_strength": 0.6, "hr_upscaler": "Latent"}
UPSCALED = {**LATENT, "hr_upscaler": "Lanczos"}
LORA = {"prompt": f"{ORDER['prompt']} <lora:test:1>"}


INPAINT = {**FROM_PICTURE, "mask": start_picture()}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    data = tmp_path_factory.mktemp("a1111-jobs")
    prepare(data, "small")
    with started(data, "small") as host:
        yield host


CASES = [
    pytest.param("step", 3, {}, id="step"),
    pytest.param("decode", 0, {}, id="decode"),
    pytest.param("step", 8, LATENT, id="hires-latent-step"),
    pytest.param("upscale", 0, UPSCALED, id="hires-upscaler"),
    pytest.param("vae_encode", 0, UPSCALED, id="hires-encode"),
    pytest.param("step", 8, UPSCALED, id="hires-step"),
    pytest.param("decode", 1, UPSCALED, id="hires-decode"),
    pytest.param("step", 1, FROM_PICTURE, id="img2img-step"),
    pytest.param("decode", 0, FROM_PICTURE, id="img2img-decode"),
    pytest.param("step", 1, INPAINT, id="inpaint-step"),
]
REFERENCES: dict[str, list[str]] = {}


def reference(watched: Watched, request: dict) -> list[str]:
    """What the request makes undisturbed, each asked for once. Starting from a picture it depends on torch's global
    generator, so nothing is asked there but that each picture comes."""
    key = json.dumps(request)
    if key not in REFERENCES:
        watched.plan()
        REFERENCES[key] = watched.make(**request)[0]
    return REFERENCES[key]


@pytest.mark.parametrize(("place", "after", "request_"), CASES)
def test_room_is_made_and_every_image_is_the_same(watched, survived, place, after, request_):
    wanted = reference(watched, request_)
    watched.plan(place=place, iteration=1, times=1, after=after)
    images, info = watched.make(**request_)
    state = watched.state()
    assert (state["hit"], len(state["rooms"]), state["running"]) == (1, 1, False)
    assert len(images) == 3
    if "init_images" not in request_ and request_ is not UPSCALED:
        assert images == wanted
    assert "spillway" not in info
    assert [record["outcome"] for record in state["records"]] == ["delivered"] * 3
    survived("once", f"{len(images)} of 3{', same bytes' if images == wanted else ''}")


@pytest.mark.parametrize("ladder", [False, True], ids=["again", "ladder"])
@pytest.mark.parametrize(("place", "after", "request_"), CASES)
def test_the_other_images_come_back_with_a_sentence(watched, survived, place, after, request_, ladder):
    wanted = reference(watched, request_)
    watched.plan(place=place, iteration=1, times=1 if ladder else 2, after=after, ladder=ladder)
    images, info = watched.make(**request_)
    state = watched.state()
    assert info["all_seeds"] == [5, 7]
    assert len(images) == 2
    if "init_images" not in request_ and request_ is not UPSCALED:
        assert images == [wanted[0], wanted[2]]
    assert info["spillway"]["notices"][0].startswith("Image 2 of 3 could not be made: ")
    assert [record["outcome"] for record in state["records"]] == ["delivered", "given up", "delivered"]
    assert all(Path(record["file_path"]).is_file() for record in state["records"] if record["file_path"])
    assert not state["running"]
    same = ", same bytes" if images == [wanted[0], wanted[2]] else ""
    survived("the ladder ends" if ladder else "again after room was made", f"{len(images)} of 3{same}, the lost named")


def test_the_prompt_that_cannot_be_encoded(watched):
    watched.plan(place="encode", iteration=0, times=1, ladder=True)
    images, info = watched.make(prompt="never seen before")
    assert (len(images), info["all_seeds"]) == (2, [6, 7])


def test_a_lora_is_never_left_out_in_silence(watched):
    wanted = reference(watched, LORA)
    assert wanted != reference(watched, {})
    watched.make()  # takes it out of the weights
    watched.plan(place="lora_applied", iteration=0, times=1, after=20)
    images, _ = watched.make(**LORA)
    state = watched.state()
    assert state["hit"] == 1
    assert state["records"][0]["rungs"]
    assert images == wanted
    watched.plan()
    assert watched.make()[0] == reference(watched, {})


def test_a_face_stays_as_it_was(watched):
    wanted = reference(watched, {})
    watched.plan(place="face", iteration=1, times=2)
    images, info = watched.make(restore_faces=True)
    assert images == wanted
    assert info["spillway"]["notices"][0].startswith("A face was left as it was.")


def test_where_nothing_was_made_the_error_is_a_sentence(watched):
    watched.plan(place="step", iteration=0, times=9, ladder=True)
    with pytest.raises(urllib.error.HTTPError) as error:
        watched.make(n_iter=1)
    assert "Image 1 of 1 could not be made: The UNet does not fit" in json.loads(error.value.read())["errors"]
    watched.plan(place="vae_encode", iteration=0, times=2)
    with pytest.raises(urllib.error.HTTPError) as error:
        watched.make(**FROM_PICTURE)
    assert "Encoding the picture ran out of memory" in json.loads(error.value.read())["errors"]


def test_a_person_reads_it_below_the_gallery(watched):
    order = {**ORDER, "n_iter": 2, "do_not_save_grid": True}
    del order["save_images"]
    watched.plan(place="step", iteration=1, times=9, ladder=True)
    some = watched.host.ask("/watch/person", order)
    assert some["images"] == 1
    assert "Image 2 of 2 could not be made: The UNet does not fit" in some["comments"]
    watched.plan(place="step", iteration=0, times=9, ladder=True)
    none = watched.host.ask("/watch/person", {**order, "n_iter": 1})
    assert none["images"] == 0
    assert "Image 1 of 1 could not be made" in none["comments"]


def test_stop_ends_the_job_and_keeps_what_is_made(watched):
    watched.plan()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(watched.make, n_iter=40)
        deadline = time.monotonic() + 60
        while not watched.state()["records"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert watched.host.ask("/spillway/v1/jobs/stop", {}) == {"stopping": True}
        images, _ = answer.result(60)
    state = watched.state()
    assert 1 <= len(images) < 40
    assert len(state["records"]) == len(images)
    assert watched.host.ask("/spillway/v1/jobs/last")["interrupted"] is True


def test_the_infotext_is_parsed_back_without_harm(watched):
    watched.plan()
    _, info = watched.make(**LATENT, batch_size=2, n_iter=1)
    for text, record in zip(info["infotexts"][1:], watched.state()["records"], strict=True):
        answer = watched.host.ask("/watch/parse", {"infotext": text})
        assert answer["found"]["Spillway id"] == record["record_id"][:8]
        assert answer["found"]["Spillway"].startswith(f"{record['profile_used']}, ")
        assert answer["found"]["Spillway"].endswith(" MiB (simulated)")
        assert answer["found"]["Prompt"] == ORDER["prompt"]
        assert not [name for name, *_ in answer["overrides"] if "Spillway" in name]
        saved = Image.open(record["file_path"]).info["parameters"]
        assert saved == text
    assert "Spillway" not in info["infotexts"][0]


def test_a_plot_makes_a_job_of_each_cell_with_its_profile(watched):
    watched.plan(place="step", iteration=0, times=1, after=8, ladder=True)
    axes = watched.host.ask("/watch/axes")["labels"]
    axis = axes.index("[Spillway] Profile")
    assert "[Spillway] Shared cap (GiB)" in axes
    x, nothing, legend_and_images, rest = (axis, "auto, medvram, lowvram", []), (0, "", []), (True, True), (False,) * 5
    arguments = [*x, *nothing, *nothing, *legend_and_images, *rest, 0, True]
    answer = watched.host.ask(
        "/sdapi/v1/txt2img", {**ORDER, "n_iter": 1, "script_name": "x/y/z plot", "script_args": arguments}
    )
    state = watched.state()
    assert state["profiles"] == ["auto", "medvram", "lowvram"]
    assert [record["profile_used"] for record in state["records"]] == ["dedicated", "medvram", "lowvram"]
    assert [record["outcome"] for record in state["records"]] == ["delivered", "given up", "delivered"]
    assert len(answer["images"]) >= 3


def test_a_common_client_works_unchanged(watched):
    webuiapi = pytest.importorskip("webuiapi", reason="needs the package webuiapi, a client of the webui's API")
    watched.plan(place="step", iteration=1, times=1, after=3, ladder=True)
    client = webuiapi.WebUIApi(baseurl=f"{watched.host.address}/sdapi/v1", sampler="Euler a", steps=6)
    made = client.txt2img(prompt="a red circle", seed=5, width=64, height=64, n_iter=3)
    assert len(made.images) == 2
    assert made.info["spillway"]["notices"]
    made = client.img2img(images=[made.images[1]], prompt="a red circle", seed=5, width=64, height=64)
    assert made.image.size == (64, 64)
    assert client.get_options()["samples_format"] == "png"


def test_uninstalled_the_webui_is_as_if_never_watched(watched):
    wanted = reference(watched, {})
    watched.host.ask("/watch/uninstall", {})
    images, info = watched.make()
    assert images == wanted
    assert "Spillway" not in "".join(info["infotexts"])


def test_nothing_unexpected_was_written(watched):
    log = watched.host.log.read_text(errors="replace")
    assert "without Spillway" not in log
    assert "not complete" not in log
    assert "Error creating infotext" not in log
