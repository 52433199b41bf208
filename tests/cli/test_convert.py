"""``spillway model convert`` and ``--lora``: what they say, what they write, and every order that they refuse."""

from __future__ import annotations

import pytest
from PIL import Image

from sd_webui_spillway.models.lora import write_lora
from tests.small_models import random_lora, small_config, small_folder


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


@pytest.fixture(scope="module")
def loras(folder):
    """A folder with one LoRA in diffusers' form, and A1111's file of the same."""
    pytest.importorskip("peft", reason="needs peft")
    made = folder.parent / "loras"
    write_lora(made / "lora", made / "lora.safetensors", random_lora(small_config()), small_config())
    return made


def test_a_lora_changes_the_picture_by_its_weight(spillway, folder, loras, tmp_path):
    def picture(*words):
        data = tmp_path / str(len(list(tmp_path.iterdir())))
        order = ("generate", "a circle", "--model", folder, "--width", 64, "--height", 64, "--steps", 1, *words)
        answer = spillway(*order, data=data)
        assert answer.code == 0, answer.err
        (path,) = data.rglob("*.png")
        with Image.open(path) as image:
            return image.convert("RGB").tobytes()

    plain, wanted = picture(), picture("--lora", loras / "lora")
    assert wanted != plain
    assert picture("--lora", f"{loras / 'lora.safetensors'}:1.0") == wanted
    assert picture("--lora", f"{loras / 'lora'}:0.5") not in (plain, wanted)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("nowhere.safetensors", 2, ["no LoRA at", "nowhere.safetensors"]),
        ("lora.safetensors:nan", 2, ["finite"]),
        ("../small/unet/diffusion_pytorch_model.safetensors", 1, ["“diffusion_pytorch_model.safetensors”", "no LoRA"]),
        ("../small", 2, ["pytorch_lora_weights.safetensors"]),
    ],
)
def test_bad_loras(spillway, folder, loras, text, code, said):
    answer = spillway("profiles", "--model", folder, "--lora", loras / text)
    assert answer.code == code
    for words in said:
        assert words in answer.sentence()
