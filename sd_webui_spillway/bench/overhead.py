"""What watching costs: reading memory, writing the log, and the monitor's share of a processor.

``python -m sd_webui_spillway.bench.overhead --json``
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from ..memory import MemoryReader, MemorySnapshot, Monitor, machine_providers
from ..timing import ImageLog, ImageRecord, LogFilter, Outcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spread:
    """Seconds of one operation over many samples."""

    median_seconds: float
    p95_seconds: float
    samples: int


class CountedReader(MemoryReader):
    """Adds up the processor time that its calls take on the thread ``only_on``."""

    def __init__(self, only_on: str) -> None:
        super().__init__(machine_providers())
        self._only_on = only_on
        self.reads = 0
        self.thread_seconds = 0.0

    def read(self) -> MemorySnapshot:
        """One snapshot, counted."""
        if threading.current_thread().name == self._only_on:
            self.reads += 1
            # The thread's whole processor time so far, its sleeping and bookkeeping included.
            self.thread_seconds = time.thread_time()
        return super().read()


def measure(call: Callable[[], object], samples: int) -> Spread:
    """Time each of so many calls, after a tenth as many to warm up."""
    seconds = []
    for index in range(samples + samples // 10):
        started = time.perf_counter()
        call()
        if index >= samples // 10:
            seconds.append(time.perf_counter() - started)
    return Spread(statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1], samples)


def monitor_share(wall_seconds: float, hertz: float) -> tuple[float, int]:
    """Processor seconds a second of the monitor's thread, and how many samples it took meanwhile."""
    reader = CountedReader("spillway-memory-monitor")
    monitor = Monitor(reader, hertz=hertz)
    monitor.start()
    time.sleep(1.0)  # the first reading looks for drivers and control groups
    before, reads_before, started = reader.thread_seconds, reader.reads, time.perf_counter()
    time.sleep(wall_seconds)
    share = (reader.thread_seconds - before) / (time.perf_counter() - started)
    monitor.stop()
    return share, reader.reads - reads_before


def example_record(index: int) -> ImageRecord:
    """A record of usual length."""
    return ImageRecord(
        record_id=uuid.uuid4().hex, job_id=f"{index // 8:032x}", started_at=1.7e9 + index, host="standalone",
        model=f"model-{index % 5}.safetensors [0123456789]", device_name="NVIDIA GeForce RTX 3060", simulated=True,
        width=512 if index % 2 else 1024, height=512, steps=20, sampler="DPM++ 2M", seed=index, batch_size=4,
        batch_index=index % 4, profile_asked="auto", profile_used=("dedicated", "medvram", "lowvram")[index % 3],
        encode_seconds=0.1, sample_seconds=1.5, hires_seconds=None, decode_seconds=0.2, save_seconds=0.04,
        total_seconds=1.84 + index % 7 / 100, steps_per_second=10.9, warm_up=index % 50 == 0,
        peak_dedicated_bytes=3_328_599_654, peak_shared_bytes=429_496_729, estimated_dedicated_bytes=3_221_225_472,
        moved_bytes=1_234_567_890, rungs=("released caches", "decoded in tiles") if index % 20 == 0 else (),
        outcome=Outcome.DELIVERED, message=None, file_path=f"/pictures/2024-01-01/{index:06d}-{index}.png",
    )


def measure_log(folder: Path, rows: int, samples: int) -> dict[str, Spread]:
    """Appending, and the questions the panel asks, of a log that holds ``rows`` images."""
    with closing(ImageLog.open(folder / "images.db")) as log:
        for index in range(rows):
            log.append(example_record(index))
        record = example_record(rows)
        model = LogFilter(model=record.model)
        one = LogFilter(profile="medvram", model=record.model, width=512, height=512)
        names = [f"{index:06d}-{index}.png" for index in range(0, rows, max(1, rows // 50))]
        few = max(20, samples // 20)
        found = {
            "append": measure(lambda: log.append(replace(record, record_id=uuid.uuid4().hex)), samples),
            "newest_200": measure(log.records, few),
            "newest_200_of_a_model": measure(lambda: log.records(model), few),
            "newest_200_of_a_model_profile_and_size": measure(lambda: log.records(one), few),
            "count": measure(log.count, few),
            "count_of_a_model_profile_and_size": measure(lambda: log.count(one), few),
            "median_seconds": measure(lambda: log.median_seconds("medvram", record.model, 512, 512, 20), few),
            "by_50_file_names": measure(lambda: log.by_file_names(names), few),
        }
    found["open"] = measure(lambda: ImageLog.open(folder / "images.db").close(), 20)
    return found


def run(samples: int, wall_seconds: float, rows: int, hertz: float = 4.0) -> dict[str, object]:
    """Every figure, under unit-named keys."""
    read = measure(MemoryReader(machine_providers()).read, samples)
    share, reads = monitor_share(wall_seconds, hertz)
    with tempfile.TemporaryDirectory() as folder:
        log = measure_log(Path(folder), rows, samples)
    return {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "processors": psutil.cpu_count(),
        "read": vars(read),
        "monitor": {"hertz": hertz, "samples": reads, "cpu_seconds_per_second": share},
        "log_rows": rows,
        "log": {name: vars(spread) for name, spread in log.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the figures to standard output."""
    parser = argparse.ArgumentParser(prog="spillway bench overhead", description=__doc__)
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--samples", type=int, default=1000, help="of each operation (default 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="to watch the monitor for (default 10)")
    parser.add_argument("--rows", type=int, default=1000, help="images in the log (default 1000)")
    options = parser.parse_args(arguments)
    figures = run(max(20, options.samples), options.seconds, options.rows)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n" if options.json else _table(figures))
    return 0


def _table(figures: dict[str, object]) -> str:
    lines = [f"{'operation':45} {'median':>10} {'95 %':>10}"]
    read, log, monitor = figures["read"], figures["log"], figures["monitor"]
    if isinstance(read, dict) and isinstance(log, dict) and isinstance(monitor, dict):
        for name, spread in {"read": read, **{f"log {name}": spread for name, spread in log.items()}}.items():
            lines.append(f"{name:45} {spread['median_seconds'] * 1e3:7.3f} ms {spread['p95_seconds'] * 1e3:7.3f} ms")
        lines.append(f"monitor at {monitor['hertz']:g} Hz: {monitor['cpu_seconds_per_second']:.3%} of one processor")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
