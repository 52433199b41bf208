"""A batch that cannot be made at once: its images are made one by one, and only what does not fit alone is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sd_webui_spillway.hosts.a1111.one_by_one import joined, row_of
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.timing.image_record import Outcome
from tests.hosts.a1111.conftest import FULL, Faults

ALONE = "the batch could not be made at once: its images were made one by one"
SECOND = {"step": 6, "decode": 2}
"""By place, a call there in the second iteration of a batch made without a fault."""
SECOND_HIRES = {"step": 14, "upscale": 2, "decode": 2}


def lost(rig) -> list[int]:
    return [record.seed for record in rig.records() if record.outcome is Outcome.GIVEN_UP]


@pytest.mark.parametrize("ladder", [False, True], ids=["again", "ladder"])
@pytest.mark.parametrize(
    ("place", "nth", "request_"),
    [
        *[(place, nth, {}) for place, nth in SECOND.items()],
        *[(place, nth, {"enable_hr": True}) for place, nth in SECOND_HIRES.items()],
    ],
)
def test_every_image_is_made_alone(rig, place, nth, request_, ladder):
    rig.webui.at = Faults(place, nth, times=1 if ladder else 2, ladder=ladder)
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=2, **request_))
    assert rig.shades(processed) == processed.all_seeds == [5, 6, 7, 8, 9, 10]
    assert processed.comments == ""
    assert lost(rig) == []
    records = rig.records()
    assert [(record.seed, record.batch_index, record.batch_size) for record in records] == [
        (5 + number, number % 2, 2) for number in range(6)
    ]  # fmt: skip
    assert [ALONE in record.rungs for record in records] == [False, False, True, True, False, False]
    assert [Path(record.file_path).read_text() for record in records] == processed.infotexts


def test_from_a_picture_each_has_its_own_row(rig):
    p = rig.webui.image_to_image(batch_size=2, n_iter=1)
    p.init_latent = torch.stack([torch.full((4, 2, 2), 1.0), torch.full((4, 2, 2), 2.0)])
    p.mask = torch.zeros(2, 4, 4)
    seen, fault = [], Faults("step", 1, ladder=True)

    def at(place: str) -> None:
        if place == "step":
            seen.append((p.init_latent[:, 0, 0, 0].tolist(), p.mask))
        fault(place)

    rig.webui.at = at
    assert rig.shades(rig.webui.make(p)) == [5, 6]
    assert [rows for rows, _ in seen] == [[1.0, 2.0], [1.0], [1.0], [2.0], [2.0]]
    assert all(mask is p.mask for _, mask in seen)
    assert p.init_latent.shape[0] == p.batch_size == 2


@pytest.mark.parametrize("place", ["step", "decode"])
def test_only_what_does_not_fit_alone_is_lost(rig, place):
    rig.webui.at = Faults(place, SECOND[place], times=2, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=2, masks=True, grid=True))
    assert processed.all_seeds == [5, 6, 8, 9, 10]
    assert rig.shades(processed)[::2] == [5, 6, 8, 9, 10]
    assert f"Image 3 of 6 could not be made: {FULL}" in processed.comments
    assert lost(rig) == [7]
    assert [record.seed for record in rig.records() if record.file_path] == processed.all_seeds
    assert len([file for file in rig.webui.saved if file.stem.isdigit()]) == 5


def test_images_apart_are_named_together(rig):
    at_once_and_two_alone = (1, 2, 4)
    calls = iter(range(1, 9))

    def at(place: str) -> None:
        if place == "decode" and next(calls) in at_once_and_two_alone:
            raise LadderExhaustedError(FULL)

    rig.webui.at = at
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=4, n_iter=1))
    assert rig.shades(processed) == [6, 8]
    assert "Images 1 and 3 of 4 could not be made" in processed.comments


def test_what_the_user_stops_before_it_is_begun_is_named(rig):
    fault = Faults("step", 1, ladder=True)

    def at(place: str) -> None:
        fault(place)
        if place == "step" and fault.calls == 3:
            rig.webui.state.interrupt()

    rig.webui.at = at
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=3, n_iter=1))
    assert rig.shades(processed) == [5]
    assert "Images 2 to 3 of 3 could not be made: The user stopped it" in processed.comments
    assert rig.session.last_job().interrupted


def test_a_prompt_that_cannot_be_read_costs_its_batch(rig):
    """The webui reads the prompts of a batch one by one: a smaller one would need no less."""
    rig.webui.at = Faults("encode", 2, ladder=True)
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=2))
    assert rig.shades(processed) == [5, 6, 9, 10]
    assert rig.webui.calls.count("encode") == 3


class Read:
    def __init__(self, shape, batch) -> None:
        self.shape, self.batch = shape, batch


def test_rows_are_taken_of_what_has_them():
    assert row_of(torch.arange(3), 1, 3).tolist() == [1]
    assert row_of(torch.arange(4), 1, 3).tolist() == [0, 1, 2, 3]
    assert row_of(["a", "b", "c"], 2, 3) == ["c"]
    assert row_of(None, 0, 3) is None
    part = row_of(Read((3,), ["a", "b", "c"]), 1, 3)
    assert (part.shape, part.batch) == ((1,), ["b"])


def test_latents_and_pictures_are_joined():
    dark = [torch.full((3, 8, 8), -1.0)] * 2
    latents = joined([None, torch.ones(1, 4, 2, 2)], dark)
    assert latents[:, 0, 0, 0].tolist() == [0, 1]
    pictures = joined([[torch.ones(3, 8, 8)], None], dark)
    assert [picture.max().item() for picture in pictures] == [1, -1]
