"""The stopwatch: no second is counted twice, none is lost inside a stage."""

from __future__ import annotations

import pytest

from sd_webui_spillway.timing import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_inner_stage_pauses_the_outer() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 1
    with watch.stage("sample"):
        clock.now += 2
        with watch.stage("encode"):
            clock.now += 4
            with watch.stage("decode"):
                clock.now += 8
            clock.now += 16
        clock.now += 32
    clock.now += 64
    assert watch.seconds == {"sample": 34, "encode": 20, "decode": 8}
    assert list(watch.seconds) == ["sample", "encode", "decode"]
    assert watch.elapsed() == 127


def test_a_stage_entered_again_adds_up_also_inside_itself() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    for _ in range(3):
        with watch.stage("decode"):
            clock.now += 1
            with watch.stage("decode"):
                clock.now += 1
    assert watch.seconds == {"decode": 6}


def test_a_stage_that_fails_is_counted_and_closed() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    def fails() -> None:
        with watch.stage("sample"), watch.stage("encode"):
            clock.now += 2
            raise MemoryError

    with pytest.raises(MemoryError):
        fails()
    clock.now += 5
    with watch.stage("save"):
        clock.now += 1
    assert watch.seconds == {"sample": 0, "encode": 2, "save": 1}


def test_the_device_is_waited_for_at_every_boundary() -> None:
    """Work that is queued in one stage and done later counts for the stage that queued it."""
    clock = Clock()
    queued = 0.0

    def synchronize() -> None:
        nonlocal queued
        clock.now += queued
        queued = 0.0

    watch = Stopwatch(clock, synchronize)
    with watch.stage("sample"):
        queued += 5
        with watch.stage("encode"):
            queued += 3
        queued += 2
    assert watch.seconds == {"sample": 7, "encode": 3}
    assert watch.elapsed() == 10


def test_a_device_that_fails_at_a_boundary_leaves_the_stages_in_order() -> None:
    clock = Clock()
    broken = False

    def synchronize() -> None:
        if broken:
            raise RuntimeError("device lost")

    watch = Stopwatch(clock, synchronize)

    def fails() -> None:
        nonlocal broken
        with watch.stage("sample"):
            clock.now += 3
            broken = True

    with pytest.raises(RuntimeError, match="device lost"):
        fails()
    broken = False
    with watch.stage("save"):
        clock.now += 1
    assert watch.seconds == {"sample": 3, "save": 1}


def test_the_seconds_cannot_be_written_from_outside() -> None:
    watch = Stopwatch(Clock())
    with pytest.raises(TypeError):
        watch.seconds["sample"] = 1.0  # type: ignore[index]
