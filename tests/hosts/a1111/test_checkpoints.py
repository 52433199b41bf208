"""Memory that runs out while a checkpoint is loaded: once more into system memory, and at worst only what needs it is
lost."""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager

import pytest
import torch

from sd_webui_spillway.hosts.a1111.checkpoints import CheckpointLoadError, CheckpointLoads
from sd_webui_spillway.recovery.method_patch import PatchSet
from tests.hosts.a1111.conftest import Faults
from tests.hosts.a1111.test_batches import lost


class Models(types.ModuleType):
    """Loads "weights" as the webui does; :attr:`faults` is how often that runs out of memory."""

    def __init__(self) -> None:
        super().__init__("modules.sd_models")
        self.model_data = types.SimpleNamespace(sd_model="a")
        self.faults = 0
        self.error: Exception = torch.cuda.OutOfMemoryError("CUDA out of memory.")
        self.calls: list[tuple] = []

        def load_model(checkpoint_info=None, already_loaded_state_dict=None):
            self.calls.append(("load", checkpoint_info, already_loaded_state_dict))
            self.model_data.sd_model = None
            return self.weights(checkpoint_info)

        def reload_model_weights(sd_model=None, info=None, forced_reload=False):
            self.calls.append(("reload", sd_model, info, forced_reload))
            if info == "another kind":
                return self.load_model(info, already_loaded_state_dict={"weight": 1})
            return self.weights(info)

        self.load_model, self.reload_model_weights = load_model, reload_model_weights

    def weights(self, info):
        if self.faults:
            self.faults -= 1
            raise self.error
        self.model_data.sd_model = info
        return info


class Placements:
    def __init__(self) -> None:
        self.places_models = True
        self.unsettled: list[object] = []
        self.off_card: list[str] = []

    def places(self) -> bool:
        return self.places_models

    def unsettle(self, model: object) -> None:
        self.unsettled.append(model)

    @contextmanager
    def loading_off_card(self, words: str):
        self.off_card.append(words)
        yield


@pytest.fixture
def models(monkeypatch):
    made, package = Models(), types.ModuleType("modules")
    package.sd_models = made
    monkeypatch.setitem(sys.modules, "modules", package)
    monkeypatch.setitem(sys.modules, "modules.sd_models", made)
    return made


@pytest.fixture
def placements(models):
    made, patches = Placements(), PatchSet()
    CheckpointLoads(made).install(patches)
    yield made
    patches.undo()


def test_weights_are_read_again_into_a_model_that_is_whole(models, placements):
    models.faults = 1
    assert models.reload_model_weights(info="b") == "b"
    assert models.calls == [("reload", None, "b", False), ("reload", "a", "b", True)]
    assert placements.unsettled == ["a"]
    assert placements.off_card == ["CUDA out of memory."]


def test_a_new_model_is_made_again_from_the_file(models, placements):
    models.faults = 1
    assert models.reload_model_weights(None, "another kind") == "another kind"
    assert models.calls[1:] == [("load", "another kind", {"weight": 1}), ("load", "another kind", None)]
    assert placements.unsettled == []


def test_twice_is_one_clear_sentence_and_not_tried_a_third_time(models, placements):
    models.faults = 9
    with pytest.raises(CheckpointLoadError, match=r"^The checkpoint could not be loaded"):
        models.reload_model_weights(None, "another kind")
    assert models.faults == 7


def test_other_errors_are_the_webuis(models, placements):
    models.faults, models.error = 1, FileNotFoundError("b.safetensors")
    with pytest.raises(FileNotFoundError):
        models.reload_model_weights(info="b")
    assert len(models.calls) == 1


def test_the_iterations_before_come_back(rig):
    rig.webui.at = Faults("reload", 3, times=2)
    p = rig.webui.text_to_image(n_iter=4, batch_size=2, grid=True)
    processed = rig.webui.make(p)
    assert rig.shades(processed) == processed.all_seeds == [5, 6, 7, 8]
    assert len(processed.all_prompts) == 4
    assert "Images 5 to 8 of 8 could not be made: Loading the checkpoint ran out of memory" in processed.comments
    assert lost(rig) == [9, 10, 11, 12]
    assert [(record.batch_index, record.batch_size) for record in rig.records()][4:] == [(0, 2), (1, 2)] * 2
    assert len(rig.session.last_job().images) == 4


def test_between_iterations_room_is_made(rig):
    rig.webui.at = Faults("reload", 2)
    assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]
    assert len(rig.engine.rooms_made) == 1
    assert lost(rig) == []


def test_before_the_first_image_it_is_the_requests_end(rig):
    rig.webui.at = Faults("reload", 1, times=2)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        rig.webui.make(rig.webui.text_to_image())
    assert rig.session.progress() is None
