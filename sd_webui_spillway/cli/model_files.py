"""Commands that write models: make and convert."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..units import format_bytes
from .output import console, errors_console


def make(options: argparse.Namespace) -> int:
    """``spillway model make``."""
    from ..hosts.standalone import PRECISIONS
    from ..models import make_checkpoint

    with _tensor_progress(options.path.name) as progress:
        make_checkpoint(
            options.path, options.kind, options.size, options.seed, PRECISIONS[options.precision], progress=progress
        )
    console().print(f"{options.path} ({format_bytes(options.path.stat().st_size)}); its weights are random.")
    return 0


def convert(options: argparse.Namespace) -> int:
    """``spillway model convert``."""
    from ..hosts.standalone import PRECISIONS
    from ..models import convert_folder

    dtype = PRECISIONS[options.precision] if options.precision else None
    with _tensor_progress(options.target.name) as progress:
        written = convert_folder(options.source, options.target, dtype, progress, force=options.force)
    out = console()
    out.print(f"{written.checkpoint} ({format_bytes(written.checkpoint.stat().st_size)})")
    out.print(f"{written.yaml}, which describes it to AUTOMATIC1111")
    if written.text_folder is not None:
        out.print(f"{written.text_folder}, its text encoder's settings and tokenizer")
    for notice in written.notices:
        errors_console().print(notice)
    return 0


@contextmanager
def _tensor_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, which stays only where the work was done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors_console()) as progress:
        task = progress.add_task(f"{name}: tensors")
        done = False
        try:
            yield lambda finished, total: progress.update(task, completed=finished, total=total)
            done = True
        finally:
            progress.update(task, visible=done)
