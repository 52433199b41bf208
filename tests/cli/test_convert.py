"""``spillway model convert``: what it says, what it writes, and every order that it refuses."""

from __future__ import annotations

import pytest

from tests.small_models import small_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, needed):
    return small_folder(tmp_path_factory.mktemp("small") / "small")


def test_it_says_what_it_wrote(spillway, folder, tmp_path):
    target = tmp_path / "made" / "small.safetensors"
    answer = spillway("model", "convert", folder, target, "--precision", "fp16")
    assert answer.code == 0
    for path in (target, target.with_suffix(".yaml"), target.with_name("small-clip")):
        assert path.exists()
        assert str(path) in answer.out
    again = spillway("model", "convert", folder, target)
    assert again.code == 2
    assert "small.safetensors is there already" in again.sentence()
    assert spillway("model", "convert", folder, target, "--force").code == 0
    drawn = spillway("generate", "a red circle", "--model", target, "--width", 64, "--height", 64, "--steps", 1)
    assert drawn.code == 0


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("nowhere", "m.safetensors", ["nowhere", "not there"]),
        ("small/model_index.json", "m.safetensors", ["a file, not a folder"]),
        ("small/unet", "m.safetensors", ["not a model folder", "model_index.json"]),
        ("small", "m.ckpt", [".safetensors", ".ckpt"]),
        ("small", "small", [".safetensors"]),
    ],
)
def test_bad_orders(spillway, folder, tmp_path, source, target, said):
    answer = spillway("model", "convert", folder.parent / source, tmp_path / target)
    assert answer.code == 2
    for words in said:
        assert words in answer.sentence()
    assert not (tmp_path / target).exists()
