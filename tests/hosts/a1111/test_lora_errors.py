"""An out-of-memory that the webui hides while it applies a LoRA: it is raised, and the layer is done again."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from sd_webui_spillway.hosts.a1111.lora_errors import LoraErrors
from sd_webui_spillway.recovery.method_patch import PatchSet
from sd_webui_spillway.recovery.out_of_memory import is_out_of_memory


class Networks(types.ModuleType):
    """Applies "a LoRA" by adding one, and hides what goes wrong, as the built-in extension does."""

    def __init__(self) -> None:
        super().__init__("networks")
        self.loaded_networks = ["a LoRA"]
        self.extra_network_lora = types.SimpleNamespace(errors={})
        self.fault: RuntimeError | None = None

        def network_apply_weights(layer) -> None:
            if layer.network_current_names == ("a LoRA",):
                return
            layer.weight = 0
            try:
                if self.fault is not None:
                    raise self.fault
                layer.weight += 1
            except RuntimeError:
                errors = self.extra_network_lora.errors
                errors["a LoRA"] = errors.get("a LoRA", 0) + 1
            layer.network_current_names = ("a LoRA",)

        self.network_apply_weights = network_apply_weights


@pytest.fixture
def networks(monkeypatch):
    made = Networks()
    monkeypatch.setitem(sys.modules, "networks", made)
    return made


@pytest.fixture
def layer():
    return types.SimpleNamespace(weight=0, network_current_names=())


@pytest.fixture
def lora(networks):
    watched, patches = LoraErrors(), PatchSet()
    watched.install(patches)
    watched.install(patches)
    yield watched
    patches.undo()


def test_it_is_raised_and_the_layer_done_again(lora, networks, layer):
    networks.fault = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    with lora.watching():
        with pytest.raises(RuntimeError) as raised:
            networks.network_apply_weights(layer)
        assert is_out_of_memory(raised.value)
        assert "Tried to allocate 2.00 GiB" in str(raised.value)
        networks.fault = None
        networks.network_apply_weights(layer)
    assert layer.weight == 1
    assert networks.extra_network_lora.errors == {}


def test_another_error_is_counted_as_ever(lora, networks, layer):
    networks.fault = RuntimeError("The size of tensor a must match the size of tensor b")
    counts = networks.extra_network_lora.errors
    with lora.watching():
        networks.network_apply_weights(layer)
    assert networks.extra_network_lora.errors is counts
    assert counts == {"a LoRA": 1}


def test_without_the_extension_nothing_is_done(monkeypatch):
    for name, module in list(sys.modules.items()):
        if "network_apply_weights" in vars(module):  # asking a lazy module for it would import what it is not
            monkeypatch.delitem(sys.modules, name)
    lora = LoraErrors()
    lora.install(PatchSet())
    with lora.watching():
        pass
