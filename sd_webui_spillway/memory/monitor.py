"""A thread that reads memory a few times a second, keeps two minutes of it, and tells peaks."""

from __future__ import annotations

import math
import threading
from collections import deque
from types import TracebackType

from .snapshot import FIGURES, MemoryReader, MemorySnapshot

MIN_HERTZ, MAX_HERTZ = 0.5, 10.0
_WATCHED = (*FIGURES, "shared_used_bytes")


class PeakWatch:
    """The highest figures while it was open, from a sample at enter, one at exit and the monitor's in between.

    What rises and falls between two samples is not seen: an allocator's own peak counter sees more of its process.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._peaks: dict[str, int] = {}

    def __enter__(self) -> PeakWatch:
        self._monitor._open_watch(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._monitor._close_watch(self)

    def peak(self, figure: str) -> int | None:
        """The highest value in bytes of a snapshot's figure (or ``shared_used_bytes``); ``None`` if never known.

        Raises:
            KeyError: there is no such figure.
        """
        if figure not in _WATCHED:
            raise KeyError(figure)
        return self._peaks.get(figure)

    def add(self, snapshot: MemorySnapshot) -> None:
        """Take one more sample into account."""
        for figure in _WATCHED:
            value = getattr(snapshot, figure)
            if value is not None and value > self._peaks.get(figure, -1):
                self._peaks[figure] = value


class Monitor:
    """Samples a reader at ``hertz`` (0.5 to 10 a second) on a daemon thread. Every method is safe from any thread."""

    def __init__(self, reader: MemoryReader, hertz: float = 4.0, history_seconds: float = 120.0) -> None:
        self._reader = reader
        self.hertz = min(max(hertz, MIN_HERTZ), MAX_HERTZ)
        self._lock = threading.Lock()
        self._history: deque[MemorySnapshot] = deque(maxlen=max(1, math.ceil(self.hertz * history_seconds)))
        self._latest: MemorySnapshot | None = None
        self._watches: list[PeakWatch] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def running(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        """Begin sampling; a running monitor goes on as it is."""
        with self._lock:
            if self.running:
                return
            # An event of its own: a thread told to stop must not be woken up to go on by the next one's start.
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="spillway-memory-monitor", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. The history stays."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def latest(self) -> MemorySnapshot:
        """The newest sample, at most one interval old; read now if the thread is not running or has none yet."""
        latest = self._latest
        return latest if latest is not None and self.running else self._sample()

    def history(self) -> tuple[MemorySnapshot, ...]:
        """The thread's samples of the last ``history_seconds``, oldest first."""
        with self._lock:
            return tuple(self._history)

    def watch(self) -> PeakWatch:
        """Tells the peaks of what is done inside ``with monitor.watch() as peaks``; several may be open at once."""
        return PeakWatch(self)

    def _open_watch(self, watch: PeakWatch) -> None:
        with self._lock:
            self._watches.append(watch)
        self._sample()

    def _close_watch(self, watch: PeakWatch) -> None:
        self._sample()
        with self._lock:
            self._watches.remove(watch)

    def _sample(self, keep: bool = False) -> MemorySnapshot:
        # Read outside the lock: a driver that hangs must not hang those who only want the history.
        snapshot = self._reader.read()
        with self._lock:
            self._latest = snapshot
            if keep:
                self._history.append(snapshot)
            for watch in self._watches:
                watch.add(snapshot)
        return snapshot

    def _run(self, stop: threading.Event) -> None:
        while True:
            self._sample(keep=True)
            if stop.wait(1 / self.hertz):
                return
