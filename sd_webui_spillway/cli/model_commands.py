"""``spillway model measure``: how well a model draws."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..errors import BadInputError, first_line
from ..units import format_seconds
from .output import console, errors_console

if TYPE_CHECKING:
    from ..models.training.measure import Measurement

_WORDS = {"binding": "colour on its shape"}


def measure_model(options: argparse.Namespace) -> int:
    """``spillway model measure``."""
    from ..hosts.samplers import SAMPLER_NAMES, make_scheduler
    from ..hosts.standalone import PRECISIONS, cache_folder
    from ..models import load_model
    from ..models.embedded import CLASSIFIER_FILE
    from ..models.training.classifier import Classifier
    from ..models.training.measure import MeasureSettings, held_out_scenes, measure
    from ..models.training.sheet import write_sheets

    if options.sampler not in SAMPLER_NAMES:
        raise BadInputError(f"There is no sampler “{options.sampler}”; choose from {', '.join(SAMPLER_NAMES)}.")
    for name in ("steps", "batch_size"):
        if getattr(options, name) < 1:
            raise BadInputError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(options, name)}.")
    if options.size is not None and (options.size < 64 or options.size % 8):
        raise BadInputError(f"The size must be a multiple of 8 from 64 pixels on, not {options.size}.")
    scenes = held_out_scenes(options.captions, options.seed)
    device = device_named(options.device)
    classifier = Classifier.load(CLASSIFIER_FILE, device)
    loaded = load_model(options.model, cache_folder(), PRECISIONS[options.precision])
    pipeline: Any = loaded.pipeline.to(device)
    pipeline.scheduler = make_scheduler(options.sampler, pipeline.scheduler)
    pipeline.set_progress_bar_config(disable=True)
    width, height = (options.size, options.size) if options.size else loaded.default_size
    settings = MeasureSettings(options.steps, options.guidance_scale, width, height, options.batch_size)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors_console(), transient=True) as progress:
        task = progress.add_task("drawing held-out captions", total=len(scenes))
        found = measure(
            pipeline, classifier, scenes, settings, lambda done, _total: progress.update(task, completed=done)
        )
    console().print(_table(found, loaded.name))
    if options.json:
        _write_json(
            {"model": {"name": loaded.name, "family": loaded.family}, "seed": options.seed, **found.as_json()},
            options.json,
        )
    for path in write_sheets(found.drawn_by_model, options.sheet) if options.sheet else ():
        console().print(f"{path} written.")
    return 0


def device_named(name: str) -> Any:
    """The torch device that ``--device`` means; ``auto`` is the GPU where there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInputError(f"There is no device “{name}”; say cuda or cpu.", detail=first_line(error)) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInputError("torch finds no GPU here; say --device cpu.")
    return device


def _table(found: Measurement, model: str) -> Table:
    from ..models.training.measure import shares, wilson

    used = found.settings
    table = Table(title=f"What {model} draws of {used['captions']} captions it never saw", title_justify="left")
    for column in ("right", "pictures", "share", "95 % interval", "classifier's ceiling"):
        table.add_column(column, justify="left" if column == "right" else "right")
    ceilings = shares(found.drawn_by_project)
    for quality, share in shares(found.drawn_by_model).items():
        if share.of:
            low, high = (f"{100 * (bound or 0):.1f}" for bound in wilson(share.right, share.of))
            ceiling = ceilings[quality]
            table.add_row(
                _WORDS.get(quality, quality), f"{share.right} of {share.of}", f"{100 * share.right / share.of:.1f} %",
                f"{low} – {high} %", f"{100 * ceiling.right / ceiling.of:.1f} %",
            )  # fmt: skip
    table.caption_justify = "left"
    table.caption = (
        f"{used['width']}×{used['height']}, {used['steps']} steps of {used['sampler']}, guidance "
        f"{used['guidance_scale']:g}, {used['dtype']} on {used['device']}, {format_seconds(found.model_seconds)}"
    )
    return table


def _write_json(content: dict[str, Any], path: Path) -> None:
    from ..models.atomic import whole_file

    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    console().print(f"{path} written.")
