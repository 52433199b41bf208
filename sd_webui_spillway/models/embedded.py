"""What comes with the package: a small Stable Diffusion trained on drawn pictures, a LoRA for it, a classifier.

``spillway model train`` makes all three; they are the files of its release, unchanged.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import UnavailableError

NAME = "embedded"
NOTICE = (
    "The embedded model is small: it draws coloured shapes and simple scenes, such as “three blue stars on a yellow "
    "background” or “a red house under a yellow sun”. For other pictures choose a model of your own."
)
_FOLDER = Path(__file__).parents[1] / "embedded"
_MODEL = _FOLDER / "model"
CLASSIFIER_FILE = _FOLDER / "classifier.safetensors"
STRIPED_LORA_FILE = _FOLDER / "loras" / "striped.safetensors"
"""The form that AUTOMATIC1111 loads."""
STRIPED_LORA_FOLDER = _FOLDER / "loras" / "striped"
"""The form that diffusers loads."""


def embedded_folder() -> Path:
    """The embedded model as a diffusers folder.

    Raises:
        UnavailableError: the installation is incomplete.
    """
    if not _MODEL.is_dir():
        raise UnavailableError("The embedded model is unavailable, because its files were not installed.")
    return _MODEL
