"""A pipeline that draws what a test tells it to, and a classifier that knows those pictures by heart."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import torch

from sd_webui_spillway.models.pictures import caption, layers_of, render
from sd_webui_spillway.models.training.classifier import Classifier
from sd_webui_spillway.models.training.classifier_pictures import seen_in


def drawing_of(scene, seed, side):
    return layers_of(scene, Random(seed), side)


class DrawingPipeline:
    """Answers a scene's caption with a drawn picture of ``instead_of[caption]``, or else of the scene itself."""

    dtype, device = torch.float32, torch.device("cpu")
    scheduler = SimpleNamespace()

    def __init__(self, scenes, instead_of=None):
        self.scenes = {caption(scene): scene for scene in scenes}
        self.instead_of = instead_of or {}
        self.calls = []

    def __call__(self, *, prompt, num_inference_steps, guidance_scale, height, width, generator, output_type):
        assert output_type == "pt"
        seeds = [one.initial_seed() for one in generator]
        self.calls.append((prompt, num_inference_steps, guidance_scale, height, width, seeds))
        shown = [self.instead_of.get(words, self.scenes[words]) for words in prompt]
        drawings = [drawing_of(scene, seed, min(height, width)) for scene, seed in zip(shown, seeds, strict=True)]
        return SimpleNamespace(images=render(drawings, height, width))


class Knowing(Classifier):
    """Sees without fault what it was shown before."""

    def __init__(self):
        super().__init__(side_pixels=64, width=8)
        self.known = {}

    def learn(self, scenes_and_seeds, side):
        if not scenes_and_seeds:
            return
        drawings = [drawing_of(scene, seed, side) for scene, seed in scenes_and_seeds]
        for drawing, picture in zip(drawings, render(drawings, side, side), strict=True):
            self.known[self._key(picture)] = seen_in(drawing)

    @staticmethod
    def _key(picture):
        return (picture * 255).round().to(torch.uint8).numpy().tobytes()

    def see(self, pictures):
        return [self.known[self._key(picture)] for picture in pictures]
