"""From a checkpoint's names and shapes to the configuration of its modules.

Families are told apart by their text encoders' names. Everything else is read from shapes, so that reduced models in
the same layout load too. What no shape tells is taken from the ``.yaml`` beside the file, and where that does not say,
from the family: the heads (SD 1 has 8 a layer; SD 2, SDXL and CLIP have heads 64 wide, see
:func:`.families.head_count`), the latents' scale, and the prediction type (see :func:`prediction_type`). The size of
pictures stands in the file's metadata, ``modelspec.resolution``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..errors import ModelFileError
from .checkpoint_reader import Checkpoint
from .families import Family, ModelConfig, text_config, unet_config, vae_config
from .folder_config import read_json, text_arguments
from .ldm_layout import PREFIXES, TEXT, TEXT_2, UNET, VAE
from .yaml_description import Description, read_description

_UNET = "model.diffusion_model."
_FIRST_BLOCK = f"{_UNET}input_blocks.0.0.weight"
_MARKS: tuple[tuple[Family, tuple[str, ...]], ...] = (
    ("sdxl", ("conditioner.embedders.1.model.ln_final.weight",)),
    ("sd2", ("cond_stage_model.model.ln_final.weight",)),
    ("sd1", (
        "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight",
        "cond_stage_model.transformer.embeddings.token_embedding.weight",
    )),
)  # fmt: skip
_REFINER = "conditioner.embedders.0.model.ln_final.weight"
_LOOKS_LIKE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a LoRA file", re.compile(r"^lora_|\.lora_(up|down|A|B)\.|\.hada_w1_|\.lokr_|\.lora\.(up|down)\.")),
    ("a ControlNet", re.compile(r"^control_model\.|input_hint_block|controlnet_cond_embedding")),
    ("a Flux model", re.compile(r"(^|\.)double_blocks\.\d+\.img_attn")),
    ("a Stable Diffusion 3 model", re.compile(r"(^|\.)joint_blocks\.\d+\.")),
    ("a textual inversion embedding", re.compile(r"^(emb_params|clip_[lg]|string_to_param)$")),
    ("a diffusers UNet alone", re.compile(r"^(down_blocks|up_blocks|mid_block)\.")),
    ("a diffusers VAE alone", re.compile(r"^(encoder|decoder)\.(down|up)_blocks\.")),
    ("a VAE alone", re.compile(r"^(first_stage_model\.)?(encoder|decoder)\.(conv_in|mid|down|up)\.")),
    ("a UNet alone", re.compile(r"^input_blocks\.")),
    ("a text encoder alone", re.compile(r"^(text_model\.)?encoder\.layers\.|^transformer\.resblocks\.|^text_model\.")),
    ("a diffusion transformer", re.compile(r"(^|\.)(transformer_blocks|blocks|layers)\.\d+\.")),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of a whole Stable Diffusion 1, 2 or SDXL model in the original layout.

    Raises:
        ModelFileError: another kind of file (named where it is known), a variant that is not supported, or a model
            with parts missing.
    """
    name, tensors = checkpoint.path.name, checkpoint.tensors
    if _FIRST_BLOCK not in tensors:
        raise ModelFileError(f"“{name}” is not a whole SD model: {_looks_like(tensors)}.")
    family = next((family for family, marks in _MARKS if any(mark in tensors for mark in marks)), None)
    if family is None:
        if _REFINER in tensors:
            raise ModelFileError(f"“{name}” is an SDXL refiner, which is not supported yet.")
        raise ModelFileError(f"“{name}” is not a whole SD model: it has a UNet and no text encoder.")
    if "first_stage_model.decoder.conv_in.weight" not in tensors:
        raise ModelFileError(f"“{name}” is not a whole SD model: it has a UNet and no VAE.")
    _refuse_variants(name, tensors, family)
    prefixes = PREFIXES[family]
    shapes = _Shapes(name, tensors)
    described = read_description(checkpoint.path)
    if family == "sdxl":
        encoders = [
            _clip(shapes, prefixes[TEXT], described), shapes.open_clip(prefixes[TEXT_2], projected=True)
        ]  # fmt: skip
    elif family == "sd2":
        encoders = [shapes.open_clip(prefixes[TEXT], projected=False)]
    else:
        encoders = [_clip(shapes, prefixes[TEXT], described)]
    prediction, _told = prediction_type(checkpoint, family)
    vae = shapes.vae(prefixes[VAE], family)
    side = _latent_side(checkpoint, family, prediction, 2 ** (len(vae["block_out_channels"]) - 1))
    pooled = encoders[1]["projection_dim"] if family == "sdxl" else None
    unet = shapes.unet(prefixes[UNET], family, side, pooled)
    vae["sample_size"] = side * 2 ** (len(vae["block_out_channels"]) - 1)
    if described.scale_factor is not None:
        vae["scaling_factor"] = described.scale_factor
    unet["attention_head_dim"] = _heads(unet, described)
    return ModelConfig(family, unet, vae, tuple(encoders), prediction)


def _clip(shapes: _Shapes, prefix: str, described: Description) -> dict[str, Any]:
    """The folder that the yaml names is taken at its word; weights of other shapes are refused when they are put in."""
    if described.text_folder is not None:
        return text_arguments(read_json(described.text_folder / "config.json"), projected=False)
    return shapes.clip(prefix)


def _heads(unet: Mapping[str, Any], described: Description) -> list[int]:
    widths, heads = unet["block_out_channels"], described.heads
    if described.head_width is not None:  # which the original layout's code prefers
        return [max(1, width // described.head_width) for width in widths]
    return [heads] * len(widths) if heads is not None else unet["attention_head_dim"]


def _latent_side(checkpoint: Checkpoint, family: Family, prediction: str, scale: int) -> int:
    stated = re.fullmatch(r"(\d+)x\d+", checkpoint.metadata.get("modelspec.resolution", ""))
    if stated is not None and int(stated.group(1)) >= scale:
        return int(stated.group(1)) // scale
    return {"sd1": 64, "sd2": 96 if prediction == "v_prediction" else 64, "sdxl": 128}[family]


def prediction_type(checkpoint: Checkpoint, family: Family) -> tuple[str, bool]:
    """``"epsilon"`` or ``"v_prediction"``, and whether anything told so. The first of these that speaks:

    1. a ``.yaml`` beside the file, which is A1111's way: ``parameterization: "v"`` (SD), ``VScaling`` (SDXL); one
       that describes a model and has neither means epsilon, as it does there;
    2. the file's metadata, ``modelspec.prediction_type``;
    3. a tensor named ``v_pred``, which SDXL models trained so carry;
    4. the family: SD 2 is v_prediction, unless it was saved at step 875,000 (the published 512-pixel base, which is
       epsilon; diffusers has the same exception); SD 1 and SDXL are epsilon.
    """
    told = read_description(checkpoint.path).prediction_type
    stated = checkpoint.metadata.get("modelspec.prediction_type", "").lower()
    if told is None and stated.startswith(("v", "eps")):
        told = "v_prediction" if stated.startswith("v") else "epsilon"
    if told is None and "v_pred" in checkpoint.tensors:
        told = "v_prediction"
    if told is None and family == "sd2" and checkpoint.metadata.get("global_step") == "875000":
        told = "epsilon"
    if told is not None:
        return told, True
    return ("v_prediction" if family == "sd2" else "epsilon"), family != "sd2"


def _looks_like(names: Iterable[str]) -> str:
    names = list(names)
    for words, pattern in _LOOKS_LIKE:
        if any(pattern.search(name) for name in names):
            return f"it looks like {words}"
    return f"its layout is unknown (looked for {_FIRST_BLOCK}, which SD 1, SD 2 and SDXL have)"


def _refuse_variants(name: str, tensors: Mapping[str, Tensor], family: Family) -> None:
    shape = tensors[_FIRST_BLOCK].shape
    channels = shape[1] if len(shape) == 4 else 0
    if channels == 9:
        raise ModelFileError(f"“{name}” is an inpainting model (9 input channels), which is not supported yet.")
    if channels != 4:
        raise ModelFileError(f"“{name}” has a UNet of {channels} input channels, which is not supported yet.")
    if family != "sdxl" and f"{_UNET}label_emb.0.0.weight" in tensors:
        raise ModelFileError(f"“{name}” is conditioned on images or classes (unCLIP), which is not supported yet.")


class _Shapes:
    """Reads configurations out of one file's shapes."""

    def __init__(self, file_name: str, tensors: Mapping[str, Tensor]) -> None:
        self._file, self._tensors = file_name, tensors

    def _shape(self, name: str, dimensions: int | None = None) -> Sequence[int]:
        if name not in self._tensors:
            raise ModelFileError(f"“{self._file}” is incomplete: {name} is missing.")
        shape = tuple(self._tensors[name].shape)
        if dimensions is not None and len(shape) != dimensions:
            raise ModelFileError(f"“{self._file}” has a layer of unknown shape: {name} is {list(shape)}.")
        return shape

    def _count(self, pattern: str) -> int:
        """How many numbers follow the pattern's ``{}`` without a gap, from 0."""
        before, after = pattern.split("{}")
        found = {
            name[len(before) :].split(".", 1)[0]
            for name in self._tensors
            if name.startswith(before) and after in name[len(before) :]
        }
        return next(number for number in range(len(found) + 1) if str(number) not in found)

    def _unknown(self, what: str) -> ModelFileError:
        return ModelFileError(f"“{self._file}” has an unknown layout: {what}.")

    def unet(self, prefix: str, family: Family, sample_size: int, pooled: int | None) -> dict[str, Any]:
        levels: list[list[tuple[int, int]]] = [[]]  # per level, per resnet: width, transformer blocks behind it
        for number in range(1, self._count(f"{prefix}input_blocks.{{}}.0.")):
            block = f"{prefix}input_blocks.{number}"
            if f"{block}.0.op.weight" in self._tensors:
                levels.append([])
                continue
            width = self._shape(f"{block}.0.in_layers.2.weight", 4)[0]
            levels[-1].append((width, self._count(f"{block}.1.transformer_blocks.{{}}.attn2.to_k.weight")))
        if any(len(set(level)) != 1 or len(level) != len(levels[0]) for level in levels):
            raise self._unknown("the UNet's levels are not alike")
        depths = [level[0][1] for level in levels]
        mid_depth = self._count(f"{prefix}middle_block.1.transformer_blocks.{{}}.attn2.to_k.weight")
        if mid_depth == 0 or (depths[-1] and depths[-1] != mid_depth):
            raise self._unknown("the UNet's middle block has not the attention of its last level")
        middle = f"{prefix}middle_block.1"
        vector = self._shape(f"{prefix}label_emb.0.0.weight", 2)[1] if family == "sdxl" else None
        return unet_config(
            family,
            widths=[level[0][0] for level in levels],
            layers=len(levels[0]),
            depths=depths,
            mid_depth=mid_depth,
            context=self._shape(f"{middle}.transformer_blocks.0.attn2.to_k.weight", 2)[1],
            linear=len(self._shape(f"{middle}.proj_in.weight")) == 2,
            in_channels=self._shape(f"{prefix}input_blocks.0.0.weight", 4)[1],
            out_channels=self._shape(f"{prefix}out.2.weight", 4)[0],
            sample_size=sample_size,
            vector=vector,
            pooled=pooled,
        )

    def vae(self, prefix: str, family: Family) -> dict[str, Any]:
        """Read from the decoder: it has a resnet more a level than the encoder, which may have none."""
        levels = self._count(f"{prefix}decoder.up.{{}}.block.0.conv1.weight")
        return vae_config(
            family,
            widths=[self._shape(f"{prefix}decoder.up.{i}.block.0.conv1.weight", 4)[0] for i in range(levels)],
            layers=self._count(f"{prefix}decoder.up.0.block.{{}}.conv1.weight") - 1,
            latent=self._shape(f"{prefix}decoder.conv_in.weight", 4)[1],
            sample_size=0,
        )

    def clip(self, prefix: str) -> dict[str, Any]:
        """An encoder in transformers' layout, with or without ``text_model.`` in front (old conversions lack it)."""
        if f"{prefix}text_model.embeddings.token_embedding.weight" in self._tensors:
            prefix += "text_model."
        vocabulary, width = self._shape(f"{prefix}embeddings.token_embedding.weight", 2)
        return text_config(
            width=width,
            layers=self._count(f"{prefix}encoder.layers.{{}}.mlp.fc1.weight"),
            inner=self._shape(f"{prefix}encoder.layers.0.mlp.fc1.weight", 2)[0],
            act="quick_gelu",
            vocabulary=vocabulary,
            tokens=self._shape(f"{prefix}embeddings.position_embedding.weight", 2)[0],
        )

    def open_clip(self, prefix: str, *, projected: bool) -> dict[str, Any]:
        """An encoder in OpenCLIP's layout. SD 2 takes the text before the last block, which is therefore left out;
        SDXL needs it for the pooled, projected text."""
        vocabulary, width = self._shape(f"{prefix}token_embedding.weight", 2)
        blocks = self._count(f"{prefix}transformer.resblocks.{{}}.mlp.c_fc.weight")
        return text_config(
            width=width,
            layers=blocks if projected else blocks - 1,
            inner=self._shape(f"{prefix}transformer.resblocks.0.mlp.c_fc.weight", 2)[0],
            act="gelu",
            projection=self._shape(f"{prefix}text_projection", 2)[1] if projected else None,
            vocabulary=vocabulary,
            tokens=self._shape(f"{prefix}positional_embedding", 2)[0],
        )
