"""Many images at once in the real AUTOMATIC1111, in a data folder whose name has Chinese and spaces: batches, scripts,
folders and checkpoints, with memory that runs out in the middle of each."""

from __future__ import annotations

import urllib.error
import urllib.parse
from pathlib import Path

import pytest
from PIL import Image

from tests.hosts.a1111.watched import FROM_PICTURE, ORDER, prepare, started
from tests.hosts.webui import NEEDED, WEBUI

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
ALONE = "the batch could not be made at once: its images were made one by one"
LATENT = {"enable_hr": True, "hr_scale": 2, "denoising_strength": 0.6, "hr_upscaler": "Latent"}
ONE = {"n_iter": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("a1111") / "画图 数据 folder"
    prepare(made, "small", "other")
    return made


@pytest.fixture(scope="module")
def watched(data):
    with started(data, "small") as host:
        yield host


def outcomes(watched) -> list[str]:
    return [record["outcome"] for record in watched.state()["records"]]


@pytest.mark.parametrize(
    ("place", "after", "request_"),
    [
        pytest.param("step", 3, {}, id="step"),
        pytest.param("step", 3, {"sampler_name": "DPM++ SDE"}, id="sde"),
        pytest.param("step", 3, {"subseed_strength": 0.3}, id="variation"),
        pytest.param("decode", 1, {}, id="decode"),
        pytest.param("step", 8, LATENT, id="hires-latent-step"),
        pytest.param("upscale", 1, {**LATENT, "hr_upscaler": "Lanczos"}, id="hires-upscaler"),
        pytest.param("step", 1, FROM_PICTURE, id="img2img-step"),
    ],
)
def test_a_batch_is_made_one_by_one(watched, survived, place, after, request_):
    """Each is to the byte what the webui makes of its seed in a batch of one; in a batch of two, rounding differs. What
    was sampled in the batch already is only decoded alone."""
    request_ = {"subseed": 9, **request_}
    watched.plan()
    at_once = {"batch_size": 2, "n_iter": 2} if place == "decode" else {"n_iter": 4}
    wanted, told = watched.make(**request_, **at_once)
    watched.plan(place=place, iteration=1, times=1, after=after, ladder=True)
    images, info = watched.make(**request_, batch_size=2, n_iter=2)
    records = watched.state()["records"]
    assert (info["all_seeds"], info["all_subseeds"]) == (told["all_seeds"], told["all_subseeds"])
    assert "spillway" not in info
    assert [ALONE in record["rungs"] for record in records] == [False, False, True, True]
    assert [record["outcome"] for record in records] == ["delivered"] * 4
    if "init_images" not in request_:
        assert images[2:] == wanted[2:]
    same = ", same bytes" if images[2:] == wanted[2:] else ""
    survived("the ladder ends in a batch of 2", f"{len(images)} of 4, one by one{same}")


def test_only_the_image_that_does_not_fit_alone_is_lost(watched):
    watched.plan()
    wanted, _ = watched.make(n_iter=2)
    watched.plan(place="step", iteration=0, times=2, ladder=True)
    images, info = watched.make(batch_size=2, n_iter=2)
    assert info["all_seeds"] == [6, 7, 8]
    assert images[0] == wanted[1]
    assert info["spillway"]["notices"][0].startswith("Image 1 of 4 could not be made: ")
    assert outcomes(watched) == ["given up", "delivered", "delivered", "delivered"]


OUTPAINTING = [None, 16, 4, ["left", "right", "up"], 1.0, 0.05]
LINES = [False, False, "start", "one\ntwo\nthree"]
SECOND_REQUEST, SECOND_PICTURE = {"after": 6}, {"after": 4}
"""From a picture, four of six steps are made."""
SCRIPTS = [
    pytest.param("loopback", [3, 0.5, "Linear", "None"], FROM_PICTURE, SECOND_PICTURE, 4, id="loopback"),
    pytest.param("outpainting mk2", OUTPAINTING, FROM_PICTURE, SECOND_PICTURE, 1, id="outpainting"),
    pytest.param("poor man's outpainting", [16, 4, "fill", ["left", "up"]], FROM_PICTURE, SECOND_PICTURE, 1, id="poor"),
    pytest.param("sd upscale", [None, 16, 1, 2.0], FROM_PICTURE, SECOND_PICTURE, 1, id="upscale"),
    pytest.param(
        "prompt matrix", [False, False, "positive", "comma", 0], {"prompt": "a|b|c"}, {"iteration": 1}, 5, id="matrix"
    ),
    pytest.param("prompts from file or textbox", LINES, {}, SECOND_REQUEST, 2, id="prompts-from-file"),
]
"""Their arguments, where the second of their requests (or iterations) begins, and the pictures that come back, with
grids."""


@pytest.mark.parametrize(("script", "arguments", "request_", "where", "count"), SCRIPTS)
def test_a_script_goes_on_after_a_loss(watched, survived, script, arguments, request_, where, count):
    watched.plan(**{"place": "step", "iteration": 0, "times": 1, "ladder": True, **where})
    images, info = watched.make(**ONE, **request_, script_name=script, script_args=arguments)
    state = watched.state()
    assert (state["hit"], state["running"]) == (1, False)
    assert len(images) + info["index_of_first_image"] == count
    assert "could not be made: The UNet does not fit" in info["spillway"]["notices"][0]
    assert [record["outcome"] for record in state["records"]].count("given up") == 1
    survived("the ladder ends in the second request", f"{count} pictures, the lost named")


def test_a_script_of_which_nothing_was_made_says_so(watched):
    watched.plan(place="step", iteration=0, times=99, ladder=True)
    with pytest.raises(urllib.error.HTTPError) as error:
        watched.make(**FROM_PICTURE, n_iter=1, script_name="loopback", script_args=[2, 0.5, "Linear", "None"])
    assert "could not be made: The UNet does not fit" in error.value.read().decode()


def test_a_folder_with_chinese_and_spaces(watched, tmp_path):
    source, target = tmp_path / "输入 图片", tmp_path / "输出 结果"
    source.mkdir()
    target.mkdir()
    for name in ("一 first", "二 'second'", "三 third"):
        Image.linear_gradient("L").resize((64, 64)).convert("RGB").save(source / f"{name}.png")
    watched.plan(place="vae_encode", iteration=0, times=1, after=1, ladder=True)
    request = {name: ORDER[name] for name in ("steps", "sampler_name", "seed", "width", "height")}
    answer = watched.host.ask("/watch/folder", {
        "source": str(source), "target": str(target),
        "request": {**request, "prompt": "红色 \"圆\", 'blue' square: 100% \\o/", "denoising_strength": 0.6},
    })  # fmt: skip
    records = watched.state()["records"]
    assert answer["images"] == 2
    assert "Image 1 of 1 could not be made" in answer["comments"]
    assert sorted(record["outcome"] for record in records) == ["delivered", "delivered", "given up"]
    delivered = [record for record in records if record["file_path"]]
    assert {Path(record["file_path"]) for record in delivered} == set(target.iterdir())
    for record, text in zip(delivered, answer["infotexts"], strict=True):
        told = watched.host.ask("/watch/parse", {"infotext": text})["found"]
        assert told["Prompt"] == "红色 \"圆\", 'blue' square: 100% \\o/"
        assert told["Spillway id"] == record["record_id"][:8]
        assert Image.open(record["file_path"]).info["parameters"] == text
        name = Path(record["file_path"]).name
        found = watched.host.ask(f"/spillway/v1/images?files={urllib.parse.quote(name)}")["files"]
        assert found[name]["record_id"] == record["record_id"]


def test_everything_of_ours_lies_in_the_data_folder(watched, data):
    watched.plan()
    watched.make(prompt="一座 灯塔, \"黄昏\"", **ONE)
    (record,) = watched.state()["records"]
    assert Path(record["file_path"]).is_relative_to(data)
    assert {path.name for path in (data / "spillway").iterdir()} >= {"images.sqlite3"}
    assert watched.host.ask("/spillway/v1/doctor")["log"]["path"] == str(data / "spillway" / "images.sqlite3")


def test_an_image_that_is_not_saved_is_found_by_its_id(watched):
    watched.plan()
    _, info = watched.make(**ONE, save_images=False)
    (record,) = watched.state()["records"]
    assert record["file_path"] is None
    prefix = record["record_id"][:8]
    assert f"Spillway id: {prefix}" in info["infotexts"][0]
    assert watched.host.ask(f"/spillway/v1/images?ids={prefix}")["ids"][prefix]["record_id"] == record["record_id"]


OTHER = {"override_settings": {"sd_model_checkpoint": "other"}}


def test_loading_a_checkpoint_is_tried_again_off_the_card(watched):
    watched.host.ask("/spillway/v1/profile", {"profile": "dedicated"}, "PUT")
    watched.plan()
    wanted, _ = watched.make(**ONE)
    watched.plan(place="load", times=1)
    images, info = watched.make(**ONE, **OTHER)
    assert watched.state()["hit"] == 1
    assert images == wanted, "the two files hold the same weights"
    assert "Model: other" in info["infotexts"][0]
    watched.plan(place="load", times=1)
    assert watched.make(**ONE)[0] == wanted
    watched.host.ask("/spillway/v1/profile", {"profile": "auto"}, "PUT")


def test_a_checkpoint_that_cannot_be_loaded_is_one_sentence_and_the_next_is_made(watched):
    watched.plan()
    wanted, _ = watched.make(**ONE)
    watched.plan(place="load", times=9)
    with pytest.raises(urllib.error.HTTPError) as error:
        watched.make(**ONE, **OTHER)
    assert "The checkpoint could not be loaded" in error.value.read().decode()
    watched.plan()
    assert watched.make(**ONE)[0] == wanted


def test_a_refiner_that_runs_out_as_it_is_loaded(watched):
    request = {"n_iter": 2, "refiner_checkpoint": "other", "refiner_switch_at": 0.5}
    watched.plan()
    wanted, _ = watched.make(**request)
    watched.plan(place="load", times=1)
    images, info = watched.make(**request)
    assert watched.state()["hit"] == 1
    assert images == wanted
    assert "spillway" not in info


def test_between_two_images_the_checkpoint_does_not_come_back(watched):
    """After a refiner the webui loads the first checkpoint again: the third load of this request."""
    request = {"n_iter": 3, "refiner_checkpoint": "other", "refiner_switch_at": 0.5}
    watched.plan()
    wanted, _ = watched.make(**request)
    watched.make()  # the first checkpoint again
    watched.plan(place="load", times=9, after=1)
    images, info = watched.make(**request)
    assert images == wanted[:1]
    assert info["all_seeds"] == [5]
    assert info["spillway"]["notices"][0].startswith("Images 2 to 3 of 3 could not be made: The checkpoint could not")
    assert outcomes(watched) == ["delivered", "given up", "given up"]
    watched.plan()
    assert watched.make(**request)[0] == wanted


def test_a_plot_over_checkpoints_goes_on(watched):
    watched.make(**ONE)
    watched.plan(place="load", times=99, checkpoint="other")
    axes = watched.host.ask("/watch/axes")["labels"]
    x, nothing = (axes.index("Checkpoint name"), "small, other, small", []), (0, "", [])
    arguments = [*x, *nothing, *nothing, True, True, *(False,) * 5, 0, True]
    images, _ = watched.make(**ONE, script_name="x/y/z plot", script_args=arguments)
    assert len(images) >= 3
    assert outcomes(watched) == ["delivered", "delivered"]


def test_nothing_unexpected_was_written(watched):
    log = watched.host.log.read_text(errors="replace")
    assert "without Spillway" not in log
    assert "not complete" not in log
    assert "Error creating infotext" not in log
