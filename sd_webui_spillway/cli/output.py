"""How the command line shows things: tables and the progress of a job."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..host_port import JobProgress
from ..session import Session
from ..timing import ImageRecord, table_rows
from ..timing.summary import TABLE_COLUMNS
from ..units import format_seconds

REFRESH_SECONDS = 0.2


def console() -> Console:
    """Standard output."""
    return _wide_enough(stderr=False)


def errors_console() -> Console:
    """Standard error: progress and notices, so that standard output holds results only."""
    return _wide_enough(stderr=True)


def image_table(records: Iterable[ImageRecord]) -> Table:
    """One row an image. Rungs that several images of a batch share are written once, numbered, under the table."""
    rows = table_rows(records)
    numbers: dict[str, int] = {}
    table = Table(title="What every image cost (seconds)", title_justify="left")
    for column in TABLE_COLUMNS:
        table.add_column(column, justify="left" if column in ("profile", "rungs", "outcome") else "right")
    for row in rows:
        taken = [numbers.setdefault(rung, len(numbers) + 1) for rung in row["rungs"].split("; ") if rung != "–"]
        row["rungs"] = ", ".join(map(str, taken)) or "–"
        table.add_row(*(row[column] for column in TABLE_COLUMNS))
    if numbers:
        table.caption = "\n".join(f"{number}: {rung}" for rung, number in numbers.items())
        table.caption_justify = "left"
    return table


@contextmanager
def shown_progress(session: Session) -> Iterator[None]:
    """While open, the session's running job is shown on standard error, each rung as it is taken."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=errors_console(), transient=True) as progress:
        task = progress.add_task("preparing", total=None, words="")
        shown: list[str] = []

        def follow() -> None:
            while not ended.wait(REFRESH_SECONDS):
                job = session.progress()
                if job is None:
                    continue
                for rung in job.rungs[len(shown) :]:
                    shown.append(rung)
                    progress.console.print(f"  {rung}")
                done = job.image_index
                progress.update(task, description=job.stage, completed=done, total=job.image_count, words=_words(job))

        thread = threading.Thread(target=follow, name="spillway-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _words(job: JobProgress) -> str:
    parts = [f"image {min(job.image_index + 1, job.image_count)} of {job.image_count}"]
    if job.stage == "sample":
        parts.append(f"step {job.step} of {job.step_count}")
    if job.seconds_per_image is not None:
        parts.append(f"{format_seconds(job.seconds_per_image)} an image")
    if job.remaining_seconds is not None:
        parts.append(f"{format_seconds(job.remaining_seconds)} left")
    parts.append(job.profile)
    return " · ".join(parts)


def _wide_enough(*, stderr: bool) -> Console:
    """Piped, no table is cut and no sentence is broken."""
    plain = Console(stderr=stderr, highlight=False)
    return plain if plain.is_terminal else Console(stderr=stderr, highlight=False, width=200)
