"""Samplers by the names people know, as diffusers schedulers."""

from __future__ import annotations

from typing import Any

import diffusers

_SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "euler": ("EulerDiscreteScheduler", {}),
    "euler a": ("EulerAncestralDiscreteScheduler", {}),
    "ddim": ("DDIMScheduler", {}),
    "dpm++ 2m": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++"}),
    "dpm++ 2m karras": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++", "use_karras_sigmas": True}),
    "heun": ("HeunDiscreteScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
}
DEFAULT_SAMPLER = "default"
SAMPLER_NAMES = (DEFAULT_SAMPLER, *_SAMPLERS)


def make_scheduler(name: str, model_scheduler: Any) -> Any:
    """A fresh scheduler of that name, for the noise schedule that the model was trained with."""
    if name == DEFAULT_SAMPLER:
        return type(model_scheduler).from_config(model_scheduler.config)
    class_name, options = _SAMPLERS[name]
    return getattr(diffusers, class_name).from_config(model_scheduler.config, **options)
