"""From a diffusers folder to one checkpoint file in the original layout, with what AUTOMATIC1111 needs beside it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import BadInputError, ModelFileError
from .atomic import replaced_folder, whole_file
from .building import as_module_has_them, check_fit, empty_modules
from .clip_tokenizer import Words, read_words, write_tokenizer
from .families import ModelConfig, head_count, published
from .folder_config import INDEX, read_folder_config
from .folder_weights import component_weights
from .ldm_layout import TEXT, State, to_ldm
from .ldm_yaml import yaml_text
from .maker import file_shapes
from .safetensors_writer import DTYPE_NAMES, Progress, write_safetensors

_log = logging.getLogger(__name__)
_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
    "max_position_embeddings",
)  # fmt: skip
"""What makes a text encoder another network than the published one."""


@dataclass(frozen=True)
class Converted:
    """What was written."""

    checkpoint: Path
    yaml: Path
    text_folder: Path | None
    """The CLIP text encoder's configuration and tokenizer, where they are not the published ones."""
    notices: tuple[str, ...] = ()
    """Sentences a person should see."""


def convert_folder(
    source: Path,
    target: Path,
    dtype: torch.dtype | None = None,
    progress: Progress = lambda _done, _total: None,
    *,
    force: bool = False,
) -> Converted:
    """Writes the diffusers folder ``source`` as the checkpoint ``target`` and the ``.yaml`` beside it; beside both, for
    a text encoder that is not a published one, the folder ``<target's stem>-clip`` that the yaml names.

    ``dtype`` is by default each weight's own. ``progress(done, total)`` is called after every tensor. Tensors are
    written one by one and read when their turn comes, so that a model need not fit into memory. With ``force`` what is
    there is replaced; either way nothing is touched before the new file is whole.

    Raises:
        BadInputError: the target has another suffix or exists, or there is no such folder.
        ModelFileError: the folder is no model that the original layout can hold, or is damaged.
        StorageError: the disk is full, or a file may not be read or written; no partial file is left.
    """
    yaml, text_folder = target.with_suffix(".yaml"), target.with_name(f"{target.stem}-clip")
    _check_paths(source, target, (target, yaml, text_folder), force=force)
    config = read_folder_config(source)
    words = _own_words(source, config)
    beside = text_folder.resolve() if words is not None else None
    description = yaml_text(config, beside)
    tensors = _tensors(source, config)
    forms = {name: (dtype or tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    unknown = next((str(form) for form, _shape in forms.values() if form not in DTYPE_NAMES), None)
    if unknown is not None:
        raise ModelFileError(f"“{source.name}” has weights in {unknown}, which is not supported.")
    with whole_file(target) as checkpoint_building, whole_file(yaml) as yaml_building:
        write_safetensors(
            checkpoint_building, forms, lambda name: tensors.pop(name).to(forms[name][0]), progress,
            _metadata(config, target.stem),
        )  # fmt: skip
        yaml_building.write_text(description, "utf-8")
        if words is not None:
            replaced_folder(text_folder, lambda building: _write_text_folder(building, config, words))
    _log.info("converted %s to %s: %s, %d tensors", source, target, config.family, len(forms))
    return Converted(target, yaml, beside, _notices(config, beside))


def _check_paths(source: Path, target: Path, written: tuple[Path, ...], *, force: bool) -> None:
    if target.suffix != ".safetensors":
        raise BadInputError(f"The converted model must end in .safetensors, not “{target.suffix}”.")
    if not source.is_dir():
        kind = "a file, not a folder" if source.exists() else "not there"
        raise BadInputError(f"{source} is {kind}; a model folder in diffusers' layout is converted.")
    if not (source / INDEX).is_file():
        raise BadInputError(f"{source} is not a model folder: it has no {INDEX}.")
    for path in written:
        if path.exists() and (not force or path.is_dir() != (path is written[-1])):
            hint = "choose another name" if force else "choose another name, or say --force to replace it"
            raise BadInputError(f"{path} is there already; {hint}.")
        if path.exists() and path.samefile(source):
            raise BadInputError(f"{path} is the folder to convert; choose another name.")


def _own_words(source: Path, config: ModelConfig) -> Words | None:
    """The first text encoder's tokenizer, where it or the encoder is not the published CLIP-L."""
    words = read_words(source / "tokenizer")
    if len(words.vocabulary) != config.text_encoders[0]["vocab_size"]:
        raise ModelFileError(
            f"“{source.name}” does not fit together: its tokenizer has {len(words.vocabulary)} words, its text "
            f"encoder {config.text_encoders[0]['vocab_size']}."
        )
    if config.family != "sd1":
        _check_open_clip(source, config)
    if config.family == "sd2":
        return None
    ours, known = config.text_encoders[0], published(config.family, "real").text_encoders[0]
    return None if words.published and all(ours[name] == known[name] for name in _SIZES) else words


def _check_open_clip(source: Path, config: ModelConfig) -> None:
    """The file says neither which tokenizer an OpenCLIP encoder has nor how many heads."""
    words = read_words(source / ("tokenizer_2" if config.family == "sdxl" else "tokenizer"))
    encoder = config.text_encoders[-1]
    if not words.published or encoder["num_attention_heads"] != head_count(encoder["hidden_size"]):
        raise ModelFileError(
            f"“{source.name}” has an OpenCLIP text encoder with a tokenizer or heads of its own, for which the "
            f"original layout has no place."
        )


def _tensors(source: Path, config: ModelConfig) -> State:
    """By their names in the file, checked against what the configuration's modules have."""
    modules = empty_modules(config)
    parts = {}
    for component, module in modules.by_name().items():
        weights = component_weights(source, component)
        parts[component] = as_module_has_them(weights, module)
        check_fit(module, parts[component], component, source.name)
    tensors = to_ldm(parts, config)
    for name, shape in file_shapes(config).items():
        if name not in tensors:  # what SD 2's layout has and no code reads: see file_shapes
            tensors[name] = torch.zeros(shape, dtype=next(iter(parts[TEXT].values())).dtype)
    return tensors


def _metadata(config: ModelConfig, title: str) -> dict[str, str]:
    """Stability AI's ModelSpec, as far as it is known; the size of pictures stands nowhere else in a file."""
    width, height = config.default_size
    return {
        "modelspec.sai_model_spec": "1.0.0",
        "modelspec.title": title,
        "modelspec.resolution": f"{width}x{height}",
        "modelspec.prediction_type": "v" if config.prediction_type == "v_prediction" else "epsilon",
    }


def _write_text_folder(folder: Path, config: ModelConfig, words: Words) -> None:
    """What A1111's transformers (4.30) builds the encoder from; its weights are in the checkpoint."""
    settings = {name: value for name, value in config.text_encoders[0].items() if name != "with_projection"}
    settings |= {"model_type": "clip_text_model", "architectures": ["CLIPTextModel"]}
    (folder / "config.json").write_text(json.dumps(settings, indent=2), "utf-8")
    write_tokenizer(folder, words)


def _notices(config: ModelConfig, text_folder: Path | None) -> tuple[str, ...]:
    notices = []
    if text_folder is not None:
        notices.append(
            f"The .yaml names {text_folder} by its full path, where AUTOMATIC1111 looks for it: after moving the "
            f"three, change the line “version”."
        )
    real = published(config.family, "real").text_encoders[-1]
    if config.family != "sd1" and any(config.text_encoders[-1][name] != real[name] for name in _SIZES):
        notices.append(
            "AUTOMATIC1111 builds an OpenCLIP text encoder in its published size only and cannot load this one."
        )
    return tuple(notices)
