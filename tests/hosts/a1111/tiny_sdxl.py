"""The description of a tiny SDXL that the real host builds: every part that the real one has, each as small as it can
be."""

from __future__ import annotations

import json
from pathlib import Path


def write_yaml(path: Path, clip_folder: Path) -> None:
    """``clip_folder`` holds the first text encoder's configuration and tokenizer."""
    clip_width = json.loads((clip_folder / "config.json").read_text())["hidden_size"]
    sizes = [
        {"is_trainable": False, "input_key": key, "target": "sgm.modules.encoders.modules.ConcatTimestepEmbedderND",
         "params": {"outdim": 8}}
        for key in ("original_size_as_tuple", "crop_coords_top_left", "target_size_as_tuple")
    ]  # fmt: skip
    first = {
        "is_trainable": False, "input_key": "txt", "target": "sgm.modules.encoders.modules.FrozenCLIPEmbedder",
        "params": {"version": str(clip_folder), "layer": "hidden", "layer_idx": 1},
    }  # fmt: skip
    second = {
        "is_trainable": False, "input_key": "txt", "target": "sgm.modules.encoders.modules.FrozenOpenCLIPEmbedder2",
        "params": {"arch": "spillway-tiny-tower", "version": None, "freeze": True, "layer": "penultimate",
                   "always_return_pooled": True, "legacy": False},
    }  # fmt: skip
    steps = "sgm.modules.diffusionmodules"
    described = {"model": {"target": "sgm.models.diffusion.DiffusionEngine", "params": {
        "scale_factor": 0.13025,
        "disable_first_stage_autocast": True,
        "denoiser_config": {"target": f"{steps}.denoiser.DiscreteDenoiser", "params": {
            "num_idx": 1000,
            "weighting_config": {"target": f"{steps}.denoiser_weighting.EpsWeighting"},
            "scaling_config": {"target": f"{steps}.denoiser_scaling.EpsScaling"},
            "discretization_config": {"target": f"{steps}.discretizer.LegacyDDPMDiscretization"},
        }},
        "network_config": {"target": f"{steps}.openaimodel.UNetModel", "params": {
            "adm_in_channels": 32 + 3 * 16, "num_classes": "sequential", "use_checkpoint": False, "in_channels": 4,
            "out_channels": 4, "model_channels": 32, "attention_resolutions": [2], "num_res_blocks": 1,
            "channel_mult": [1, 2], "num_head_channels": 16, "use_spatial_transformer": True,
            "use_linear_in_transformer": True, "transformer_depth": [1, 2], "context_dim": clip_width + 32,
            "spatial_transformer_attn_type": "softmax", "legacy": False,
        }},
        "conditioner_config": {"target": "sgm.modules.GeneralConditioner",
                               "params": {"emb_models": [first, second, *sizes]}},
        "first_stage_config": {"target": "sgm.models.autoencoder.AutoencoderKLInferenceWrapper", "params": {
            "embed_dim": 4, "monitor": "val/rec_loss", "lossconfig": {"target": "torch.nn.Identity"},
            "ddconfig": {"attn_type": "vanilla", "double_z": True, "z_channels": 4, "resolution": 64, "in_channels": 3,
                         "out_ch": 3, "ch": 32, "ch_mult": [1, 1, 1, 1], "num_res_blocks": 1, "attn_resolutions": [],
                         "dropout": 0.0},
        }},
    }}}  # fmt: skip
    path.write_text(json.dumps(described, indent=1))  # JSON is YAML
