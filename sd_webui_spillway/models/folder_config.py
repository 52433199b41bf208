"""From a diffusers folder's ``config.json`` files to the configuration of its modules.

:func:`checked_index` and :func:`family_of` hold for every folder that loads; :func:`read_folder_config` for those whose
networks are built as the original layout knows them, and refuses the rest by naming the setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelFileError
from .families import Family, ModelConfig, text_config, unet_config, vae_config
from .ldm_layout import TEXT, TEXT_2, UNET, VAE

INDEX = "model_index.json"
SD, SDXL = "StableDiffusionPipeline", "StableDiffusionXLPipeline"
TEXT_KINDS = ("CLIPTextModel", "CLIPTextModelWithProjection")
_LIBRARIES = ("diffusers", "transformers", "stable_diffusion", None)
"""What a folder's index may name: diffusers imports whatever stands there."""
_FIXED: dict[str, dict[str, Any]] = {
    UNET: {
        "norm_num_groups": 32, "act_fn": "silu", "mid_block_type": "UNetMidBlock2DCrossAttn",
        "norm_eps": 1e-05, "downsample_padding": 1, "mid_block_scale_factor": 1, "num_class_embeds": None,
        "time_embedding_dim": None, "time_embedding_act_fn": None, "time_cond_proj_dim": None,
        "time_embedding_type": "positional", "center_input_sample": False, "flip_sin_to_cos": True, "freq_shift": 0,
        "only_cross_attention": False, "dual_cross_attention": False, "class_embed_type": None,
        "encoder_hid_dim": None, "encoder_hid_dim_type": None, "resnet_time_scale_shift": "default",
        "conv_in_kernel": 3, "conv_out_kernel": 3, "mid_block_only_cross_attention": None,
        "cross_attention_norm": None, "addition_embed_type_num_heads": 64, "attention_type": "default",
        "reverse_transformer_layers_per_block": None, "timestep_post_act": None,
    },
    VAE: {
        "norm_num_groups": 32, "act_fn": "silu", "latents_mean": None, "latents_std": None, "shift_factor": None,
        "use_quant_conv": True, "use_post_quant_conv": True, "mid_block_add_attention": True, "in_channels": 3,
        "out_channels": 3,
    },
    TEXT: {"layer_norm_eps": 1e-05},
    "scheduler": {
        "trained_betas": None, "rescale_betas_zero_snr": False,
        "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
    },
}  # fmt: skip
"""Settings that the original layout's code has no choice in, as diffusers names them. Those of the schedule must be
stated in full, since schedulers' own defaults differ from them."""


def read_json(path: Path) -> dict[str, Any]:
    """A file of settings inside a model folder.

    Raises:
        ModelFileError: it is missing, cut, or no JSON object.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"The model folder “{path.parent.name}” is damaged: {path.name} cannot be read.", detail=repr(error)
        ) from error
    if not isinstance(content, dict):
        raise ModelFileError(f"The model folder “{path.parent.name}” is damaged: {path.name} holds no settings.")
    return content


def checked_index(folder: Path) -> dict[str, Any]:
    """A folder's index, once everything that it names is known to be harmless and supported.

    Raises:
        ModelFileError: another kind of pipeline, foreign code, or a component that is missing.
    """
    index = read_json(folder / INDEX)
    kind = index.get("_class_name")
    if kind not in (SD, SDXL):
        raise ModelFileError(f"“{folder.name}” is a {kind} model; only {SD} and {SDXL} are supported.")
    for component, entry in index.items():
        if isinstance(entry, list) and (len(entry) != 2 or entry[0] not in _LIBRARIES):
            raise ModelFileError(
                f"“{folder.name}” was refused: its {component} comes from “{entry[0] if entry else ''}”, which is "
                f"neither diffusers nor transformers."
            )
        needed = isinstance(entry, list) and entry[0] is not None and component in (UNET, VAE, TEXT)
        if needed and not (folder / component).is_dir():
            raise ModelFileError(f"The model folder “{folder.name}” is incomplete: its {component} is missing.")
        if component in (TEXT, TEXT_2) and class_named(entry) not in (None, *TEXT_KINDS):
            raise ModelFileError(
                f"“{folder.name}” has a text encoder of kind {class_named(entry)}, which is not supported."
            )
    return index


def class_named(entry: Any) -> str | None:
    """The class that an entry of the index names, or ``None`` where the component is left out."""
    return str(entry[1]) if isinstance(entry, list) and entry[1] is not None else None


def family_of(kind: str, unet: Mapping[str, Any], text: Mapping[str, Any]) -> Family:
    """Which family's layout a pipeline of class ``kind`` has. SD 2 is told from SD 1 by its OpenCLIP text encoder (GELU
    where OpenAI's has the quick one) and the linear projections around its transformers."""
    if kind == SDXL:
        return "sdxl"
    open_clip = text.get("hidden_act", "quick_gelu") == "gelu" and unet.get("use_linear_projection", False)
    return "sd2" if open_clip else "sd1"


def text_arguments(settings: Mapping[str, Any], *, projected: bool) -> dict[str, Any]:
    """Our arguments of ``CLIPTextConfig`` from a text encoder's ``config.json``; what it leaves out is transformers'
    default."""
    arguments = text_config(
        width=settings.get("hidden_size", 512),
        layers=settings.get("num_hidden_layers", 12),
        inner=settings.get("intermediate_size", 2048),
        act=settings.get("hidden_act", "quick_gelu"),
        projection=settings.get("projection_dim", 512) if projected else None,
        vocabulary=settings.get("vocab_size", 49408),
        tokens=settings.get("max_position_embeddings", 77),
    )
    stated = ("num_attention_heads", "bos_token_id", "eos_token_id", "pad_token_id")
    return arguments | {name: settings[name] for name in stated if settings.get(name) is not None}


def read_folder_config(folder: Path) -> ModelConfig:
    """The configuration of a diffusers folder of a family that the original layout knows.

    Raises:
        ModelFileError: no such folder, a damaged one, or networks that the original layout cannot hold.
    """
    index = checked_index(folder)
    unet, vae, text = (read_json(folder / part / "config.json") for part in (UNET, VAE, TEXT))
    schedule = read_json(folder / "scheduler" / "scheduler_config.json")
    _refuse_unknown(folder, {UNET: unet, VAE: vae, TEXT: text, "scheduler": schedule})
    family = family_of(str(index["_class_name"]), unet, text)
    projected = class_named(index[TEXT]) == TEXT_KINDS[1]
    encoders = [text_arguments(text, projected=projected)]
    if family == "sdxl":
        encoders.append(text_arguments(read_json(folder / TEXT_2 / "config.json"), projected=True))
    try:
        ours = _unet(family, unet, encoders)
        widths = vae["block_out_channels"]
        decoder = vae_config(
            family, widths=widths, layers=vae["layers_per_block"], latent=vae["latent_channels"],
            sample_size=ours["sample_size"] * 2 ** (len(widths) - 1),
        )  # fmt: skip
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ModelFileError(
            f"The model folder “{folder.name}” is damaged: a config.json lacks sizes.", detail=repr(error)
        ) from error
    if ours["in_channels"] != 4 or decoder["latent_channels"] != 4:
        raise ModelFileError(
            f"“{folder.name}” has a UNet of {ours['in_channels']} input channels, which is not supported yet."
        )
    decoder["scaling_factor"] = vae.get("scaling_factor", 0.18215)
    return ModelConfig(family, ours, decoder, tuple(encoders), schedule.get("prediction_type", "epsilon"))


def _refuse_unknown(folder: Path, parts: Mapping[str, Mapping[str, Any]]) -> None:
    for component, settings in parts.items():
        for name, value in _FIXED[component].items():
            stated = settings.get(name, None if component == "scheduler" and name.startswith("beta_") else value)
            if stated != value:
                raise ModelFileError(
                    f"“{folder.name}” cannot be held by the original layout: its {component} has {name} {stated}, "
                    f"where that layout has {value}."
                )
    prediction = parts["scheduler"].get("prediction_type", "epsilon")
    if prediction not in ("epsilon", "v_prediction"):
        raise ModelFileError(f"“{folder.name}” predicts “{prediction}”, which is not supported.")


def _unet(family: Family, unet: Mapping[str, Any], encoders: list[dict[str, Any]]) -> dict[str, Any]:
    """Ours from diffusers' settings, in which one number may stand for every level."""
    widths, kinds = unet["block_out_channels"], unet["down_block_types"]

    def by_level(value: Any) -> list[int]:
        return [int(value)] * len(widths) if isinstance(value, int) else [int(one) for one in value]

    depths = by_level(unet.get("transformer_layers_per_block", 1))
    heads = by_level(unet.get("num_attention_heads") or unet.get("attention_head_dim", 8))
    pooled = encoders[1]["projection_dim"] if family == "sdxl" else None
    config = unet_config(
        family,
        widths=widths,
        layers=int(unet.get("layers_per_block", 2)),
        depths=[depth if kind == "CrossAttnDownBlock2D" else 0 for depth, kind in zip(depths, kinds, strict=True)],
        mid_depth=depths[-1],
        context=int(unet["cross_attention_dim"]),
        linear=bool(unet.get("use_linear_projection", False)),
        in_channels=int(unet.get("in_channels", 4)),
        out_channels=int(unet.get("out_channels", 4)),
        sample_size=int(unet.get("sample_size") or 64),
        vector=unet.get("projection_class_embeddings_input_dim") if pooled else None,
        pooled=pooled,
        heads=heads,
    )
    for name in ("down_block_types", "up_block_types"):
        if list(unet[name]) != config[name]:
            raise ModelFileError(f"The model's UNet has {name} {list(unet[name])}, which no known family has.")
    return config
