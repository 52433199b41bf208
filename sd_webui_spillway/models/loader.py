"""One call from a path to a pipeline on system memory."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..errors import ModelFileError, UnavailableError, first_line
from . import embedded
from .building import assemble, component_dtypes, empty_modules, hold, prepare, quiet_libraries
from .checkpoint_reader import read_checkpoint
from .families import VOCABULARY
from .folder_config import INDEX, SD, checked_index, class_named, family_of, read_json
from .ldm_config import prediction_type, read_config
from .ldm_layout import TEXT, TEXT_2, to_diffusers
from .lora_loading import LoraChoice, add_loras
from .yaml_description import read_description

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_log = logging.getLogger(__name__)
LoadedFamily = Literal["sd1", "sd2", "sdxl", "embedded"]
_DTYPE_SINCE = 5
"""The transformers version that renamed ``torch_dtype`` for good."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be placed: in evaluation mode, without gradients, on system memory."""

    pipeline: DiffusionPipeline
    name: str
    """The file's stem or the folder's name."""
    family: LoadedFamily
    default_size: tuple[int, int]
    """Width and height in pixels."""
    notices: tuple[str, ...] = ()
    """Sentences a person should see."""


def load_model(
    path: Path | None, cache: Path, dtype: torch.dtype | None = None, loras: Sequence[LoraChoice] = ()
) -> LoadedModel:
    """The model at ``path``: a single file in the original layout, or a diffusers folder; ``None`` is the embedded one.

    ``cache`` takes the published tokenizer's files. ``dtype`` is float32 where it is not given; in
    float16 an SDXL's VAE stays in float32, because the published one overflows. A safetensors file that is in
    ``dtype`` already stays mapped to the disk and is not copied (in float32, as far as its addresses allow). ``loras``
    are added to its layers.

    Raises:
        BadInputError: a LoRA is not there.
        ModelFileError: the file or folder, or a LoRA, cannot be used; one sentence says why.
        UnavailableError: a package is missing.
        StorageError: the file cannot be read, or the cache not written.
    """
    loaded = _load(path, cache, dtype or torch.float32)
    add_loras(loaded.pipeline, loras)
    return loaded


def _load(path: Path | None, cache: Path, dtype: torch.dtype) -> LoadedModel:
    if path is None:
        loaded = _load_folder(embedded.embedded_folder(), dtype)
        return LoadedModel(loaded.pipeline, embedded.NAME, "embedded", loaded.default_size, (embedded.NOTICE,))
    if path.is_dir() and (path / INDEX).is_file():
        return _load_folder(path, dtype)
    return _load_file(path, cache, dtype)


def _load_file(path: Path, cache: Path, dtype: torch.dtype) -> LoadedModel:
    checkpoint = read_checkpoint(path)
    config = read_config(checkpoint)
    notices = []
    prediction, told = prediction_type(checkpoint, config.family)
    if not told:
        notices.append(
            f"Nothing says how “{path.name}” predicts; {prediction} is assumed. If pictures come out as noise, put a "
            f".yaml with the right parameterization beside it."
        )
    text_folder = read_description(path).text_folder
    words = config.text_encoders[0]["vocab_size"]
    if words != VOCABULARY and text_folder is None:
        raise ModelFileError(
            f"“{path.name}” has a text encoder with {words} words of its own; the folder with its tokenizer, which the "
            f".yaml beside it must name as “version”, is not there."
        )
    parts = to_diffusers(checkpoint.tensors, config)
    checkpoint.tensors.clear()  # from here each tensor is held once: see hold
    modules = hold(empty_modules(config), parts, component_dtypes(config, dtype), path.name)
    pipeline = assemble(config, modules, cache, text_folder)
    _log.info("loaded %s: %s, %s", path, config.family, dtype)
    return LoadedModel(pipeline, path.stem, config.family, config.default_size, tuple(notices))


def _load_folder(folder: Path, dtype: torch.dtype) -> LoadedModel:
    index = checked_index(folder)
    kind = str(index["_class_name"])
    try:
        diffusers: Any = importlib.import_module("diffusers")
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise UnavailableError(
            "Loading models is unavailable, because diffusers and transformers are not installed.", detail=str(error)
        ) from error
    options: dict[str, Any] = {"local_files_only": True, "torch_dtype": dtype}
    try:
        with quiet_libraries():
            parts = _text_encoders(folder, index, dtype, transformers)
            if kind == SD:
                parts |= {"safety_checker": None, "requires_safety_checker": False}
            else:
                parts["add_watermarker"] = False
                if dtype == torch.float16 and read_json(folder / "vae" / "config.json").get("force_upcast", True):
                    # Loaded on its own, because a float16 one made float32 afterwards has lost its last digits.
                    as_stored = {**options, "torch_dtype": torch.float32}
                    parts["vae"] = diffusers.AutoencoderKL.from_pretrained(str(folder / "vae"), **as_stored)
            pipeline = getattr(diffusers, kind).from_pretrained(str(folder), **parts, **options)
    except ModelFileError:
        raise
    # Three libraries read a folder, each with exceptions of its own for a file that is missing, cut or of another
    # shape; to the person it is one fact, and the detail keeps theirs.
    except Exception as error:
        raise ModelFileError(
            f"The model folder “{folder.name}” cannot be loaded: {first_line(error).rstrip('.')}.", detail=repr(error)
        ) from error
    return _finished(folder, kind, pipeline)


def _text_encoders(folder: Path, index: dict[str, Any], dtype: torch.dtype, transformers: Any) -> dict[str, Any]:
    """The text encoders, loaded on their own: where weights are missing, transformers would fill in random ones and
    only log it."""
    loaded = {}
    option = "dtype" if int(transformers.__version__.split(".")[0]) >= _DTYPE_SINCE else "torch_dtype"
    for component in (TEXT, TEXT_2):
        name = class_named(index.get(component))
        if name is None:
            continue
        encoder, report = getattr(transformers, name).from_pretrained(
            str(folder / component), local_files_only=True, output_loading_info=True, **{option: dtype}
        )
        missing = [key for key in report["missing_keys"] if not key.endswith("position_ids")]
        if missing:
            raise ModelFileError(f"The model folder “{folder.name}” is incomplete: its {component} lacks {missing[0]}.")
        loaded[component] = encoder
    return loaded


def _finished(folder: Path, kind: str, pipeline: Any) -> LoadedModel:
    unet, vae = pipeline.unet, pipeline.vae
    if unet.config.in_channels != vae.config.latent_channels:
        raise ModelFileError(
            f"“{folder.name}” has a UNet of {unet.config.in_channels} input channels, which is not supported yet."
        )
    for module in pipeline.components.values():
        if isinstance(module, torch.nn.Module):
            if any(tensor.is_meta for tensor in module.parameters()):
                raise ModelFileError(f"The model folder “{folder.name}” is incomplete: weights are missing.")
            prepare(module)
    text = pipeline.text_encoder.config.to_dict() if pipeline.text_encoder is not None else {}
    side = int(unet.config.sample_size) * 2 ** (len(vae.config.block_out_channels) - 1)
    return LoadedModel(pipeline, folder.name, family_of(kind, unet.config, text), (side, side))
