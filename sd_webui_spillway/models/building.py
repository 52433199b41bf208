"""Modules from configurations: first without memory, then holding tensors that are already there."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import ModelFileError, UnavailableError
from .clip_tokenizer import CLIP_PAD, OPEN_CLIP_PAD, clip_tokenizer, tokenizer_in
from .families import Family, ModelConfig, scheduler_arguments
from .ldm_layout import TEXT, TEXT_2, UNET, VAE, State

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_WRAPPER = "text_model."
_ALIGNMENT_BYTES = 64
"""Of torch's own allocator on system memory."""


@dataclass(frozen=True)
class Modules:
    """The networks of one model: diffusers' ``UNet2DConditionModel`` and ``AutoencoderKL``, transformers' CLIP."""

    unet: nn.Module
    vae: nn.Module
    text_encoders: tuple[nn.Module, ...]

    def by_name(self) -> dict[str, nn.Module]:
        """Component name, as pipelines call it → module."""
        texts = dict(zip((TEXT, TEXT_2), self.text_encoders, strict=False))
        return {UNET: self.unet, VAE: self.vae, **texts}

    def states(self) -> dict[str, State]:
        """Component name → state dict."""
        return {name: module.state_dict() for name, module in self.by_name().items()}


def empty_modules(config: ModelConfig) -> Modules:
    """The modules on the meta device: names and shapes, no memory.

    Raises:
        UnavailableError: diffusers or transformers is not installed.
        ModelFileError: their classes cannot be built so.
    """
    try:
        diffusers: Any = importlib.import_module("diffusers")  # untyped: its classes' constructors have no types
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise UnavailableError(
            "Loading models is unavailable, because diffusers and transformers are not installed.", detail=str(error)
        ) from error
    try:
        with torch.device("meta"):
            unet, vae = diffusers.UNet2DConditionModel(**config.unet), diffusers.AutoencoderKL(**config.vae)
            encoders = []
            for arguments in config.text_encoders:
                rest = {name: value for name, value in arguments.items() if name != "with_projection"}
                kind = "CLIPTextModelWithProjection" if arguments["with_projection"] else "CLIPTextModel"
                encoders.append(getattr(transformers, kind)(transformers.CLIPTextConfig(**rest)))
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelFileError("The model's sizes do not make a working network.", detail=repr(error)) from error
    return Modules(unet, vae, tuple(encoders))


def component_dtypes(config: ModelConfig, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The number type each component is kept in: a VAE whose float16 overflows stays in float32."""
    keep = dtype == torch.float16 and config.vae["force_upcast"]
    return {UNET: dtype, VAE: torch.float32 if keep else dtype, TEXT: dtype, TEXT_2: dtype}


def hold(modules: Modules, parts: Mapping[str, State], dtypes: Mapping[str, torch.dtype], file_name: str) -> Modules:
    """Puts tensors into empty modules, without a copy where the number type is right already. They are then in
    evaluation mode and need no gradients. ``parts`` is emptied on the way, so that no tensor is held twice.

    Raises:
        ModelFileError: names missing, left over, or of another shape.
    """
    for component, module in modules.by_name().items():
        ready = as_module_has_them(parts[component], module)
        parts[component].clear()
        for name in ready:
            ready[name] = ready[name].to(dtypes[component])
        check_fit(module, ready, component, file_name)
        module.load_state_dict(ready, strict=False, assign=True)
        ready.clear()
        _fill_buffers(module)
        prepare(module)
    return modules


def prepare(module: nn.Module) -> None:
    """For drawing only: aligned, in evaluation mode, without gradients."""
    _align(module)
    module.requires_grad_(False)
    module.eval()


def _align(module: nn.Module) -> None:
    """Copies float32 weights that a file left at an address that is no multiple of 64 bytes.

    A processor's kernels round differently there (seen with torch 2.3.1), so an image would change with where its
    weights happen to lie. Half precision is computed on a card, which aligns its own copy, and stays mapped.
    """
    for parameter in module.parameters():
        if parameter.dtype == torch.float32 and parameter.data_ptr() % _ALIGNMENT_BYTES:
            parameter.data = parameter.data.clone()


def as_module_has_them(state: Mapping[str, Tensor], module: nn.Module) -> State:
    """The tensors by the names that this version's module has: transformers 5.6 dropped the wrapper ``text_model`` from
    CLIPTextModel, but not from the class with a projection."""
    names = list(module.state_dict())
    if any(name.startswith(_WRAPPER) for name in names):
        bare = {name.removeprefix(_WRAPPER): name for name in names}
        return {bare.get(name.removeprefix(_WRAPPER), name): tensor for name, tensor in state.items()}
    return {name.removeprefix(_WRAPPER): tensor for name, tensor in state.items()}


def check_fit(module: nn.Module, ready: Mapping[str, Tensor], component: str, file_name: str) -> None:
    """That these are a component's weights.

    Raises:
        ModelFileError: names missing, left over, or of another shape.
    """
    expected = module.state_dict()
    # Very old transformers kept position_ids among the weights; they are counted out by _fill_buffers.
    missing = [name for name in expected if name not in ready and not name.endswith("position_ids")]
    extra = [name for name in ready if name not in expected]
    other = [name for name in ready if name in expected and ready[name].shape != expected[name].shape]
    for names, words in ((missing, "lacks"), (extra, "has an unknown layer")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ModelFileError(f"“{file_name}” does not fit: its {component} {words} {names[0]}{more}.")
    if other:
        name = other[0]
        raise ModelFileError(
            f"“{file_name}” does not fit: {name} of its {component} is {list(ready[name].shape)} "
            f"instead of {list(expected[name].shape)}."
        )


def _fill_buffers(module: nn.Module) -> None:
    """Buffers that no file holds and that the meta device left without content: CLIP's ``position_ids``, 0, 1, 2 …"""
    for owner in module.modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_meta:
                if name != "position_ids":
                    raise ModelFileError(f"This version of diffusers or transformers has an unknown buffer: {name}.")
                owner.register_buffer(name, torch.arange(buffer.shape[-1]).expand(buffer.shape), persistent=False)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """No progress bars of diffusers' and transformers' own while a folder is read or written, and no warning about
    ``torch_dtype``, the one name for it that all supported versions of diffusers know."""
    loggers: list[Any] = [importlib.import_module(f"{name}.utils.logging") for name in ("diffusers", "transformers")]
    shown = [logger for logger in loggers if getattr(logger, "is_progress_bar_enabled", lambda: True)()]
    for logger in shown:
        logger.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*torch_dtype.*")
            yield
    finally:
        for logger in shown:
            logger.enable_progress_bar()


def tokenizer_pads(family: Family) -> tuple[str, ...]:
    """What each of the family's tokenizers pads with."""
    return {"sd1": (CLIP_PAD,), "sd2": (OPEN_CLIP_PAD,), "sdxl": (CLIP_PAD, OPEN_CLIP_PAD)}[family]


def assemble(
    config: ModelConfig, modules: Modules, cache: Path, text_folder: Path | None = None
) -> DiffusionPipeline:
    """A diffusers pipeline of these modules; tokenizer files are written into ``cache`` the first time. The first
    text encoder's tokenizer is the one in ``text_folder`` where that is given.

    The scheduler is DDIM (SDXL: Euler) on the schedule that the family was trained with.
    """
    diffusers: Any = importlib.import_module("diffusers")
    first, *others = tokenizer_pads(config.family)
    tokenizers = [tokenizer_in(text_folder) if text_folder is not None else clip_tokenizer(cache, first)]
    tokenizers += [clip_tokenizer(cache, pad) for pad in others]
    schedule = scheduler_arguments(config)
    parts: dict[str, Any] = {"unet": modules.unet, "vae": modules.vae}
    parts |= dict(zip(("tokenizer", "tokenizer_2"), tokenizers, strict=False))
    parts |= dict(zip((TEXT, TEXT_2), modules.text_encoders, strict=False))
    if config.family == "sdxl":
        parts["scheduler"] = diffusers.EulerDiscreteScheduler(**schedule)
        pipeline: DiffusionPipeline = diffusers.StableDiffusionXLPipeline(**parts, add_watermarker=False)
    else:
        parts["scheduler"] = diffusers.DDIMScheduler(**schedule, clip_sample=False, set_alpha_to_one=False)
        pipeline = diffusers.StableDiffusionPipeline(
            **parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False
        )
    return pipeline
