"""The infotext's entry: what it says, which images have it, and which must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sd_webui_spillway.hosts.a1111.infotext import entry_text, without_entries
from sd_webui_spillway.units import GIB, MIB


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("stream", 41, 2.31, int(5.6 * GIB), int(0.9 * GIB)), "stream 41%, 2.31 s, 5.6+0.9 GiB"),
        (("medvram", None, 65.2, int(5.6 * GIB), 0), "medvram, 1 min 05 s, 5.6 GiB"),
        (("lowvram", None, 2.0, None, None), "lowvram, 2.00 s"),
        (("spill", None, 2.0, None, 3 * GIB), "spill, 2.00 s, 3.0 GiB shared"),
        (("stream", 0, 2.0, GIB, 40 * MIB), "stream 0%, 2.00 s, 1.0 GiB + 40 MiB"),
    ],
)
def test_what_is_unknown_is_left_out(arguments, text):
    assert entry_text(*arguments) == text


def test_a_simulated_card_is_named_so():
    assert entry_text("stream", None, 1.0, GIB, None, simulated=True) == "stream, 1.00 s, 1.0 GiB (simulated)"


def test_entries_are_taken_out_of_the_parameters_only():
    prompt = "a sign, Spillway: stop\nNegative prompt: dark"
    told = f'{prompt}\nSteps: 4, Spillway: "stream 41%, 2.31 s", Spillway id: 0a1b2c3d, Version: 1'
    assert without_entries(told) == f"{prompt}\nSteps: 4, Version: 1"


def test_each_image_says_what_it_took_in_its_file_and_in_the_gallery(rig):
    processed = rig.webui.make(rig.webui.text_to_image(batch_size=2, n_iter=2))
    for record, text in zip(rig.records(), processed.infotexts, strict=True):
        assert f"Spillway id: {record.record_id[:8]}" in text
        assert 'Spillway: "stream 41%, ' in text
        assert "5.6+0.5 GiB" in text
        assert Path(record.file_path).read_text() == text


def test_no_other_picture_has_one(rig):
    p = rig.webui.text_to_image(enable_hr=True, restore_faces=True, grid=True, n_iter=2)
    processed = rig.webui.make(p)
    for file in rig.webui.saved:
        assert ("Spillway" in file.read_text()) == file.stem.isdigit(), file.stem
    assert "Spillway" not in processed.infotexts[0]
    assert "Spillway" not in rig.webui.params
    assert p.extra_generation_params == {}


def test_an_image_that_is_not_saved_has_one(rig):
    processed = rig.webui.make(rig.webui.text_to_image(do_not_save_samples=True))
    assert [f"Spillway id: {record.record_id[:8]}" in text for record, text in zip(
        rig.records(), processed.infotexts, strict=True)] == [True] * 3


def test_it_can_be_switched_off(rig):
    rig.session.change_settings(infotext=False)
    assert "Spillway" not in rig.webui.make(rig.webui.text_to_image(n_iter=1)).infotexts[0]
    assert len(rig.records()) == 1
