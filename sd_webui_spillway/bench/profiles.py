"""What an image costs under each profile as the card gets smaller: ``python -m sd_webui_spillway.bench.profiles``.

A real-size model with random weights (time and memory do not depend on the values), one batch a cell, cells interleaved
over rounds. Each cell is written as it ends; the same command again goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ..host_port import ImageRequest, JobResult
from ..hosts.diffusers import DiffusersHost
from ..models import LoadedModel
from ..models.maker import build_pipeline
from ..placement.card import Card, CudaCard
from ..placement.profile import Profile
from ..placement.simulated import SimulatedCard
from ..timing.image_record import ImageRecord
from ..units import GIB, format_bytes, parse_bytes
from .results import ResultFile

PROFILES = (Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL, Profile.AUTO)


class SilentObserver:
    """A job's observer that only counts."""

    def __init__(self) -> None:
        self.rungs: list[str] = []

    def batch(self, index: int) -> None: ...

    def stage(self, name: str) -> None: ...

    def step(self, index: int, count: int) -> None: ...

    def rung(self, words: str) -> None:
        self.rungs.append(words)

    def profile(self, profile: Profile) -> None: ...

    def image(self, record: ImageRecord) -> ImageRecord:
        return record

    def stop_requested(self) -> bool:
        return False

    def takes_step_down(self) -> bool:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that the result file lacks, then print the table."""
    options = _parser().parse_args(arguments)
    deadline = time.monotonic() + options.seconds
    limits = [parse_bytes(text) for text in options.limits.split(",")]
    results = ResultFile(options.json, model=options.kind, size=options.size, steps=options.steps, batch=options.batch)
    started = time.perf_counter()
    dtype = torch.float16 if torch.cuda.is_available() else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        pipeline = build_pipeline(options.kind, options.model_size, 0, dtype, Path(folder))
        name = f"{options.kind} {options.model_size}"
        model = LoadedModel(pipeline, name, options.kind, (options.size, options.size))
        sys.stderr.write(f"model built in {time.perf_counter() - started:.1f} s\n")
        _cell(model, max(limits), Profile.MEDVRAM, options, Path(folder))  # warms up kernels and allocator; not kept
        for round_number in range(options.rounds):
            for limit in limits:
                for profile in PROFILES:
                    key = {"round": round_number, "limit_bytes": limit, "asked": profile.value}
                    if results.has(**key):
                        continue
                    if time.monotonic() > deadline:
                        sys.stderr.write("out of time; the same command goes on from here\n")
                        return _print_table(results)
                    results.add(**key, **_cell(model, limit, profile, options, Path(folder)))
    return _print_table(results)


def _cell(
    model: LoadedModel, limit: int, profile: Profile, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    card: Card = CudaCard(limit) if torch.cuda.is_available() else SimulatedCard(limit)
    card.release_cached()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    host = DiffusersHost(model, card)
    observer = SilentObserver()
    request = ImageRequest(
        prompt="a lighthouse", width=options.size, height=options.size, steps=options.steps, batch_size=options.batch
    )
    started = time.perf_counter()
    result: JobResult | None = None
    error = None
    try:
        result = host.generate(request, profile, "bench", folder, observer)
    except Exception as failure:  # noqa: BLE001 - a cell that fails is a result, and is reported as one
        error = f"{type(failure).__name__}: {failure}"
    wall = time.perf_counter() - started
    reserved = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else None
    host.close()
    cell = _measured(result, wall, observer, error)
    cell["peak_reserved_bytes"] = reserved
    outcome = error or f"{cell['seconds_per_image']:.2f} s an image, {len(observer.rungs)} rungs"
    sys.stderr.write(f"{format_bytes(limit)} {profile}: {outcome}\n")
    return cell


def _measured(
    result: JobResult | None, wall: float, observer: SilentObserver, error: str | None
) -> dict[str, Any]:
    records = [image.record for image in result.images] if result else []
    peaks = [record.peak_dedicated_bytes for record in records if record.peak_dedicated_bytes is not None]
    return {
        "error": error,
        "delivered": len(records),
        "used": records[-1].profile_used if records else None,
        "job_seconds": wall,
        "seconds_per_image": statistics.median(record.total_seconds for record in records) if records else None,
        "stages": dict(records[-1].stage_seconds) if records else {},
        "peak_dedicated_bytes": max(peaks) if peaks else None,
        "estimated_dedicated_bytes": records[0].estimated_dedicated_bytes if records else None,
        "moved_bytes_per_image": records[-1].moved_bytes if records else None,
        "rungs": observer.rungs,
        "notices": list(result.notices) if result else [],
        "output_sha": _digest(result) if result else [],
    }


def _digest(result: JobResult) -> list[str]:
    """The pictures' own bytes, without the parameters in the file: equal where nothing was split or tiled."""
    digests = []
    for path in result.paths:
        with Image.open(path) as picture:
            digests.append(hashlib.sha256(picture.tobytes()).hexdigest()[:16])
    return digests


def _print_table(results: ResultFile) -> int:
    rows = ["| limit | profile asked → used | s/image | peak allocated | rungs | delivered |", "|" + "---|" * 6]
    failed = 0
    keys = dict.fromkeys((cell["limit_bytes"], cell["asked"]) for cell in results.cells)
    for limit, asked in keys:
        cells = [c for c in results.cells if (c["limit_bytes"], c["asked"]) == (limit, asked)]
        failed += sum(1 for cell in cells if cell["error"])
        seconds = [cell["seconds_per_image"] for cell in cells if cell["seconds_per_image"] is not None]
        median = f"{statistics.median(seconds):.2f}" if seconds else "failed"
        peak = max((cell["peak_dedicated_bytes"] or 0) for cell in cells)
        used = " / ".join(dict.fromkeys(str(cell["used"]) for cell in cells))
        rungs = len(cells[-1]["rungs"])
        delivered = " / ".join(str(cell["delivered"]) for cell in cells)
        rows.append(
            f"| {limit / GIB:g} GiB | {asked} → {used} | {median} | {format_bytes(peak)} | {rungs} | {delivered} |"
        )
    sys.stdout.write("\n".join(rows) + "\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sd_webui_spillway.bench.profiles", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="result file, made or gone on with")
    parser.add_argument("--kind", choices=("sd1", "sd2", "sdxl"), default="sdxl")
    parser.add_argument("--model-size", choices=("tiny", "real"), default="real")
    parser.add_argument("--size", type=int, default=1024, help="width and height in pixels")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limits", default="24GiB,8GiB,6GiB,4GiB,3GiB")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="begin no further cell after so long")
    return parser


if __name__ == "__main__":
    sys.exit(main())
