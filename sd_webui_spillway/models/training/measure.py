"""How much of what a caption says is in the pictures that a model draws: counted, with intervals and every failure."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInputError
from ..pictures import Group, Pair, caption, is_held_out, layers_of, random_scene, render
from .classifier import Classifier, SeenThing
from .judging import QUALITIES, Verdict, in_words, judge

PAIR = "pair"
KINDS = ("1", "2", "3", "4", "5", PAIR)
"""Groups by their count, and pairs."""
MOST_CAPTIONS = 600
_SURE_95 = 1.959964


@dataclass(frozen=True)
class MeasureSettings:
    """How pictures are drawn. The sampler, number type and device are the pipeline's own and recorded from it."""

    steps: int = 20
    guidance_scale: float = 7.0
    width: int = 256
    """Pixels."""
    height: int = 256
    batch: int = 8


@dataclass(frozen=True)
class Share:
    """How often something was right, with Wilson's 95 % interval."""

    right: int
    of: int

    def as_json(self) -> dict[str, Any]:
        """Counts and fractions; the fractions are ``None`` where nothing was counted."""
        low, high = wilson(self.right, self.of)
        share = self.right / self.of if self.of else None
        return {"right": self.right, "of": self.of, "share": share, "low_95": low, "high_95": high}


def wilson(right: int, of: int) -> tuple[float, float] | tuple[None, None]:
    """Wilson's score interval (1927) at 95 %: where the true share lies, fair even near 0 and 1."""
    if of == 0:
        return None, None
    share, square = right / of, _SURE_95**2
    middle = share + square / (2 * of)
    reach = _SURE_95 * math.sqrt(share * (1 - share) / of + square / (4 * of**2))
    return max(0.0, (middle - reach) / (1 + square / of)), min(1.0, (middle + reach) / (1 + square / of))


@dataclass(frozen=True)
class Outcome:
    """One caption, its picture and what became of it."""

    scene: Group | Pair
    seed: int
    seen: tuple[SeenThing, ...]
    verdict: Verdict
    picture: Tensor = field(repr=False, compare=False)
    """[3, height, width], uint8, on system memory."""

    @property
    def caption(self) -> str:
        """The canonical one, which the picture was drawn from."""
        return caption(self.scene)

    def as_json(self) -> dict[str, Any]:
        """Caption, seed, what was seen and what is wrong with it."""
        said = (quality for quality in QUALITIES if quality != "everything")
        wrong = [quality for quality in said if getattr(self.verdict, quality) is False]
        return {"caption": self.caption, "seed": self.seed, "seen": in_words(self.seen), "wrong": wrong}


@dataclass(frozen=True)
class Measurement:
    """What a model drew, and what the project draws for the same captions: the classifier's own ceiling."""

    settings: Mapping[str, Any]
    drawn_by_model: tuple[Outcome, ...]
    drawn_by_project: tuple[Outcome, ...]
    classifier_accuracy: Mapping[str, Any]
    model_seconds: float

    def as_json(self) -> dict[str, Any]:
        """Everything but the pictures. ``"all"`` has a share for each quality of :class:`.judging.Verdict`, over the
        captions that speak of it; ``"by_kind"`` the same for groups of each count and for pairs."""
        return {
            "settings": dict(self.settings),
            "model_seconds": self.model_seconds,
            "drawn_by_model": _summary(self.drawn_by_model),
            "drawn_by_project": _summary(self.drawn_by_project),
            "classifier_accuracy": dict(self.classifier_accuracy),
        }


def shares(outcomes: Sequence[Outcome]) -> dict[str, Share]:
    """Quality → how often it was right, over the captions that speak of it."""
    counted = {}
    for quality in QUALITIES:
        answers = [getattr(one.verdict, quality) for one in outcomes]
        counted[quality] = Share(answers.count(True), len(answers) - answers.count(None))
    return counted


def kind_of(scene: Group | Pair) -> str:
    """One of :data:`KINDS`."""
    return str(scene.count) if isinstance(scene, Group) else PAIR


def _summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    def counted(chosen: Sequence[Outcome]) -> dict[str, Any]:
        return {quality: share.as_json() for quality, share in shares(chosen).items() if share.of}

    by_kind = {kind: counted([one for one in outcomes if kind_of(one.scene) == kind]) for kind in KINDS}
    return {
        "all": counted(outcomes),
        "by_kind": {kind: found for kind, found in by_kind.items() if found},
        "failures": [one.as_json() for one in outcomes if not one.verdict.everything],
    }


def held_out_scenes(count: int = 200, seed: int = 0) -> list[Group | Pair]:
    """Scenes that no training sees, no caption twice, by turns a group of one, two … five and a pair.

    Raises:
        BadInputError: there are not so many of them.
    """
    if not 1 <= count <= MOST_CAPTIONS:
        raise BadInputError(f"The number of captions must be from 1 to {MOST_CAPTIONS}, not {count}.")
    random = Random(f"held out {seed}")  # noqa: S311  # no secret
    wanted = {kind: len(range(index, count, len(KINDS))) for index, kind in enumerate(KINDS)}
    found: dict[str, dict[str, Group | Pair]] = {kind: {} for kind in KINDS}
    while any(len(found[kind]) < wanted[kind] for kind in KINDS):
        scene = random_scene(random)
        if isinstance(scene, Group | Pair) and is_held_out(scene):
            of_kind = found[kind_of(scene)]
            if len(of_kind) < wanted[kind_of(scene)]:
                of_kind.setdefault(caption(scene), scene)
    turns = [list(found[kind].values()) for kind in KINDS]
    return [turns[index % len(KINDS)][index // len(KINDS)] for index in range(count)]


def seed_of(scene: Group | Pair) -> int:
    """The seed that belongs to a caption, the same in every measurement."""
    return zlib.crc32(caption(scene).encode())


def measure(
    pipeline: Any, classifier: Classifier, scenes: Sequence[Group | Pair], settings: MeasureSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:  # fmt: skip
    """Draws each scene's canonical caption with ``pipeline``, a diffusers one of Stable Diffusion, and judges it.

    Each picture's noise comes from its caption's own seed, made on the CPU, whatever the batch. Pictures are rounded
    to 8 bits, as they would be saved, before they are judged. ``progress`` is told how many are done, of how many.
    """
    settings, drawn = settings or MeasureSettings(), []
    started = time.monotonic()
    for start in range(0, len(scenes), settings.batch):
        some = scenes[start : start + settings.batch]
        images = pipeline(
            prompt=[caption(scene) for scene in some], num_inference_steps=settings.steps,
            guidance_scale=settings.guidance_scale, height=settings.height, width=settings.width,
            generator=[torch.Generator("cpu").manual_seed(seed_of(scene)) for scene in some], output_type="pt",
        ).images  # fmt: skip
        drawn += _outcomes(some, images, classifier)
        if progress:
            progress(start + len(some), len(scenes))
    seconds = time.monotonic() - started
    used = {
        "captions": len(scenes), "steps": settings.steps, "guidance_scale": settings.guidance_scale,
        "sampler": type(pipeline.scheduler).__name__, "width": settings.width, "height": settings.height,
        "batch": settings.batch, "dtype": str(pipeline.dtype).removeprefix("torch."),
        "device": torch.device(pipeline.device).type,
    }  # fmt: skip
    ceiling = draw_and_judge(classifier, scenes, settings)
    return Measurement(used, tuple(drawn), ceiling, classifier.accuracy, seconds)


def draw_and_judge(
    classifier: Classifier, scenes: Sequence[Group | Pair], settings: MeasureSettings
) -> tuple[Outcome, ...]:
    """The same judgement of pictures that the project draws of these scenes: what a perfect model would get."""
    drawn: list[Outcome] = []
    for start in range(0, len(scenes), settings.batch):
        some = scenes[start : start + settings.batch]
        drawings = [
            layers_of(scene, Random(seed_of(scene)), min(settings.width, settings.height))  # noqa: S311
            for scene in some
        ]
        drawn += _outcomes(some, render(drawings, settings.height, settings.width), classifier)
    return tuple(drawn)


def _outcomes(scenes: Sequence[Group | Pair], images: Tensor, classifier: Classifier) -> list[Outcome]:
    pictures = (images.detach().float().nan_to_num(0).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    seen = classifier.see(pictures.to(next(classifier.parameters()).device).float() / 255)
    return [
        Outcome(scene, seed_of(scene), things, judge(scene, things), picture)
        for scene, things, picture in zip(scenes, seen, pictures, strict=True)
    ]
