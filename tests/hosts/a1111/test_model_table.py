"""Taking a checkpoint over from the host, and giving it back where that fails."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sd_webui_spillway.errors import SpillwayError
from sd_webui_spillway.hosts.a1111 import takeover
from sd_webui_spillway.hosts.a1111.attachment import Attachment
from sd_webui_spillway.hosts.a1111.model_table import ModelTable, PlacementChoices
from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.recovery.method_patch import PatchSet
from sd_webui_spillway.units import GIB
from tests.placed_rig import components


class Checkpoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cond_stage_model, self.model, self.first_stage_model = (part.module for part in components())


class Words(nn.Embedding):
    def forward(self, words):
        if words.device != self.weight.device:
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().forward(words)


class SecondEncoder:
    """As the host reads SD 2's table: with indices on its own device, wherever the table is."""

    def __init__(self, device: str) -> None:
        embedding = SimpleNamespace(wrapped=Words(4, 2, device=device))
        self.wrapped = SimpleNamespace(model=SimpleNamespace(token_embedding=embedding))

    def encode_embedding_init_text(self, text, count):
        return self.wrapped.model.token_embedding.wrapped(torch.tensor([[1]])).squeeze(0)


@pytest.fixture
def webui(monkeypatch):
    """The host's functions that move a model; ``moved`` is what its own were asked for."""
    moved: list[str] = []
    host = {
        "lowvram": SimpleNamespace(
            is_needed=lambda model: False, apply=lambda model: moved.append("apply"),
            send_everything_to_cpu=lambda: None, setup_for_low_vram=lambda model, use_medvram: moved.append("medvram"),
        ),
        "sd_models": SimpleNamespace(
            model_data=SimpleNamespace(sd_model=None, loaded_sd_models=[]), send_model_to_cpu=lambda m: None,
            send_model_to_trash=lambda m: None, send_model_to_device=lambda m: moved.append("device"),
        ),
        "sd_vae": SimpleNamespace(load_vae=lambda model, file=None: moved.append("vae")),
        "devices": SimpleNamespace(cpu=torch.device("cpu")),
        "shared": SimpleNamespace(parallel_processing_allowed=True),
        "sd_hijack_open_clip": SimpleNamespace(FrozenOpenCLIPEmbedderWithCustomWords=SecondEncoder),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "modules", SimpleNamespace(**host))
    return SimpleNamespace(**host, moved=moved)


@pytest.fixture
def table(webui):
    made = ModelTable(lambda: SimulatedCard(1 * GIB), SharedLedger(), Profile.MEDVRAM, PlacementChoices)
    patches = PatchSet()
    takeover.install(patches, made)
    yield made
    patches.undo()


def loaded(webui) -> Checkpoint:
    model = Checkpoint()
    webui.sd_models.model_data.sd_model = model
    webui.sd_models.model_data.loaded_sd_models.append(model)
    return model


def test_a_model_that_cannot_be_taken_over_is_the_hosts_again(webui, table, monkeypatch):
    def fail(*args):
        raise TypeError("a layer of another program")

    first, model = loaded(webui), loaded(webui)
    table.attach(first)
    monkeypatch.setattr(Attachment, "attach", fail)
    table.attach(model)
    assert table.attachments == []
    assert not table.places()
    assert "a layer of another program" in table.no_card_because
    assert webui.moved == ["device", "device"]
    assert not first.lowvram
    table.attach(model)
    assert table.attachments == []


@pytest.mark.parametrize("error", [
    SpillwayError("The model's largest layer does not fit on the card."),
    torch.cuda.OutOfMemoryError("CUDA out of memory."),
])
def test_a_model_that_does_not_fit_is_tried_again_by_the_next_job(webui, table, monkeypatch, error):
    def too_large(*args):
        raise error

    model = loaded(webui)
    with monkeypatch.context() as full:
        full.setattr(Attachment, "attach", too_large)
        with pytest.raises(type(error)):
            table.attach(model)
    assert table.attachments == []
    table.attach(model)
    assert table.current().profile is Profile.MEDVRAM


@pytest.mark.parametrize("profile", [Profile.DEDICATED, Profile.MEDVRAM])
def test_what_the_host_has_on_the_card_is_moved_only_if_it_has_to(webui, table, profile):
    model = loaded(webui)
    card = table._card_or_none()
    weights = [*model.parameters(), *model.buffers()]
    for weight in weights:
        weight.data = card.put(weight)
    places, before = [weight.data_ptr() for weight in weights], card.moved_bytes
    table.profile = profile
    table.attach(model)
    assert (card.moved_bytes == before) == (profile is Profile.DEDICATED)
    assert ([weight.data_ptr() for weight in weights] == places) == (profile is Profile.DEDICATED)


def test_what_does_not_fit_whole_is_given_back_part_by_part(webui, monkeypatch):
    def too_large(m):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(webui.sd_models, "send_model_to_device", too_large)
    takeover.give_back_to_host(loaded(webui))
    assert webui.moved == ["medvram"]
    assert not webui.shared.parallel_processing_allowed


def test_a_card_that_torch_refuses_leaves_the_loading_to_the_host(webui):
    def refused():
        raise RuntimeError("CUDA error: unknown error\nCompile with TORCH_USE_CUDA_DSA")

    table = ModelTable(refused, SharedLedger(), Profile.MEDVRAM, PlacementChoices)
    assert not table.places()
    assert table.no_card_because == "the card cannot be used (CUDA error: unknown error)"


def test_where_nothing_is_placed_the_host_hears_of_its_own_errors(webui, monkeypatch):
    def none_here():
        raise SpillwayError("there is no GPU here")

    def too_large(m):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(webui.sd_models, "send_model_to_device", too_large)
    table, patches = ModelTable(none_here, SharedLedger(), Profile.MEDVRAM, PlacementChoices), PatchSet()
    takeover.install(patches, table)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        webui.sd_models.send_model_to_device(loaded(webui))
    patches.undo()


def test_what_a_job_has_learnt_outlasts_its_first_batch(webui, table):
    """The host sends everything to system memory after every batch it has decoded."""
    rested = []
    table.attachments = [
        SimpleNamespace(profile=profile, placed=SimpleNamespace(rest=lambda profile=profile: rested.append(profile)))
        for profile in (Profile.STREAM, Profile.MEDVRAM)
    ]
    table.job = SimpleNamespace()
    webui.lowvram.send_everything_to_cpu()
    assert rested == [Profile.MEDVRAM]
    table.job = None
    webui.lowvram.send_everything_to_cpu()
    assert rested == [Profile.MEDVRAM, Profile.STREAM, Profile.MEDVRAM]


def test_the_host_reads_a_word_wherever_the_table_is(table):
    encoder = SecondEncoder("meta")
    assert encoder.encode_embedding_init_text(",", 1).shape == (1, 2)
    assert not encoder.wrapped.model.token_embedding.wrapped._forward_pre_hooks
