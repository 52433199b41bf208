"""A small network that says which things a picture shows: the measure of what a model draws.

It looks for the middles of things (as CenterNet does, arxiv.org/abs/1904.07850) and names each by shape, colour and
texture. So colours, shapes, their combinations, the count and the places all come from one list of things seen, and
a picture that mixes things no caption mixes is seen as what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import ModelFileError, first_line
from ..atomic import whole_file
from ..pictures import vocabulary as words

UNKNOWN_SHAPE = "something else"
SHAPES = (*words.SHAPES, UNKNOWN_SHAPE)
COLOURS = tuple(words.COLOURS)
TEXTURES = words.TEXTURES
CELL_PIXELS = 4
_SURE = 0.4
"""From which likelihood on a middle counts as seen."""
_APART_CELLS = 2
"""Of two middles no further apart than this in both directions, the surer one is taken."""
_FORMAT = "spillway-classifier-1"


@dataclass(frozen=True)
class SeenThing:
    """One thing in a picture; ``x`` and ``y`` are its middle as fractions of the picture's width and height."""

    shape: str
    """One of the drawn world's shapes, or :data:`UNKNOWN_SHAPE`."""
    colour: str
    texture: str
    x: float
    y: float


class Classifier(nn.Module):
    """Pictures of any size → the things in each. ``side_pixels`` is what a picture is resized to, a multiple of 16;
    ``width`` scales the layers: 32 makes about 226,000 weights."""

    def __init__(self, side_pixels: int = 128, width: int = 32) -> None:
        super().__init__()
        self.side_pixels, self.width = side_pixels, width
        half, deep, last = width // 2, width * 9 // 4, width * 3 // 2
        self.fine = nn.Sequential(_block(3, half, 2), _block(half, width, 2), _block(width, width))
        self.middle = nn.Sequential(_block(width, 2 * width, 2), _block(2 * width, 2 * width))
        self.coarse = nn.Sequential(_block(2 * width, deep, 2), _block(deep, deep))
        self.from_coarse, self.after_coarse = nn.Conv2d(deep, 2 * width, 1), _block(2 * width, 2 * width)
        self.from_middle, self.from_fine = nn.Conv2d(2 * width, last, 1), nn.Conv2d(width, last, 1)
        self.after_middle = _block(last, last)
        self.head = nn.Conv2d(last, 1 + len(SHAPES) + len(COLOURS) + len(TEXTURES), 1)
        nn.init.constant_(self.head.bias[:1], -4.0)  # type: ignore[index]  # middles are rare
        self.accuracy: Mapping[str, Any] = {}
        """What training found on fresh drawn pictures."""

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[n, 3, h, w] from 0 to 1 → logits of a middle [n, 1, cells, cells], of shapes, colours and textures."""
        if pictures.shape[-2:] != (self.side_pixels, self.side_pixels):
            pictures = functional.interpolate(
                pictures, size=(self.side_pixels, self.side_pixels), mode="bilinear", antialias=True
            )
        fine = self.fine(pictures * 2 - 1)
        middle = self.middle(fine)
        middle = self.after_coarse(
            middle + functional.interpolate(self.from_coarse(self.coarse(middle)), scale_factor=2)
        )
        fine = self.from_fine(fine) + functional.interpolate(self.from_middle(middle), scale_factor=2)
        parts = (1, len(SHAPES), len(COLOURS), len(TEXTURES))
        heat, shape, colour, texture = self.head(self.after_middle(fine)).split(parts, dim=1)
        return heat, shape, colour, texture

    @torch.inference_mode()
    def see(self, pictures: Tensor) -> list[tuple[SeenThing, ...]]:
        """[n, 3, h, w] from 0 to 1 on the classifier's device → the things in each picture, the surest first.

        Always computed in float32.
        """
        logits = self(pictures.float())
        heat = logits[0].sigmoid()
        window = 2 * _APART_CELLS + 1
        peaks = (heat == functional.max_pool2d(heat, window, 1, _APART_CELLS)) & (heat > _SURE)
        names = [part.argmax(dim=1) for part in logits[1:]]
        seen: list[list[tuple[float, SeenThing]]] = [[] for _ in pictures]
        where = torch.nonzero(peaks[:, 0])
        picture, row, column = where.unbind(dim=1)
        found = torch.stack([part[picture, row, column] for part in names], dim=1).tolist()
        sure, cells = heat[picture, 0, row, column].tolist(), heat.shape[-1]
        for (n, y, x), (shape, colour, texture), likelihood in zip(where.tolist(), found, sure, strict=True):
            thing = SeenThing(
                SHAPES[shape], COLOURS[colour], TEXTURES[texture], (x + 0.5) / cells, (y + 0.5) / cells
            )  # fmt: skip
            seen[n].append((likelihood, thing))
        return [tuple(thing for _, thing in sorted(one, key=lambda pair: -pair[0])) for one in seen]

    def save(self, path: Path) -> None:
        """Writes float16 safetensors, with sizes and accuracy among the metadata.

        Raises:
            StorageError: the file cannot be written.
        """
        from safetensors.torch import save_file

        state = {
            name: tensor.detach().cpu().half() if tensor.is_floating_point() else tensor.cpu()
            for name, tensor in self.state_dict().items()
        }
        metadata = {
            "format": _FORMAT, "side_pixels": str(self.side_pixels), "width": str(self.width),
            "accuracy": json.dumps(self.accuracy),
        }  # fmt: skip
        with whole_file(path) as temporary:
            save_file(state, str(temporary), metadata=metadata)

    @staticmethod
    def load(path: Path, device: torch.device | str = "cpu") -> Classifier:
        """The classifier in a file that :meth:`save` wrote, in float32, ready to see.

        Raises:
            ModelFileError: there is no such file, or it is something else.
        """
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise ModelFileError(f"The classifier “{path.name}” that measures pictures is missing.", detail=str(path))
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            if metadata.get("format") != _FORMAT:
                raise ModelFileError(f"“{path.name}” is not a classifier of drawn pictures.")
            classifier = Classifier(int(metadata["side_pixels"]), int(metadata["width"]))
            classifier.load_state_dict(state)
            classifier.accuracy = json.loads(metadata["accuracy"])
        except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
            raise ModelFileError(f"“{path.name}” cannot be read: {first_line(error)}.", detail=repr(error)) from error
        return classifier.to(device).eval().requires_grad_(False)


def _block(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )
