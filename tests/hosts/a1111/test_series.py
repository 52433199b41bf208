"""Scripts and folders that ask for many images: what cannot be made costs nothing that is finished, shifts no tile, and
the rest goes on."""

from __future__ import annotations

import copy
import json
import types

import pytest
import torch
from PIL import Image

from sd_webui_spillway.hosts.a1111.series import NothingMadeError
from tests.hosts.a1111.conftest import FULL, Faults
from tests.hosts.a1111.test_batches import lost


def shades(images) -> list[int]:
    return [image.getpixel((0, 0))[0] for image in images]


@pytest.fixture
def run(rig):
    def run(p, script, name="a script", number=1):
        runner = rig.webui["scripts"].ScriptRunner()
        runner.selectable_scripts = [types.SimpleNamespace(filename=f"scripts/{name}.py", run=script)]
        return runner.run(p, number)

    return run


def each_seed(rig, *seeds):
    """A script that asks for one image after another and takes the first of each answer, as the webui's do."""

    def script(p):
        pictures = []
        for seed in seeds:
            p = copy.copy(p)
            p.seed = seed
            pictures.append(rig.webui.make(p).images[0])
        return rig.webui.processing.Processed(p, pictures, infotexts=["text"] * len(pictures))

    return script


def test_tiles_stay_in_their_places(rig, run):
    rig.webui.at = Faults("step", 3, ladder=True)
    p = rig.webui.image_to_image(n_iter=1, do_not_save_samples=True, init_images=[Image.new("RGB", (8, 8), (200,) * 3)])
    processed = run(p, each_seed(rig, 5, 6, 7))
    assert shades(processed.images) == [5, 200, 7], "the tile is as it was"
    assert processed.images[1].size == (16, 16)
    assert processed.spillway_notices == (f"Image 1 of 1 could not be made: {FULL}",)
    assert FULL in processed.comments
    assert lost(rig) == [6]


def test_without_a_picture_to_begin_from_the_place_is_dark(rig, run):
    rig.webui.at = Faults("step", 5, ladder=True)
    processed = run(rig.webui.text_to_image(n_iter=1), each_seed(rig, 5, 6, 7))
    assert shades(processed.images) == [5, 0, 7]
    assert [record.seed for record in rig.records() if record.file_path] == [5, 7]


def test_places_are_kept_in_a_request_for_many(rig, run):
    rig.webui.at = Faults("step", 5, ladder=True)
    processed = run(rig.webui.text_to_image(masks=True, grid=True), lambda p: rig.webui.make(p))
    assert shades(processed.images[1::2]) == [5, 0, 7]
    assert len(processed.images) == 7
    assert len(processed.infotexts) == 4


@pytest.mark.parametrize("name", ["xyz_grid", "prompts_from_file"])
def test_scripts_that_heed_missing_images_are_told_the_truth(rig, run, name):
    rig.webui.at = Faults("step", 5, ladder=True)
    answers = []

    def script(p):
        for seed in (5, 6, 7):
            p = copy.copy(p)
            p.seed = seed
            answers.append(rig.webui.make(p))
        return answers[0]

    processed = run(rig.webui.text_to_image(n_iter=1), script, name)
    assert [shades(answer.images) for answer in answers] == [[5], [], [7]]
    assert processed.spillway_notices == (f"Image 1 of 1 could not be made: {FULL}",)


def test_a_picture_that_cannot_be_encoded_is_one_place(rig, run):
    rig.webui.at = Faults("init", 2, ladder=True)
    start = Image.new("RGB", (8, 8), (200,) * 3)
    processed = run(rig.webui.image_to_image(n_iter=1, init_images=[start]), each_seed(rig, 5, 6, 7))
    assert shades(processed.images) == [5, 200, 7]
    assert lost(rig) == [6]


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory."), NothingMadeError(FULL)])
def test_a_script_that_runs_out_itself_answers_with_what_it_made(rig, run, error):
    def script(p):
        rig.webui.make(p)
        raise error

    processed = run(rig.webui.text_to_image(n_iter=2), script)
    assert shades(processed.images) == [5, 6]
    assert len(processed.infotexts) == 2
    assert json.loads(processed.js())["spillway"]["notices"] == [f"It ended early: {error}"]


def test_a_script_that_stumbles_over_a_loss_answers_with_what_was_made(rig, run):
    rig.webui.at = Faults("step", 5, ladder=True)

    def script(p):
        return rig.webui.make(p).images[3]

    processed = run(rig.webui.text_to_image(), script)
    assert shades(processed.images) == [5, 7]
    assert processed.spillway_notices[1] == "It ended early: list index out of range"


def test_an_error_of_the_scripts_own_stays_its_own(rig, run):
    def script(p):
        rig.webui.make(p)
        raise ValueError("a comma is missing")

    with pytest.raises(ValueError, match="comma"):
        run(rig.webui.text_to_image(n_iter=1), script)
    assert rig.watch._series.current() is None


def test_nothing_at_all_is_an_error_for_a_program_and_words_for_a_person(rig, run):
    rig.webui.at = Faults("step", 1, times=99, ladder=True)
    with pytest.raises(NothingMadeError, match="could not be made"):
        run(rig.webui.text_to_image(is_api=True, n_iter=1), each_seed(rig, 5, 6))
    processed = run(rig.webui.text_to_image(n_iter=1), each_seed(rig, 5, 6))
    assert shades(processed.images) == [0, 0]
    assert FULL in processed.comments


def test_no_script_is_no_series(rig, run):
    assert run(rig.webui.text_to_image(), None, number=0) is None
    rig.webui.at = Faults("step", 1, times=99, ladder=True)
    with pytest.raises(NothingMadeError):
        rig.webui.make(rig.webui.text_to_image(is_api=True, script_args=[0], n_iter=1))


@pytest.mark.parametrize("place", ["init", "step"])
def test_a_folder_goes_on_after_a_picture_that_cannot_be_made(rig, place):
    rig.webui.at = Faults(place, 2 if place == "init" else 3, ladder=True)
    p = rig.webui.image_to_image(n_iter=1)
    pictures = [Image.new("RGB", (8, 8))] * 3
    processed = rig.webui["img2img"].process_batch(p, pictures, "", "", [0])
    assert shades(processed.images) == [5, 5]
    assert "Image 1 of 1 could not be made" in processed.comments
    assert len(rig.records()) == 3


def test_a_folder_of_which_the_first_is_lost(rig):
    rig.webui.at = Faults("init", 1, ladder=True)
    processed = rig.webui["img2img"].process_batch(
        rig.webui.image_to_image(n_iter=1), [Image.new("RGB", (8, 8))] * 2, "", "", [0]
    )
    assert shades(processed.images) == [5]
    assert processed.spillway_notices


def test_again_and_again_as_generate_forever_does(rig):
    rig.webui.at = Faults("step", 5, times=4, ladder=True)
    made = [shades(rig.webui.make(rig.webui.text_to_image(n_iter=1, seed=seed)).images) for seed in range(10, 16)]
    assert made == [[10], [], [], [], [], [15]]
    assert lost(rig) == [11, 12, 13, 14]
    assert rig.engine.open_jobs == 0
