"""A whole training run in small: every stage, pausing and going on, and what is released."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from sd_webui_spillway.errors import BadInputError
from sd_webui_spillway.models.training import train as training_module
from sd_webui_spillway.models.training.loop import Clock, PausedError, learning_rate
from sd_webui_spillway.models.training.picture_bank import Order, draw_bank
from sd_webui_spillway.models.training.recipe import FULL, TINY
from sd_webui_spillway.models.training.store import Store
from sd_webui_spillway.models.training.train import Training

CPU = torch.device("cpu")


class Told:
    """A report that keeps what it was told, and can pause the run after so many steps of a stage."""

    def __init__(self):
        self.stages, self.losses = [], {}
        self.pause_in, self.clock = None, Clock()

    def stage(self, name, total):
        self.stages.append(name)

    def step(self, done, loss):
        if loss is not None:
            self.losses.setdefault(self.stages[-1], []).append(loss)
        if self.pause_in == (self.stages[-1], done):
            self.clock.pause_after_seconds = -1.0


def run(folder, recipe=TINY, told=None):
    told = told or Told()
    return Training(recipe, Store(folder), CPU, told, told.clock).run()


@pytest.fixture(scope="module", autouse=True)
def packages():
    for name in training_module._PACKAGES:
        pytest.importorskip(name, reason=f"needs {name}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, told = tmp_path_factory.mktemp("run"), Told()
    return run(folder, told=told), told


def test_every_stage_runs_and_is_timed(finished):
    release, told = finished
    assert [name for name in told.stages if " " not in name] == ["autoencoder", "denoiser", "striped"]
    assert set(told.losses) == {"autoencoder", "denoiser", "striped"}
    facts = json.loads((release.parent / "run.json").read_text("utf-8"))
    assert set(facts["seconds"]) == {"autoencoder", "latents", "denoiser", "striped", "classifier"}
    assert facts["device"] == "CPU"
    assert list((release.parent / "samples").glob("*.png"))
    assert not list(release.parent.glob("*-state.pt"))


def test_the_release_is_a_model_with_a_lora(finished, cache):
    from sd_webui_spillway.models import LoraChoice, load_model

    model = finished[0] / "model"
    plain = load_model(model, cache).pipeline
    striped = load_model(model, cache, loras=(LoraChoice(finished[0] / "loras" / "striped.safetensors", 1.0),)).pipeline
    pictures = []
    for pipeline in (plain, striped):
        pipeline.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(0)
        pictures.append(pipeline("a red star", num_inference_steps=2, generator=generator, output_type="pt").images)
    assert pictures[0].shape == (1, 3, 64, 64)
    assert not torch.equal(*pictures)


def test_the_released_weights_are_those_that_were_learnt(finished, cache):
    from sd_webui_spillway.models import load_model

    store = Store(finished[0].parent)
    learnt, pipeline = store.load("denoiser"), load_model(finished[0] / "model", cache).pipeline
    assert pipeline.vae.config.scaling_factor == store.facts()["scaling_factor"] != 0.18215
    unet = pipeline.unet.state_dict()
    assert len(unet) > 50
    for name, tensor in unet.items():
        assert torch.equal(tensor, learnt[f"unet.{name}"].half().float()), name


def test_going_on_after_a_pause_learns_the_same(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("sd_webui_spillway.models.training.loop._SHOWN_EVERY", 1)
    for pause_in in (("autoencoder", 2), ("denoiser", 3)):
        told = Told()
        told.pause_in = pause_in
        with pytest.raises(PausedError):
            run(tmp_path, told=told)
        assert (tmp_path / f"{pause_in[0]}-state.pt").is_file()
    run(tmp_path)
    for stage in ("autoencoder", "denoiser"):
        theirs, ours = Store(finished[0].parent).load(stage), Store(tmp_path).load(stage)
        for name, tensor in theirs.items():
            assert torch.equal(tensor, ours[name]), (stage, name)


def test_a_finished_run_does_nothing_again(finished):
    told = Told()
    assert run(finished[0].parent, told=told) == finished[0]
    assert told.stages == []


def test_another_recipe_in_the_same_folder_is_refused(finished):
    with pytest.raises(BadInputError, match="another recipe"):
        run(finished[0].parent, dataclasses.replace(TINY, seed=2))


def test_a_bank_is_the_same_every_time_and_holds_no_held_out_combination(monkeypatch):
    from sd_webui_spillway.models.training import picture_bank

    order = Order(5, 60, 256)
    first, second = draw_bank(order), draw_bank(order)
    assert torch.equal(first.drawings.values, second.drawings.values)
    assert first.captions == second.captions
    assert all(len(texts) == 2 for texts in first.captions)
    seen = []
    monkeypatch.setattr(picture_bank, "is_held_out", lambda scene: seen.append(scene) or len(seen) % 2 == 0)
    assert len(draw_bank(order).captions) == 60
    assert len(seen) == 119


def test_a_large_bank_is_drawn_by_several_processes(monkeypatch):
    from sd_webui_spillway.models.training import picture_bank

    told = []
    bank = draw_bank(Order(5, picture_bank._SHARD + 10, 64), lambda done, total: told.append((done, total)))
    assert len(bank.drawings) == len(bank.captions) == picture_bank._SHARD + 10
    assert told[-1] == (picture_bank._SHARD + 10, picture_bank._SHARD + 10)


def test_the_learning_rate_rises_and_falls():
    rates = [learning_rate(step, 1000, 1e-3) for step in range(1000)]
    assert rates.index(max(rates)) == 29
    assert rates[0] < 1e-4
    assert rates[-1] < 2e-5


def test_the_full_recipe_is_small_enough():
    from sd_webui_spillway.models.building import empty_modules

    modules = empty_modules(FULL.config(700))
    weights = sum(p.numel() for module in modules.by_name().values() for p in module.parameters())
    assert weights * 2 <= 12_000_000
