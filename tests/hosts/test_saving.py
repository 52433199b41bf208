"""Finished images reach a disk: the folder asked for, or the one for rescues; whole, or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.timing import job_sentence
from tests.hosts.rig import Watcher, pixels, same

REQUEST = ImageRequest("a “red” circle", width=64, height=64, steps=1, seed=5, batch_count=2)


@pytest.fixture
def rescue(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp" / "spillway-rescued"


def test_a_folder_that_cannot_be_is_said_before_any_work(roomy, tmp_path):
    rig = roomy("sd1")
    (tmp_path / "file").write_text("kept")
    rig.folder, before = tmp_path / "file" / "outputs", rig.folder
    try:
        with pytest.raises(StorageError, match="Images cannot be saved in") as caught:
            rig.make(REQUEST, Profile.MEDVRAM)
    finally:
        rig.folder = before
    assert "\n" not in str(caught.value)
    assert rig.faults.calls == {}
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_that_vanishes_in_the_middle_costs_no_image(roomy, tmp_path, rescue):
    rig = roomy("sd1")
    wanted = rig.pictures(REQUEST, Profile.MEDVRAM)
    folder, before = tmp_path / "gone", rig.folder
    watcher = Watcher()
    watcher.image = lambda record: (shutil.rmtree(folder), folder.write_text("in the way")) and record
    watcher.image = _after_first(watcher.image)
    rig.folder = folder
    try:
        result = rig.make(REQUEST, Profile.MEDVRAM, watcher)
    finally:
        rig.folder = before
    assert [image.path.parent for image in result.images] == [folder, rescue]
    assert len(result.notices) == 1
    assert str(rescue) in result.notices[0]
    assert result.images[1].record.file_path == str(result.images[1].path)
    with Image.open(result.images[1].path) as image:
        assert image.size == (64, 64)
    assert len(wanted) == 2


def _after_first(action):
    seen = []

    def image(record):
        seen.append(record)
        return action(record) if len(seen) == 1 else record

    return image


def test_a_full_disk_leaves_no_part_of_a_file(roomy, rescue, tmp_path, monkeypatch):
    rig = roomy("sd1")
    wanted = rig.pictures(REQUEST, Profile.MEDVRAM)
    save, folder = Image.Image.save, tmp_path / "full"

    def full(self, stream, *args, **kwargs):
        if Path(stream.name).parent == folder:
            stream.write(b"\x89PNG")
            raise OSError(28, "No space left on device")
        return save(self, stream, *args, **kwargs)

    monkeypatch.setattr(Image.Image, "save", full)
    rig.folder, before = folder, rig.folder
    try:
        result = rig.make(REQUEST, Profile.MEDVRAM)
    finally:
        rig.folder = before
    assert list(folder.iterdir()) == []
    assert {image.path.parent for image in result.images} == {rescue}
    assert same(pixels(result), wanted)
    assert len(list(rescue.iterdir())) == 2
    assert all("No space left on device" in notice for notice in result.notices)


def test_where_no_disk_takes_it_one_sentence_names_the_image(roomy, rescue, monkeypatch):
    rig = roomy("sd1")
    rig.host.switch(Profile.MEDVRAM)

    def full(self, stream, *args, **kwargs):
        raise OSError(28, "No space left on device")

    before = set(rig.folder.glob("*")) if rig.folder.exists() else set()
    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(StorageError, match="could not be saved") as caught:
        rig.make(REQUEST, Profile.MEDVRAM)
    assert "\n" not in str(caught.value)
    assert set(rig.folder.glob("*")) == before
    assert list(rescue.iterdir()) == []
    assert rig.placement is Profile.MEDVRAM


def test_a_file_says_how_it_was_made(roomy):
    result = roomy("sd1").make(REQUEST, Profile.MEDVRAM)
    for place, delivered in enumerate(result.images):
        with Image.open(delivered.path) as image:
            said = json.loads(image.text["spillway"])
        assert (said["prompt"], said["seed"], said["steps"]) == (REQUEST.prompt, 5 + place, 1)
        assert said["record_id"] == delivered.record.record_id
    assert result.images[0].path != result.images[1].path


def test_a_disk_that_fills_in_the_middle_keeps_what_is_finished(roomy, monkeypatch, rescue):
    rig = roomy("sd1")
    real, saved = Image.Image.save, []

    def fills(self, *args, **kwargs):
        if len(saved) == 1:
            raise OSError(28, "No space left on device")
        saved.append(1)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Image.Image, "save", fills)
    result = rig.make(REQUEST, Profile.MEDVRAM)
    assert len(result.images) == 1
    assert result.images[0].path.is_file()
    assert result.interrupted
    assert result.unsaved_count == 1
    assert "nothing lost" not in job_sentence(result, REQUEST.image_count)
    assert "The job ended early" in result.notices[-1]
    assert "No space left on device" in result.notices[-1]
