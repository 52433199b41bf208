"""Components: the host's big modules, and the calls through which they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from torch import nn

from ..errors import UnavailableError


class ComponentKind(str, Enum):
    """What a component is for; decides which rungs of the ladder its calls have."""

    TEXT_ENCODER = "text encoder"
    UNET = "UNet"
    VAE = "VAE"
    OTHER = "conditioning model"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Component:
    """One big module of a model."""

    name: str
    kind: ComponentKind
    module: nn.Module
    calls: Mapping[str, tuple[str, ...]]
    """The methods that are used, each with the names of the child modules it needs; an empty tuple means all."""
    tileable: Mapping[str, str] = field(default_factory=dict)
    """By call, the child module that can run strip by strip where the whole does not fit."""


def parts(component: Component) -> Mapping[str, tuple[nn.Module, ...]]:
    """By call, the modules whose weights that call needs."""
    return {
        call: tuple(component.module.get_submodule(child) for child in children) or (component.module,)
        for call, children in component.calls.items()
    }


def blocks(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A UNet's blocks as ``lowvram`` moves them: each resnet, transformer and sampler, and each child outside a block.

    Works on structure alone: descends through lists of modules and through blocks that hold such lists, two lists deep.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList):
            for index, block in enumerate(child):
                yield from _inside_block(f"{name}.{index}", block)
        else:
            yield from _inside_block(name, child)


def _inside_block(name: str, block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if not any(isinstance(child, nn.ModuleList) for child in block.children()) or _owns_tensors(block):
        yield name, block
        return
    for child_name, child in block.named_children():
        if isinstance(child, nn.ModuleList):
            for index, part in enumerate(child):
                yield f"{name}.{child_name}.{index}", part
        else:
            yield f"{name}.{child_name}", child


def leaves(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers as they are *called*: the outermost modules that own a parameter or buffer themselves and hold no list
    of layers.

    ``nn.MultiheadAttention`` is one leaf: it uses its ``out_proj``'s weights without calling it. A model that owns its
    positions beside its layers is none: OpenCLIP's is never called itself. What it owns belongs to no leaf.
    """
    if _owns_tensors(module) and not any(isinstance(part, nn.ModuleList) for part in module.modules()):
        yield name, module
        return
    for child_name, child in module.named_children():
        yield from leaves(child, f"{name}.{child_name}" if name else child_name)


def refuse_foreign_hooks(component: Component) -> None:
    """Two offload schemes on one module fight over where it is, so a module that already has one is refused.

    Raises:
        UnavailableError: accelerate's or diffusers' hooks are on the component; the sentence names the module.
    """
    for name, module in component.module.named_modules():
        owner = None
        if getattr(module, "_hf_hook", None) is not None:
            owner = "accelerate"
        elif _has_group_offload(module):
            owner = "diffusers group offload"
        if owner:
            raise UnavailableError(
                f"The {component.kind} ({component.name}{'.' + name if name else ''}) is already placed by {owner}; "
                "remove that first, two placements on one module lose weights."
            )


def _has_group_offload(module: nn.Module) -> bool:
    registry = getattr(module, "_diffusers_hook", None)
    hooks = getattr(registry, "hooks", {})
    return any("offload" in str(name) for name in hooks)


def _owns_tensors(module: nn.Module) -> bool:
    own = (*module._parameters.values(), *module._buffers.values())
    return any(tensor is not None for tensor in own)
