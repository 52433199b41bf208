"""The description of a checkpoint that A1111 reads from a ``.yaml`` beside it (its v1.10.1's ``configs/`` have them).

Written from our own configuration, as short as ``LatentDiffusion`` (SD 1, 2) and ``DiffusionEngine`` (SDXL) accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelFileError
from .families import ModelConfig

_HUB_CLIP = "openai/clip-vit-large-patch14"


def _multiples(widths: Sequence[int], part: str) -> list[int]:
    if any(width % widths[0] for width in widths):
        raise ModelFileError(
            f"The original layout cannot hold a {part} whose levels are {list(widths)} wide: each must be a multiple "
            f"of the first."
        )
    return [width // widths[0] for width in widths]


def _attention_resolutions(config: ModelConfig) -> list[int]:
    """The downsampling factors at which the UNet attends."""
    kinds = config.unet["down_block_types"]
    return [2**level for level, kind in enumerate(kinds) if kind.startswith("CrossAttn")]


def _attending(config: ModelConfig, by_level: Sequence[int]) -> list[int]:
    """The entries of the levels that attend, and of the middle block, which has the last one."""
    kinds = config.unet["down_block_types"]
    return [*(value for value, kind in zip(by_level, kinds, strict=True) if kind.startswith("CrossAttn")), by_level[-1]]


def _heads(config: ModelConfig) -> dict[str, int]:
    heads = _attending(config, config.unet["attention_head_dim"])
    head_widths = {
        width / count for width, count in zip(_attending(config, config.unet["block_out_channels"]), heads, strict=True)
    }
    if len(set(heads)) == 1 and (config.family == "sd1" or len(head_widths) > 1):
        return {"num_heads": heads[0]}
    if len(head_widths) == 1:
        return {"num_head_channels": int(head_widths.pop())}
    raise ModelFileError(
        f"The original layout cannot hold a UNet with {heads} attention heads: they or their width must be the same at "
        f"each level."
    )


def _depth(config: ModelConfig) -> int | list[int]:
    """Transformer blocks a layer. SD 1's and SD 2's code knows one number for all levels, SDXL's one for each."""
    depths = list(config.unet["transformer_layers_per_block"])
    if config.family == "sdxl":
        return depths
    attending = _attending(config, depths)
    if len(set(attending)) > 1:
        raise ModelFileError(f"The original layout cannot hold a UNet with {attending} transformer blocks a layer.")
    return attending[0]


def _unet(config: ModelConfig) -> dict[str, Any]:
    unet, widths = config.unet, config.unet["block_out_channels"]
    params: dict[str, Any] = {
        "use_checkpoint": False, "in_channels": unet["in_channels"],
        "out_channels": unet["out_channels"], "model_channels": widths[0],
        "attention_resolutions": _attention_resolutions(config), "num_res_blocks": unet["layers_per_block"],
        "channel_mult": _multiples(widths, "UNet"), "use_spatial_transformer": True,
        "transformer_depth": _depth(config), "context_dim": unet["cross_attention_dim"], "legacy": False,
        "use_linear_in_transformer": unet["use_linear_projection"], **_heads(config),
    }  # fmt: skip
    if config.family == "sdxl":
        vector = unet["projection_class_embeddings_input_dim"]
        params |= {"adm_in_channels": vector, "num_classes": "sequential", "spatial_transformer_attn_type": "softmax"}
    else:
        params["image_size"] = unet["sample_size"]
    return params


def _vae(config: ModelConfig) -> dict[str, Any]:
    widths = config.vae["block_out_channels"]
    latent = config.vae["latent_channels"]
    inner = {
        "double_z": True, "z_channels": latent, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": widths[0],
        "ch_mult": _multiples(widths, "VAE"), "num_res_blocks": config.vae["layers_per_block"], "attn_resolutions": [],
        "dropout": 0.0,
    }  # fmt: skip
    return {"embed_dim": latent, "monitor": "val/rec_loss", "ddconfig": inner}


def _node(target: str, params: dict[str, Any] | None = None, **beside: Any) -> dict[str, Any]:
    return {**beside, "target": target, **({"params": params} if params else {})}


def _latent_diffusion(config: ModelConfig, clip: str) -> dict[str, Any]:
    encoders = "ldm.modules.encoders.modules."
    text = (
        _node(f"{encoders}FrozenCLIPEmbedder", {"version": clip})
        if config.family == "sd1"
        else _node(f"{encoders}FrozenOpenCLIPEmbedder", {"freeze": True, "layer": "penultimate"})
    )
    params: dict[str, Any] = {
        "linear_start": 0.00085, "linear_end": 0.0120, "num_timesteps_cond": 1, "log_every_t": 200, "timesteps": 1000,
        "first_stage_key": "jpg", "cond_stage_key": "txt", "image_size": config.unet["sample_size"],
        "channels": config.vae["latent_channels"],
        "cond_stage_trainable": False, "conditioning_key": "crossattn", "monitor": "val/loss_simple_ema",
        "scale_factor": config.vae["scaling_factor"], "use_ema": False,
    }  # fmt: skip
    params["parameterization"] = "v" if config.prediction_type == "v_prediction" else "eps"
    openai = "ldm.modules.diffusionmodules.openaimodel.UNetModel"
    params["unet_config"] = _node(openai, _unet(config))
    lossless = {**_vae(config), "lossconfig": _node("torch.nn.Identity")}
    params["first_stage_config"] = _node("ldm.models.autoencoder.AutoencoderKL", lossless)
    params["cond_stage_config"] = text
    return _node("ldm.models.diffusion.ddpm.LatentDiffusion", params)


def _diffusion_engine(config: ModelConfig, clip: str) -> dict[str, Any]:
    module = "sgm.modules."
    diffusion, encoders = f"{module}diffusionmodules.", f"{module}encoders.modules."
    scaling = "VScaling" if config.prediction_type == "v_prediction" else "EpsScaling"
    embedders = [
        _node(f"{encoders}FrozenCLIPEmbedder", {"version": clip, "layer": "hidden",
              "layer_idx": config.text_encoders[0]["num_hidden_layers"] - 1}, is_trainable=False, input_key="txt"),
        _node(f"{encoders}FrozenOpenCLIPEmbedder2",
              {"arch": "ViT-bigG-14", "version": "laion2b_s39b_b160k", "freeze": True, "layer": "penultimate",
               "always_return_pooled": True, "legacy": False}, is_trainable=False, input_key="txt"),
    ]  # fmt: skip
    outer = config.unet["addition_time_embed_dim"]
    embedders += [
        _node(f"{encoders}ConcatTimestepEmbedderND", {"outdim": outer}, is_trainable=False, input_key=key)
        for key in ("original_size_as_tuple", "crop_coords_top_left", "target_size_as_tuple")
    ]
    denoiser = {
        "num_idx": 1000,
        "weighting_config": _node(f"{diffusion}denoiser_weighting.EpsWeighting"),
        "scaling_config": _node(f"{diffusion}denoiser_scaling.{scaling}"),
        "discretization_config": _node(f"{diffusion}discretizer.LegacyDDPMDiscretization"),
    }
    lossless = {**_vae(config), "lossconfig": _node("torch.nn.Identity")}
    return _node("sgm.models.diffusion.DiffusionEngine", {
        "scale_factor": config.vae["scaling_factor"], "disable_first_stage_autocast": True,
        "denoiser_config": _node(f"{diffusion}denoiser.DiscreteDenoiser", denoiser),
        "network_config": _node(f"{diffusion}openaimodel.UNetModel", _unet(config)),
        "conditioner_config": _node(f"{module}GeneralConditioner", {"emb_models": embedders}),
        "first_stage_config": _node("sgm.models.autoencoder.AutoencoderKLInferenceWrapper", lossless),
    })  # fmt: skip


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _lines(value: Any, indent: int) -> list[str]:
    pad, lines = "  " * indent, []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{pad}{key}:", *_lines(inner, indent + 1)]
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            lines.append(f"{pad}{key}:")
            for item in inner:
                first, *rest = _lines(item, indent + 2)
                lines += [f"{pad}  - {first.strip()}", *rest]
        else:
            text = f"[{', '.join(map(_scalar, inner))}]" if isinstance(inner, list) else _scalar(inner)
            lines.append(f"{pad}{key}: {text}")
    return lines


def yaml_text(config: ModelConfig, text_folder: Path | None = None) -> str:
    """The yaml for this model. ``text_folder`` holds the CLIP encoder's ``config.json`` and tokenizer; by default the
    published CLIP-L is named, whose width a reduced model does not have.

    Raises:
        ModelFileError: a network whose sizes the original layout's code has no words for.
    """
    clip = str(text_folder) if text_folder is not None else _HUB_CLIP
    model = _diffusion_engine(config, clip) if config.family == "sdxl" else _latent_diffusion(config, clip)
    return "\n".join([*_lines({"model": model}, 0), ""])
