"""Commands that need no model: memory and the log."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

from rich.live import Live
from rich.table import Table

from ..errors import BadInputError, StorageError, first_line
from ..memory.snapshot import MemorySnapshot
from ..timing import LogFilter
from ..timing.export import write_csv, write_json
from ..units import format_bytes
from .output import console, errors_console, image_table

WATCH_SECONDS = 0.5


def memory(options: argparse.Namespace) -> int:
    """``spillway memory``."""
    from ..hosts.standalone import memory_reader

    reader = memory_reader(_running_card())
    if options.json:
        while True:
            sys.stdout.write(json.dumps(_as_json(reader.read())) + "\n")
            sys.stdout.flush()
            if not options.watch:
                return 0
            time.sleep(WATCH_SECONDS)
    if not options.watch:
        console().print(_memory_table(reader.read()))
        return 0
    with Live(_memory_table(reader.read()), console=console(), auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(_memory_table(reader.read()), refresh=True)


def log(options: argparse.Namespace) -> int:
    """``spillway log``."""
    from ..hosts.standalone import StandaloneOptions, open_log

    if options.limit < 1:
        raise BadInputError(f"The limit must be at least 1, not {options.limit}.")
    image_log = open_log(StandaloneOptions(data_folder=options.data_folder))
    for notice in image_log.notices:
        errors_console().print(notice)
    try:
        if options.clear:
            return _clear(image_log, options.yes)
        records = image_log.records(LogFilter(profile=options.profile, model=options.model), limit=options.limit)
        if options.json:
            write_json(records, sys.stdout)
        elif options.csv is not None:
            _write_csv(records, options.csv)
        elif records:
            console().print(image_table(records))
        else:
            console().print("No image is in the log yet.")
    finally:
        image_log.close()
    return 0


def _running_card() -> Any:
    """The real card where torch has one; without it the machine's own providers say what is unknown and why."""
    import torch

    from ..placement.card import CudaCard

    return CudaCard() if torch.cuda.is_available() else None


def _as_json(snapshot: MemorySnapshot) -> dict[str, Any]:
    return {**asdict(snapshot), "unknown_because": dict(snapshot.unknown_because)}


def _memory_table(snapshot: MemorySnapshot) -> Table:
    table = Table(title=snapshot.device_name or "no GPU found", title_justify="left", show_header=False)

    def row(words: str, *names: str) -> None:
        values = [getattr(snapshot, name) for name in names]
        reasons = dict.fromkeys(
            snapshot.unknown_because[name] for name, value in zip(names, values, strict=True) if value is None
        )
        text = " of ".join(format_bytes(value) for value in values)
        table.add_row(words, text + (f", because {'; '.join(reasons)}" if reasons else ""))

    row("memory on the card, all programs", "dedicated_used_bytes", "dedicated_total_bytes")
    row("memory on the card, this process", "dedicated_process_bytes")
    row("system memory the card borrows: pinned", "shared_pinned_bytes")
    row("system memory the card borrows: spilled", "shared_spilled_bytes")
    row("RAM", "ram_used_bytes", "ram_total_bytes")
    return table


def _clear(image_log: Any, yes: bool) -> int:
    count = image_log.count(LogFilter())
    if not yes:
        if not sys.stdin.isatty():
            raise BadInputError("Clearing the log needs an answer; say --yes where nobody can give one.")
        if input(f"Forget all {count} images in the log? The pictures stay. [y/N] ").strip().lower() != "y":
            console().print("Nothing was cleared.")
            return 0
    image_log.clear()
    console().print(f"{count} images forgotten.")
    return 0


def _write_csv(records: Any, path: Any) -> None:
    if str(path) == "-":
        write_csv(records, sys.stdout)
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            count = write_csv(records, stream, byte_order_mark=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or first_line(error)}.") from error
    console().print(f"{count} images written to {path}.")
