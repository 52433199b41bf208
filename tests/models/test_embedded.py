"""What comes with the package: how large it is, that it loads everywhere, and that its words are its own."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.models import embedded, load_model
from sd_webui_spillway.models.training.samples import CAPTIONS

LARGEST_BYTES = 12_000_000


def weights_of(folder):
    return sorted(folder.rglob("*.safetensors"))


def test_the_weights_are_in_float16_and_at_most_12_mb(diffusers):
    from safetensors import safe_open

    files = weights_of(embedded.embedded_folder())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) <= LARGEST_BYTES
    for file in files:
        with safe_open(str(file), "pt") as tensors:
            assert {tensors.get_tensor(name).dtype for name in tensors.keys()} == {torch.float16}  # noqa: SIM118


def test_loading_it(cache, diffusers):
    state = torch.get_rng_state()
    loaded = load_model(None, cache)
    assert torch.equal(torch.get_rng_state(), state)
    assert (loaded.family, loaded.name, loaded.default_size) == ("embedded", "embedded", (256, 256))
    assert loaded.notices == (embedded.NOTICE,)
    assert {parameter.dtype for parameter in loaded.pipeline.unet.parameters()} == {torch.float32}
    assert loaded.pipeline.scheduler.config.prediction_type == "epsilon"


def test_every_word_it_knows_is_one_token(cache, diffusers):
    tokenizer = load_model(None, cache).pipeline.tokenizer
    assert len(tokenizer) < 1000
    for caption in CAPTIONS:
        assert len(tokenizer(caption)["input_ids"]) == len(caption.split()) + 2, caption


def test_it_needs_neither_hub_nor_clips_vocabulary(tmp_path, monkeypatch, diffusers):
    monkeypatch.setattr("sd_webui_spillway.models.clip_tokenizer.PACKAGES", ())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load_model(None, tmp_path / "cache").name == "embedded"


def test_a_copy_is_an_ordinary_model_folder(tmp_path, cache, diffusers):
    copy = shutil.copytree(embedded.embedded_folder(), tmp_path / "mine")
    loaded = load_model(copy, cache)
    assert (loaded.family, loaded.name, loaded.notices) == ("sd1", "mine", ())
    index = json.loads((copy / "model_index.json").read_text("utf-8"))
    assert index["_class_name"] == "StableDiffusionPipeline"


def test_an_incomplete_installation_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_MODEL", tmp_path / "model")
    with pytest.raises(UnavailableError, match="were not installed"):
        embedded.embedded_folder()
