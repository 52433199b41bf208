"""Small parts of the small webui, with the names and signatures of the real ones."""

from __future__ import annotations

import torch


class State:
    def __init__(self) -> None:
        self.skipped = self.interrupted = self.stopping_generation = False
        self.sampling_step = self.sampling_steps = 0

    def interrupt(self) -> None:
        self.interrupted = True


class ImageRNG:
    def __init__(
        self, shape, seeds, subseeds=None, subseed_strength=0.0, seed_resize_from_h=0, seed_resize_from_w=0
    ) -> None:
        self.shape, self.seeds, self.subseeds, self.subseed_strength = shape, seeds, subseeds, subseed_strength
        self.seed_resize_from_h, self.seed_resize_from_w = seed_resize_from_h, seed_resize_from_w
        self.used = False

    def next(self) -> torch.Tensor:
        assert not self.used, "the noise of a call that failed is not to be used again"
        self.used = True
        return torch.stack([torch.full(self.shape, float(seed)) for seed in self.seeds])


class InterruptedException(BaseException):
    """As the webui names it."""


class ScriptRunner:
    """A test fills :attr:`selectable_scripts` with objects that have a ``filename`` and ``run(p)``."""

    def __init__(self) -> None:
        self.selectable_scripts = []

    def run(self, p, *args):
        return self.selectable_scripts[args[0] - 1].run(p) if args[0] else None


class DecodedSamples(list):
    already_decoded = True


def folder_batch(make):
    """The function that redraws every picture of a folder."""

    def process_batch(
        p, input, output_dir, inpaint_mask_dir, args, to_scale=False, scale_by=1.0, use_png_info=False,  # noqa: A002
        png_info_props=None, png_info_dir=None,
    ):  # fmt: skip
        results = None
        for picture in input:
            p.init_images = [picture]
            processed = make(p)
            if results is None:
                results = processed
            else:
                results.images.extend(processed.images)
                results.infotexts.extend(processed.infotexts)
        return results

    return process_batch
