"""Making checkpoints and pipelines with random weights: for tests, and for measuring on machines without models."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from ..errors import BadInputError, StorageError, first_line
from .atomic import whole_file
from .building import Modules, assemble
from .families import FAMILIES, Family, ModelConfig, published
from .ldm_layout import PREFIXES, TEXT
from .ldm_yaml import yaml_text
from .random_weights import NoisePool, ldm_shapes, random_modules
from .safetensors_writer import DTYPE_NAMES, Progress, write_safetensors

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_log = logging.getLogger(__name__)
Size = Literal["tiny", "real"]


def _config(kind: Family, size: Size) -> ModelConfig:
    if kind not in FAMILIES or size not in ("tiny", "real"):
        raise BadInputError(f"A model of kind “{kind}” and size “{size}” is unknown; there are {', '.join(FAMILIES)}, "
                            "tiny and real.")  # fmt: skip
    return published(kind, size)


def file_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """What a published file of this model holds: the modules' weights, and for SD 2 also the parts of its text
    encoder that are never read (the last block, the projection, the logit scale)."""
    shapes = ldm_shapes(config)
    if config.family == "sd2":
        prefix, text = PREFIXES["sd2"][TEXT], config.text_encoders[0]
        first = f"{prefix}transformer.resblocks.0."
        last = f"{prefix}transformer.resblocks.{text['num_hidden_layers']}."
        shapes |= {name.replace(first, last): shape for name, shape in shapes.items() if name.startswith(first)}
        shapes[f"{prefix}text_projection"] = (text["hidden_size"], text["hidden_size"])
        shapes[f"{prefix}logit_scale"] = ()
    return shapes


def make_checkpoint(
    path: Path,
    kind: Family,
    size: Size = "tiny",
    seed: int = 0,
    dtype: torch.dtype = torch.float16,
    progress: Progress | None = None,
    *,
    write_yaml: bool | None = None,
    text_folder: Path | None = None,
) -> Path:
    """Writes a checkpoint in the original layout, ``.safetensors`` or ``.ckpt`` by the path's suffix.

    ``progress(done, total)`` is called after every tensor. ``write_yaml`` puts the description that A1111 takes
    beside it (default: for tiny ones, whose sizes A1111 cannot know); ``text_folder`` is what the yaml then names
    as the CLIP encoder's configuration, instead of the hub's. Safetensors are written tensor by tensor; a
    ``.ckpt`` is held in memory whole.

    Raises:
        BadInputError: an unknown kind, size, suffix or number type.
        StorageError: the disk is full or the folder may not be written; no partial file is left.
    """
    config, suffix = _config(kind, size), path.suffix.lower()
    if suffix not in (".safetensors", ".ckpt"):
        raise BadInputError(f"A checkpoint must end in .safetensors or .ckpt, not “{path.suffix}”.")
    if dtype not in DTYPE_NAMES:
        raise BadInputError(f"A checkpoint can be made in float32, float16 or bfloat16, not in {dtype}.")
    shapes, pool = file_shapes(config), NoisePool(seed)
    with whole_file(path) as temporary:
        write = _write_safetensors if suffix == ".safetensors" else _write_pickle
        write(temporary, shapes, pool, dtype, progress or (lambda _done, _total: None))
    if write_yaml if write_yaml is not None else size == "tiny":
        with whole_file(path.with_suffix(".yaml")) as temporary:
            temporary.write_text(yaml_text(config, text_folder), "utf-8")
    _log.info("made %s: %s %s, %d tensors", path, size, kind, len(shapes))
    return path


def _write_safetensors(
    path: Path, shapes: dict[str, tuple[int, ...]], pool: NoisePool, dtype: torch.dtype, progress: Progress
) -> None:
    forms = {name: (dtype, shape) for name, shape in shapes.items()}
    write_safetensors(path, forms, lambda name: pool.fill(name, shapes[name], dtype), progress)


def _write_pickle(
    path: Path, shapes: dict[str, tuple[int, ...]], pool: NoisePool, dtype: torch.dtype, progress: Progress
) -> None:
    tensors = {}
    for done, (name, shape) in enumerate(shapes.items(), 1):
        tensors[name] = pool.fill(name, shape, dtype)
        progress(done, len(shapes))
    try:
        with path.open("wb") as file:
            torch.save({"state_dict": tensors, "global_step": 0}, file)
    except RuntimeError as error:  # how torch's own writer reports a full disk
        raise StorageError(f"{path.parent} cannot be written: {first_line(error)}.", detail=repr(error)) from error


def real_modules(kind: Family, dtype: torch.dtype = torch.float16, seed: int = 0) -> Modules:
    """Modules of the published sizes with random weights, in memory only."""
    return random_modules(_config(kind, "real"), seed, dtype)


def build_pipeline(kind: Family, size: Size, seed: int, dtype: torch.dtype, cache: Path) -> DiffusionPipeline:
    """A pipeline with random weights that no file holds; only the tokenizer is written into ``cache``."""
    config = _config(kind, size)
    return assemble(config, random_modules(config, seed, dtype), cache)
