"""The monitor's thread: bounded, stoppable, not to be killed by a provider, and it tells peaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from sd_webui_spillway.memory import MemoryReader, Monitor
from sd_webui_spillway.memory.snapshot import Reading


class Gauge:
    """A provider whose figure the test sets."""

    name = "gauge"

    def __init__(self) -> None:
        self.used: int | None = 1
        self.error: Exception | None = None
        self.reads = 0

    def read(self) -> Reading:
        self.reads += 1
        if self.error is not None:
            raise self.error
        if self.used is None:
            return Reading()
        return Reading({
            "dedicated_process_bytes": self.used, "shared_pinned_bytes": 10 * self.used, "shared_spilled_bytes": 1
        })


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited 10 s in vain"
        time.sleep(0.005)


def monitor_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "spillway-memory-monitor"]


def test_it_samples_until_stopped_and_starting_twice_is_once(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=10)
    monitor.start()
    monitor.start()
    assert len(monitor_threads()) == 1
    assert monitor_threads()[0].daemon
    wait_for(lambda: len(monitor.history()) >= 3)
    monitor.stop()
    monitor.stop()
    assert monitor_threads() == []
    reads, length = gauge.reads, len(monitor.history())
    time.sleep(0.25)
    assert gauge.reads == reads
    assert len(monitor.history()) == length
    monitor.start()
    wait_for(lambda: len(monitor.history()) > length)
    monitor.stop()


def test_stopping_is_at_once_and_not_at_the_next_sample(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=0.5)
    monitor.start()
    wait_for(monitor.history)
    started = time.monotonic()
    monitor.stop()
    assert time.monotonic() - started < 1.5


def test_latest_is_the_thread_s_and_reads_at_once_where_there_is_none(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=0.5)
    assert monitor.latest().dedicated_process_bytes == 1
    gauge.used = 2
    assert monitor.latest().dedicated_process_bytes == 2
    monitor.start()
    wait_for(monitor.history)
    gauge.used = 3
    assert monitor.latest().dedicated_process_bytes == 2
    monitor.stop()
    assert monitor.latest().dedicated_process_bytes == 3


@pytest.mark.parametrize(("asked", "given"), [(0.001, 0.5), (4.0, 4.0), (1000.0, 10.0)])
def test_the_rate_has_bounds(gauge: Gauge, asked: float, given: float) -> None:
    assert Monitor(MemoryReader([gauge]), hertz=asked).hertz == given


def test_the_history_is_bounded_and_in_order(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=10, history_seconds=0.3)
    monitor.start()
    wait_for(lambda: gauge.reads >= 6)
    monitor.stop()
    times = [snapshot.taken_at for snapshot in monitor.history()]
    assert len(times) == 3
    assert times == sorted(times)


def test_a_provider_that_raises_does_not_end_it(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=10)
    gauge.error = RuntimeError("driver gone")
    monitor.start()
    wait_for(lambda: len(monitor.history()) >= 2)
    assert "driver gone" in monitor.latest().unknown_because["dedicated_process_bytes"]
    gauge.error = None
    wait_for(lambda: monitor.latest().dedicated_process_bytes == 1)
    monitor.stop()


def test_peaks_hold_the_samples_at_enter_and_at_exit_without_a_thread(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]))
    gauge.used = 9
    with monitor.watch() as peaks:
        gauge.used = 4
    assert peaks.peak("dedicated_process_bytes") == 9
    with monitor.watch() as peaks:
        gauge.used = 5
    assert peaks.peak("dedicated_process_bytes") == 5
    assert peaks.peak("shared_used_bytes") == 51
    gauge.used = 100
    monitor.latest()
    assert peaks.peak("dedicated_process_bytes") == 5


def test_peaks_hold_what_the_thread_saw_in_between(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]), hertz=10)
    monitor.start()
    with monitor.watch() as outer:
        gauge.used = 50
        seen = gauge.reads
        wait_for(lambda: gauge.reads >= seen + 2)
        gauge.used = 2
        wait_for(lambda: monitor.latest().dedicated_process_bytes == 2)
        with monitor.watch() as inner:
            pass
    monitor.stop()
    assert outer.peak("dedicated_process_bytes") == 50
    assert inner.peak("dedicated_process_bytes") == 2


def test_peaks_are_told_also_after_an_error(gauge: Gauge) -> None:
    monitor = Monitor(MemoryReader([gauge]))
    watch = monitor.watch()

    def fails() -> None:
        with watch:
            gauge.used = 8
            raise MemoryError

    with pytest.raises(MemoryError):
        fails()
    assert watch.peak("dedicated_process_bytes") == 8


def test_a_peak_that_was_never_known_is_unknown_and_a_wrong_name_an_error(gauge: Gauge) -> None:
    gauge.used = None
    with Monitor(MemoryReader([gauge])).watch() as peaks:
        pass
    assert peaks.peak("dedicated_process_bytes") is None
    assert peaks.peak("shared_used_bytes") is None
    with pytest.raises(KeyError):
        peaks.peak("dedicated")
