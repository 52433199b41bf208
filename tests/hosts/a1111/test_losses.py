"""Memory that runs out in the second of three iterations, at each step of it: the other images come back."""

from __future__ import annotations

import json

import pytest
import torch

from sd_webui_spillway.hosts.a1111.series import NothingMadeError
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.timing.image_record import Outcome
from tests.hosts.a1111.conftest import FULL, Faults

SECOND = {"encode": 2, "step": 6, "decode": 2}
"""By place, a call there in the second iteration."""
SECOND_HIRES = {"encode": 2, "step": 14, "upscale": 2, "decode": 2}


def given_up(rig) -> list[int]:
    return [record.seed for record in rig.records() if record.outcome is Outcome.GIVEN_UP]


@pytest.mark.parametrize("hires", [False, True], ids=["plain", "hires"])
@pytest.mark.parametrize("place", ["encode", "step", "upscale", "decode"])
def test_room_is_made_and_the_call_repeated(rig, place, hires):
    nth = (SECOND_HIRES if hires else SECOND).get(place)
    if nth is None:
        return
    rig.webui.at = Faults(place, nth)
    processed = rig.webui.make(rig.webui.text_to_image(enable_hr=hires))
    assert rig.shades(processed) == [5, 6, 7]
    assert len(rig.engine.rooms_made) == 1
    assert given_up(rig) == []
    assert rig.records()[1].rungs == ("the models were moved off the card",)
    assert rig.records()[2].rungs == ()
    assert processed.comments == ""


@pytest.mark.parametrize("ladder", [False, True], ids=["again", "ladder"])
@pytest.mark.parametrize("hires", [False, True], ids=["plain", "hires"])
@pytest.mark.parametrize("place", ["encode", "step", "upscale", "decode"])
def test_an_image_that_cannot_be_made_costs_no_other(rig, place, hires, ladder):
    nth = (SECOND_HIRES if hires else SECOND).get(place)
    if nth is None:
        return
    rig.webui.at = Faults(place, nth, times=1 if ladder else 2, ladder=ladder)
    p = rig.webui.text_to_image(enable_hr=hires)
    processed = rig.webui.make(p)
    assert rig.shades(processed) == [5, 7]
    assert processed.all_seeds == [5, 7]
    assert len(processed.infotexts) == len(processed.all_prompts) == 2
    assert "Image 2 of 3 could not be made" in processed.comments
    assert given_up(rig) == [6]
    assert rig.records()[1].message in processed.comments
    assert [file.stem for file in rig.webui.saved if file.stem.isdigit()] == [
        file.stem for file in map(type(rig.webui.saved[0]), [r.file_path for r in rig.records() if r.file_path])
    ]
    assert p.do_not_save_samples is False
    result = rig.session.last_job()
    assert len(result.images) == 2
    assert not result.interrupted
    if ladder:
        assert rig.engine.rooms_made == []
        assert FULL in processed.comments


def test_the_answer_of_the_api_says_it(rig):
    rig.webui.at = Faults("step", 6, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(is_api=True))
    notices = [f"Image 2 of 3 could not be made: {FULL}"]
    assert json.loads(processed.js()) == {"seed": 5, "spillway": {"notices": notices}}


def test_a_job_without_losses_answers_as_ever(rig):
    assert rig.webui.make(rig.webui.text_to_image()).js() == '{"seed": 5}'


def test_the_first_image_may_be_the_lost_one(rig):
    rig.webui.at = Faults("step", 1, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(grid=True))
    assert rig.shades(processed) == [6, 7]
    assert (processed.seed, processed.index_of_first_image, len(processed.images)) == (6, 1, 3)


def test_a_batch_is_lost_whole_and_its_masks_with_it(rig):
    rig.webui.at = Faults("decode", 2, times=3, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=2, masks=True, grid=True))
    assert processed.all_seeds == [5, 6, 9, 10]
    assert [image.size for image in processed.images] == [(8, 8)] + [(16, 16), (4, 4)] * 4
    assert "Images 3 to 4 of 6" in processed.comments
    assert given_up(rig) == [7, 8]


def test_a_person_gets_an_empty_gallery_with_words(rig):
    rig.webui.at = Faults("step", 1, times=99, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(grid=True))
    assert processed.images == []
    assert "Image 3 of 3 could not be made" in processed.comments


def test_a_program_gets_an_error_with_words(rig):
    rig.webui.at = Faults("step", 1, times=99, ladder=True)
    with pytest.raises(NothingMadeError, match="Image 1 of 1 could not be made"):
        rig.webui.make(rig.webui.text_to_image(is_api=True, n_iter=1))
    assert rig.engine.open_jobs == 0


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory."), LadderExhaustedError(FULL)])
def test_before_anything_is_made_it_is_one_clear_sentence(rig, error):
    def fail(place: str) -> None:
        if place == "init":
            raise error

    rig.webui.at = fail
    with pytest.raises(Exception, match=r"^(The UNet does not fit|Encoding the picture ran out)"):
        rig.webui.make(rig.webui.image_to_image())
    assert given_up(rig) == [5]
    assert rig.session.last_job().notices


def test_the_picture_is_encoded_once_more(rig):
    rig.webui.at = Faults("init")
    assert rig.shades(rig.webui.make(rig.webui.image_to_image())) == [5, 6, 7]


def test_a_face_that_cannot_be_restored_stays_as_it_was(rig):
    rig.webui.at = Faults("face", 2, times=2)
    processed = rig.webui.make(rig.webui.text_to_image(restore_faces=True))
    assert rig.shades(processed) == [5, 6, 7]
    assert "A face was left as it was" in processed.comments
    assert given_up(rig) == []


def test_an_out_of_memory_that_face_restoration_reports_and_hides_is_seen(rig):
    report = rig.webui["errors"].report
    hidden = []

    def restore(place: str) -> None:
        if place == "face" and not hidden:
            hidden.append(place)
            try:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            except RuntimeError:
                rig.webui["errors"].report("Failed face-restoration inference", exc_info=True)

    assert report is rig.webui["errors"].report
    rig.webui.at = restore
    processed = rig.webui.make(rig.webui.text_to_image(restore_faces=True, n_iter=1))
    assert len(rig.engine.rooms_made) == 1
    assert processed.comments == ""
    assert "Failed face-restoration inference" not in rig.webui.calls


def test_an_error_inside_a_scripts_own_request_is_the_scripts(rig):
    inner = rig.webui.image_to_image(n_iter=1, seed=90)
    raised = []

    def repaint(place: str) -> None:
        if place == "picture" and not raised:
            raised.append("")
            rig.webui.at = Faults("step", ladder=True)
            with pytest.raises(LadderExhaustedError):
                rig.webui.make(inner)

    rig.webui.at = repaint
    assert rig.shades(rig.webui.make(rig.webui.text_to_image(n_iter=2))) == [5, 6]
    assert given_up(rig) == []
