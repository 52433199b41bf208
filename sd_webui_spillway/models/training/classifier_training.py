"""Training the classifier on freshly drawn pictures, never on generated ones, and finding out how well it sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..pictures import layers_of, render
from .classifier import Classifier
from .classifier_pictures import MOST_THINGS, Pool, Vocabulary, draw_pool, mixture, seen_in, softened, things_scene
from .judging import QUALITIES, judge

Progress = Callable[[str, int, int], None]
"""Told what is being done, and how much of it, of how much, is done."""
_CHECK_BATCH = 100


@dataclass(frozen=True)
class ClassifierPlan:
    """How the classifier is trained; the default fits an H200 and about a minute."""

    steps: int = 2500
    batch: int = 256
    pool: int = 24_000
    """Pictures drawn before training, each seen again with other marks on it."""
    side_pixels: int = 128
    width: int = 32
    learning_rate: float = 3e-3
    checked: int = 2000
    """Fresh pictures of groups and pairs, and as many mixtures, that accuracy is counted on."""
    vocabulary: Vocabulary = field(default_factory=Vocabulary)


def train_classifier(
    device: torch.device | str = "cpu", seed: int = 0, plan: ClassifierPlan | None = None,
    progress: Progress | None = None,
) -> Classifier:  # fmt: skip
    """A trained classifier on ``device``, in evaluation mode; its ``accuracy`` is from pictures it never saw.

    The same seed, plan, machine and version of torch give the same classifier on a CPU.
    """
    plan, device = plan or ClassifierPlan(), torch.device(device)

    def tell(what: str) -> Callable[[int, int], None]:
        return lambda done, total: progress(what, done, total) if progress else None

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classifier = Classifier(plan.side_pixels, plan.width).to(device)
    random = Random(seed)  # noqa: S311  # no secret
    pool = draw_pool(plan.pool, plan.side_pixels, device, random, plan.vocabulary, tell("drawing"))
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=plan.learning_rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, plan.learning_rate, total_steps=plan.steps, pct_start=0.1, cycle_momentum=False
    )
    classifier.train()
    for step in range(plan.steps):
        which = torch.randint(plan.pool, (plan.batch,), generator=generator, device=device)
        loss = _loss(classifier, pool, which, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        tell("learning")(step + 1, plan.steps)
    classifier.eval().requires_grad_(False)
    del pool
    classifier.accuracy = accuracy(classifier, plan.checked, seed + 1, plan.vocabulary, tell("checking"))
    return classifier


def _loss(classifier: Classifier, pool: Pool, which: Tensor, generator: torch.Generator) -> Tensor:
    pictures, middles, names = pool.pictures[which].float() / 255, pool.middles[which], pool.names[which]
    mirrored = torch.rand(len(which), generator=generator, device=which.device) < 0.5  # every shape is symmetric
    pictures = torch.where(mirrored[:, None, None, None], pictures.flip(3), pictures)
    across = torch.where(mirrored[:, None], 1 - middles[..., 0], middles[..., 0])
    heat, *kinds = classifier(softened(pictures, generator))
    cells = heat.shape[-1]
    there = names[..., 0] >= 0
    columns, rows = ((part * cells).long().clamp(0, cells - 1) for part in (across, middles[..., 1]))
    return _middle_loss(heat[:, 0], columns, rows, there) + _kind_loss(kinds, columns, rows, names, generator)


def _middle_loss(heat: Tensor, columns: Tensor, rows: Tensor, there: Tensor) -> Tensor:
    """CenterNet's focal loss: cells beside a middle count less the nearer they are."""
    line = torch.arange(heat.shape[-1], device=heat.device)
    far = (line - columns[..., None])[:, :, None, :] ** 2 + (line - rows[..., None])[:, :, :, None] ** 2
    near = (torch.exp(-far / 2.0) * there[..., None, None]).amax(dim=1)
    middle = near == 1
    likely = heat.sigmoid()
    hit = functional.logsigmoid(heat) * (1 - likely) ** 2
    miss = functional.logsigmoid(-heat) * likely**2 * (1 - near) ** 4
    return -torch.where(middle, hit, miss).sum() / middle.sum().clamp_min(1)


def _kind_loss(kinds: list[Tensor], columns: Tensor, rows: Tensor, names: Tensor, generator: torch.Generator) -> Tensor:
    """Shape, colour and texture at each middle or a cell beside it: the surest cell may be either."""
    cells = kinds[0].shape[-1]
    columns, rows = (
        (part + torch.randint(-1, 2, part.shape, generator=generator, device=part.device)).clamp(0, cells - 1)
        for part in (columns, rows)
    )
    picture = torch.arange(len(columns), device=columns.device)[:, None].expand(-1, MOST_THINGS)
    total = kinds[0].new_zeros(())
    for index, logits in enumerate(kinds):
        at_things = logits.permute(0, 2, 3, 1)[picture, rows, columns]
        total = total + functional.cross_entropy(at_things.flatten(0, 1), names[..., index].flatten(), ignore_index=-1)
    return total


def accuracy(
    classifier: Classifier, count: int, seed: int, vocabulary: Vocabulary | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """How often the classifier is right about pictures drawn afresh, as drawn and softened by turns.

    By quality (see :class:`.judging.Verdict`) a fraction over ``count`` groups and pairs, and under ``"mixtures"``
    over ``count`` mixtures: that each thing's colour, shape and texture, and so the count, was seen.
    """
    vocabulary, device = vocabulary or Vocabulary(), next(classifier.parameters()).device
    random = Random(f"accuracy {seed}")  # noqa: S311  # no secret
    generator = torch.Generator(device).manual_seed(seed)
    right: dict[str, list[bool]] = {quality: [] for quality in (*QUALITIES, "mixtures")}
    side = classifier.side_pixels
    for start in range(0, count, _CHECK_BATCH):
        size = min(_CHECK_BATCH, count - start)
        scenes = [things_scene(random, vocabulary) for _ in range(size)]
        drawings = [layers_of(scene, random, side) for scene in scenes]
        mixed = [mixture(random, vocabulary) for _ in range(size)]
        pictures = render(drawings + mixed, side, side, device)
        pictures[::2] = softened(pictures[::2], generator)
        seen = classifier.see(pictures)
        for scene, things in zip(scenes, seen[:size], strict=True):
            verdict = judge(scene, things)
            for quality in QUALITIES:
                if (answer := getattr(verdict, quality)) is not None:
                    right[quality].append(answer)
        for drawing, things in zip(mixed, seen[size:], strict=True):
            expected = sorted((one.shape, one.colour, one.texture) for one in seen_in(drawing))
            right["mixtures"].append(expected == sorted((one.shape, one.colour, one.texture) for one in things))
        if progress:
            progress(start + size, count)
    shares: dict[str, Any] = {quality: sum(answers) / len(answers) for quality, answers in right.items() if answers}
    return {"pictures": count, "seed": seed, **shares}
