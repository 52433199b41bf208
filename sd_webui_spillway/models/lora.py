"""LoRA files: diffusers' names for their layers, and A1111's, which are the original layout's with underscores.

A LoRA adds ``up · down · alpha / rank`` to the weight of a layer. In memory it is kept by diffusers' names, with
``alpha / rank`` multiplied into ``up``, so that both files mean the same numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..errors import BadInputError, ModelFileError
from .atomic import whole_file
from .building import empty_modules
from .checkpoint_reader import read_checkpoint
from .families import ModelConfig
from .ldm_layout import TEXT, TEXT_2, UNET, State, ldm_module, unet_pairs
from .safetensors_writer import write_safetensors

DIFFUSERS_FILE = "pytorch_lora_weights.safetensors"
"""The name under which ``pipeline.load_lora_weights(folder)`` finds it."""
_DIFFUSERS = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+?)\.(?:processor\.)?"
    r"(?:lora_(?P<ab>[AB])(?:\.\w+)?|lora(?:_linear_layer)?\.(?P<du>down|up))\.weight"
)
_A1111 = re.compile(r"(?P<module>lora_(?:unet|te\d?)_[^.]+)\.(?P<part>lora_down\.weight|lora_up\.weight|alpha)")
_WRAPPER = "text_model."


@dataclass(frozen=True)
class LoraLayer:
    """``down`` is (rank, inputs[, height, width]), ``up`` (outputs, rank[, 1, 1])."""

    down: Tensor
    up: Tensor

    @property
    def rank(self) -> int:
        return int(self.down.shape[0])


LoraLayers = dict[str, LoraLayer]
"""By component and module: ``unet.down_blocks.1.attentions.0.…``, ``text_encoder.text_model.encoder.layers.0.…``."""


@dataclass(frozen=True)
class LoraTargets:
    """The layers of one model that a LoRA may change."""

    weights: dict[str, tuple[int, ...]]
    """Name as in :data:`LoraLayers` → shape of the layer's weight."""
    a1111: dict[str, str]
    """The same names → A1111's; kohya's own trainer writes diffusers' with underscores, which are read too."""

    @staticmethod
    def of(config: ModelConfig) -> LoraTargets:
        """Of a model that need not be in memory."""
        return LoraTargets.in_modules(empty_modules(config).by_name(), config.unet)

    @staticmethod
    def in_modules(modules: Mapping[str, nn.Module], unet_config: Mapping[str, Any]) -> LoraTargets:
        """Of these networks, by component; ``unet_config`` holds the UNet's arguments."""
        to_ldm = {module: ldm for ldm, module in unet_pairs(unet_config)}
        text_prefix = {TEXT: "lora_te1" if TEXT_2 in modules else "lora_te", TEXT_2: "lora_te2"}
        weights, a1111 = {}, {}
        for component in (UNET, TEXT, TEXT_2):
            for path, module in _layers(modules.get(component)):
                inner = path if component == UNET else f"{_WRAPPER}{path.removeprefix(_WRAPPER)}"
                name = f"{component}.{inner}"
                weights[name] = tuple(module.weight.shape)
                if component == UNET:
                    a1111[name] = f"lora_unet_{(ldm_module(inner, to_ldm) or inner).replace('.', '_')}"
                else:
                    a1111[name] = f"{text_prefix[component]}_{inner.replace('.', '_')}"
        return LoraTargets(weights, a1111)

    def by_file_name(self) -> dict[str, str]:
        """Every name that a file in A1111's form may use → ours."""
        kohya = {f"lora_unet_{name.removeprefix('unet.').replace('.', '_')}": name for name in self.a1111}
        return kohya | {theirs: ours for ours, theirs in self.a1111.items()}


def _layers(module: nn.Module | None) -> Iterator[tuple[str, Any]]:
    for path, layer in module.named_modules() if module is not None else ():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            yield path, layer


def read_lora(path: Path, targets: LoraTargets) -> LoraLayers:
    """The LoRA in a file of either form, or in a folder that diffusers or peft wrote, checked against the model.

    Raises:
        BadInputError: there is nothing at ``path``.
        ModelFileError: no LoRA, a kind that is not supported, or one for another model.
        StorageError: the file cannot be read.
    """
    file = path / DIFFUSERS_FILE if path.is_dir() else path
    if not file.is_file():
        raise BadInputError(f"There is no LoRA at {path}." if file == path else f"{path} holds no {DIFFUSERS_FILE}.")
    layers = lora_layers(read_checkpoint(file).tensors, targets, path.name)
    for name, layer in layers.items():
        wanted = targets.weights[name]
        fits = layer.up.shape[1] == layer.rank and (layer.up.shape[0], layer.down.shape[1]) == wanted[:2]
        if not fits or len(wanted) != layer.down.dim():
            raise ModelFileError(
                f"The LoRA “{path.name}” is for another model: {name} is {list(layer.up.shape)} by "
                f"{list(layer.down.shape)} for a weight of {list(wanted)}."
            )
    return layers


def lora_layers(state: Mapping[str, Tensor], targets: LoraTargets, label: str) -> LoraLayers:
    """A state dict in either form by our names; ``label`` names it in what is raised.

    Raises:
        ModelFileError: it is no LoRA, or has a layer that the model lacks.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    known = targets.by_file_name() if any(_A1111.fullmatch(name) for name in state) else None
    for key, tensor in state.items():
        found = (_A1111 if known is not None else _DIFFUSERS).fullmatch(key)
        if found is None:
            raise ModelFileError(f"“{label}” is no LoRA of a kind that is supported: it holds {key}.")
        if known is not None:
            name, part = known.get(found["module"]), found["part"].removesuffix(".weight")
        else:
            name, part = _our_name(found["module"]), {"A": "lora_down", "B": "lora_up"}.get(found["ab"] or "")
            part = part or f"lora_{found['du']}"
        if name not in targets.weights:
            raise ModelFileError(f"The LoRA “{label}” is for another model: this one has no {found['module']}.")
        parts.setdefault(name, {})[part] = tensor
    incomplete = next((name for name, found in parts.items() if not {"lora_down", "lora_up"} <= found.keys()), None)
    if incomplete is not None or not parts:
        raise ModelFileError(f"The LoRA “{label}” is incomplete: {incomplete or 'it'} has no pair of weights.")
    return {name: _layer(found) for name, found in parts.items()}


def _our_name(module: str) -> str:
    """peft's names of a UNet alone begin without a component; transformers' lost ``text_model.`` in version 5.6."""
    component, _dot, inner = module.partition(".")
    if component in (TEXT, TEXT_2):
        return f"{component}.{_WRAPPER}{inner.removeprefix(_WRAPPER)}"
    return module if component == UNET else f"{UNET}.{module}"


def _layer(found: Mapping[str, Tensor]) -> LoraLayer:
    down, up = found["lora_down"], found["lora_up"]
    scale = float(found["alpha"]) / down.shape[0] if "alpha" in found else 1.0
    return LoraLayer(down, up if scale == 1.0 else (up.float() * scale).to(up.dtype))


def diffusers_state(layers: LoraLayers) -> State:
    """As diffusers and peft name them."""
    state: State = {}
    for name, layer in layers.items():
        state |= {f"{name}.lora_A.weight": layer.down, f"{name}.lora_B.weight": layer.up}
    return state


def a1111_state(layers: LoraLayers, targets: LoraTargets) -> State:
    """As A1111 names them. It knows diffusers' names for two layers a level only, but takes the original layout's for
    any model."""
    state: State = {}
    for name, layer in layers.items():
        theirs = targets.a1111[name]
        state |= {f"{theirs}.lora_down.weight": layer.down, f"{theirs}.lora_up.weight": layer.up}
        state[f"{theirs}.alpha"] = layer.up.new_tensor(float(layer.rank))
    return state


def write_lora(
    folder: Path, a1111_file: Path, state: Mapping[str, Tensor], config: ModelConfig, *, scale: float = 1.0
) -> None:
    """Writes a LoRA that was trained with peft in both forms: into ``folder`` as diffusers reads it, and as
    ``a1111_file``. ``state`` is peft's state dict of the UNet's adapter, or one whose names begin with the component;
    ``scale`` is what it was trained with: peft's ``lora_alpha / r``.

    Raises:
        ModelFileError: ``state`` does not fit the model.
        StorageError: a file cannot be written; no partial file is left.
    """
    targets = LoraTargets.of(config)
    layers = {
        name: LoraLayer(layer.down, layer.up * scale)
        for name, layer in lora_layers(state, targets, a1111_file.name).items()
    }
    for path, named in (
        (folder / DIFFUSERS_FILE, diffusers_state(layers)),
        (a1111_file, a1111_state(layers, targets)),
    ):
        forms = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in named.items()}
        with whole_file(path) as building:
            write_safetensors(building, forms, named.__getitem__, lambda _done, _total: None)
