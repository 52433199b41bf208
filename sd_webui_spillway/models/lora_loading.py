"""LoRAs into a pipeline, through diffusers' own loading."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInputError, ModelFileError, UnavailableError, first_line
from .building import prepare
from .ldm_layout import TEXT, TEXT_2, UNET
from .lora import LoraTargets, diffusers_state, read_lora


@dataclass(frozen=True)
class LoraChoice:
    """A LoRA and how strongly it is applied: 1 as it was trained, 0 not at all."""

    path: Path
    weight: float = 1.0

    @staticmethod
    def parse(text: str) -> LoraChoice:
        """``FILE_OR_FOLDER`` or ``FILE_OR_FOLDER:WEIGHT``.

        Raises:
            BadInputError: the weight is no finite number.
        """
        path, colon, weight = text.rpartition(":")
        try:
            number = float(weight) if colon and path else 1.0
        except ValueError:
            return LoraChoice(Path(text))  # the colon belongs to the path, as after a Windows drive
        if not math.isfinite(number):
            raise BadInputError(f"The weight of the LoRA {path} must be a finite number, not {weight}.")
        return LoraChoice(Path(path if colon and path else text), number)


def add_loras(pipeline: Any, loras: Sequence[LoraChoice]) -> None:
    """Loads each into the pipeline, before anything is placed; their weights add up.

    Raises:
        BadInputError: no LoRA is there.
        ModelFileError: it does not fit the model; the sentence names the file.
        UnavailableError: peft is not installed.
    """
    if not loras:
        return
    modules = {name: getattr(pipeline, name, None) for name in (UNET, TEXT, TEXT_2)}
    present = {name: module for name, module in modules.items() if module is not None}
    targets = LoraTargets.in_modules(present, pipeline.unet.config)
    names = []
    for number, lora in enumerate(loras):
        layers = read_lora(lora.path, targets)
        state = {name: tensor.to(pipeline.unet.dtype) for name, tensor in diffusers_state(layers).items()}
        names.append(f"lora_{number}")
        try:
            with _no_warnings():
                pipeline.load_lora_weights(state, adapter_name=names[-1])
        except ValueError as error:
            if "PEFT backend" in str(error):
                raise UnavailableError(
                    "LoRAs are unavailable, because the package peft is not installed.", detail=str(error)
                ) from error
            raise ModelFileError(
                f"The LoRA “{lora.path.name}” cannot be loaded: {first_line(error)}", detail=repr(error)
            ) from error
    pipeline.set_adapters(names, [lora.weight for lora in loras])
    for module in present.values():
        prepare(module)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """diffusers warns of every component that a LoRA leaves alone."""
    library: Any = importlib.import_module("diffusers.utils.logging")
    before = library.get_verbosity()
    library.set_verbosity(max(before, logging.ERROR))
    try:
        yield
    finally:
        library.set_verbosity(before)
