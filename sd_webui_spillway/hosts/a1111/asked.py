"""What a processing object of the webui asks for."""

from __future__ import annotations

from typing import Any

from ...host_port import ImageRequest


def request_of(p: Any) -> ImageRequest:
    """What the session shows of the job and the engine plans for; the size is that after hires fix."""
    width, height = final_size(p)
    seed = _first(p.seed)
    return ImageRequest(
        prompt=str(_first(p.prompt) or ""),
        negative_prompt=str(_first(p.negative_prompt) or ""),
        width=width,
        height=height,
        steps=p.steps,
        guidance_scale=p.cfg_scale,
        sampler=p.sampler_name or "default",
        seed=max(0, int(seed)) if isinstance(seed, int | float) else 0,
        batch_size=p.batch_size,
        batch_count=p.n_iter,
        strength=p.denoising_strength if p.denoising_strength is not None else 1.0,
    )


def _first(value: Any) -> Any:
    """Prompt matrix and others give a list, an item an image."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def final_size(p: Any) -> tuple[int, int]:
    """Width and height in pixels that the last pass makes."""
    if not getattr(p, "enable_hr", False):
        return int(p.width), int(p.height)
    if p.hr_upscale_to_x and p.hr_upscale_to_y:  # set by the webui as the job begins; latent cells are 8 pixels
        return p.hr_upscale_to_x // 8 * 8 - p.truncate_x * 8, p.hr_upscale_to_y // 8 * 8 - p.truncate_y * 8
    width, height = p.hr_resize_x, p.hr_resize_y
    if not width and not height:
        return int(p.width * p.hr_scale), int(p.height * p.hr_scale)
    return int(width or height * p.width // p.height), int(height or width * p.height // p.width)
