"""The word of the meter."""

from __future__ import annotations

import pytest

from sd_webui_spillway.host_port import JobProgress
from sd_webui_spillway.memory.snapshot import MemorySnapshot
from sd_webui_spillway.panel.state import RECOVERING_SECONDS, MemoryState, RecoveryWatch, memory_state
from sd_webui_spillway.units import GIB, MIB


def snapshot(**figures: int | None) -> MemorySnapshot:
    return MemorySnapshot(taken_at=0.0, **{"dedicated_total_bytes": 10 * GIB, **figures})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"dedicated_used_bytes": 5 * GIB}, MemoryState.COMFORTABLE),
        ({"dedicated_used_bytes": 9 * GIB - 1}, MemoryState.COMFORTABLE),
        ({"dedicated_used_bytes": 9 * GIB}, MemoryState.NEAR_THE_EDGE),
        ({"dedicated_used_bytes": 0}, MemoryState.COMFORTABLE),
        ({"dedicated_used_bytes": None}, MemoryState.UNKNOWN),
        ({"dedicated_used_bytes": 5 * GIB, "dedicated_total_bytes": None}, MemoryState.UNKNOWN),
        ({"dedicated_used_bytes": 5 * GIB, "shared_spilled_bytes": GIB}, MemoryState.SPILLING),
        ({"dedicated_used_bytes": 5 * GIB, "shared_spilled_bytes": 30 * MIB}, MemoryState.COMFORTABLE),
        ({"dedicated_used_bytes": None, "shared_spilled_bytes": GIB}, MemoryState.SPILLING),
    ],
)
def test_the_word_follows_from_the_figures(figures, word):
    assert memory_state(snapshot(**figures), 0.9) is word


def test_a_limit_of_our_own_counts_as_an_edge_too():
    tight = snapshot(
        dedicated_used_bytes=4 * GIB, dedicated_process_bytes=int(3.8 * GIB), dedicated_limit_bytes=4 * GIB
    )
    assert memory_state(tight, 0.9) is MemoryState.NEAR_THE_EDGE


def test_recovering_goes_before_everything_else():
    assert memory_state(snapshot(dedicated_used_bytes=None), 0.9, recovering=True) is MemoryState.RECOVERING


def progress(job_id: str, *rungs: str) -> JobProgress:
    return JobProgress(
        job_id=job_id, image_index=0, image_count=4, stage="sample", step=1, step_count=2, profile="medvram",
        elapsed_seconds=1.0, remaining_seconds=None, seconds_per_image=None, rungs=rungs,
    )


def test_recovering_lasts_a_while_after_each_rung_and_ends_with_the_job():
    now = [100.0]
    watch = RecoveryWatch(clock=lambda: now[0])
    assert not watch.recovering(None)
    assert not watch.recovering(progress("a"))
    assert watch.recovering(progress("a", "caches released"))
    now[0] += RECOVERING_SECONDS - 0.1
    assert watch.recovering(progress("a", "caches released"))
    now[0] += 0.2
    assert not watch.recovering(progress("a", "caches released"))
    assert watch.recovering(progress("a", "caches released", "now medvram"))
    assert not watch.recovering(None)
    assert not watch.recovering(progress("b"))
    assert watch.recovering(progress("c", "caches released"))
