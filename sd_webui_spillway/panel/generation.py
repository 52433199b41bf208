"""Running a job behind the generate button: pictures appear as they are finished, and an error is a sentence."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import SpillwayError, first_line
from ..host_port import ImageRequest, JobResult
from ..session import Session
from ..timing.log_rows import LogFilter
from .form import FIELDS, request_from
from .messages import error_markup, notice_markup, result_sentences
from .pictures import Pictures

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.4
Unchanged = Callable[[], Any]


class _Worker(threading.Thread):
    """The thread that makes the images; it goes on when the page that asked for them is closed."""

    def __init__(self, session: Session, request: ImageRequest) -> None:
        super().__init__(name="spillway-job", daemon=True)
        self._session = session
        self._request = request
        self.result: JobResult | None = None
        self.error: SpillwayError | None = None

    def run(self) -> None:
        try:
            self.result = self._session.generate(self._request)
        except SpillwayError as error:
            self.error = error
        except Exception as error:
            logger.exception("the job failed in a way nobody foresaw")
            detail = f"{type(error).__name__}: {first_line(error)}"
            self.error = SpillwayError("The job failed for a reason this program does not know.", detail=detail)


class Generation:
    """The two events of the panel's buttons, over a session. ``unchanged`` makes gradio's "leave it as it is"."""

    def __init__(self, session: Session, pictures: Pictures, unchanged: Unchanged) -> None:
        self._session = session
        self._pictures = pictures
        self._unchanged = unchanged

    def generate(self, *values: Any) -> Iterator[tuple[Any, str]]:
        """Yields (gallery, message): the pictures so far while the job runs, then all of them and what to say."""
        try:
            request = request_from(dict(zip(FIELDS, values, strict=True)), secrets.randbits(32))
        except SpillwayError as error:
            yield self._unchanged(), error_markup(error)
            return
        yield self._unchanged(), ""
        worker = _Worker(self._session, request)
        worker.start()
        shown = 0
        while worker.is_alive():
            worker.join(_LOOK_SECONDS)
            finished = self._finished_so_far(shown) if worker.is_alive() else []
            if finished:
                shown = len(finished)
                yield self._pictures.servable(finished), ""
        yield self._end(worker)

    def stop(self) -> str:
        """Ask the job to end; says so where there is none."""
        return "" if self._session.stop() else notice_markup(["No job is running."])

    def last_pictures(self) -> list[str]:
        """What the last job made, for a page that was opened or loaded again after it."""
        last = self._session.last_job()
        return self._pictures.servable(last.paths) if last else []

    def _finished_so_far(self, shown: int) -> list[Path]:
        progress = self._session.progress()
        if progress is None or progress.image_index <= shown:
            return []
        try:
            records = self._session.log.records(LogFilter(job_id=progress.job_id), limit=progress.image_count, offset=0)
        except SpillwayError:
            return []  # The log's own trouble is told once, with the job's result.
        return [Path(record.file_path) for record in reversed(records) if record.file_path]

    def _end(self, worker: _Worker) -> tuple[Any, str]:
        if worker.error is not None:
            return self._unchanged(), error_markup(worker.error)
        if worker.result is None:
            return self._unchanged(), ""
        return self._pictures.servable(worker.result.paths), notice_markup(result_sentences(worker.result))
