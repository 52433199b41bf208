"""The cost model by hand, and the choice that it makes."""

from __future__ import annotations

import itertools
import random

import pytest

from sd_webui_spillway.placement.stream.layout import FEWEST_SLOTS, Layouts, chunk_bytes_for
from sd_webui_spillway.placement.stream.simulation import Costs, residence_order, step_seconds
from sd_webui_spillway.units import GIB, MIB

NONE = frozenset()


def costs(compute, copy, sizes=None) -> Costs:
    """One visit a chunk."""
    sizes = tuple(sizes or (100,) * len(compute))
    return Costs(tuple(enumerate(compute)), dict(enumerate(copy)), sizes)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_step_is_never_shorter_than_computing_or_copying_alone(slots):
    chance = random.Random(slots)
    for _ in range(50):
        count = chance.randint(2 * slots, 12)
        one = costs([chance.random() for _ in range(count)], [chance.random() for _ in range(count)])
        compute = sum(seconds for _, seconds in one.visits)
        copy = sum(one.copy_seconds.values())
        assert step_seconds(one, NONE, slots) >= max(compute, copy) - 1e-9
        assert step_seconds(one, frozenset(range(count)), slots) == pytest.approx(compute)


def test_even_work_runs_at_the_speed_of_the_slower_side():
    assert step_seconds(costs([1] * 9, [0.5] * 9), NONE, 3) == pytest.approx(9)
    assert step_seconds(costs([0.5] * 9, [1] * 9), NONE, 3) == pytest.approx(9)


def test_a_last_chunk_in_the_first_ones_slot_delays_the_next_pass():
    assert step_seconds(costs([1] * 8, [1] * 8), NONE, 2) == pytest.approx(8)
    assert step_seconds(costs([1] * 9, [1] * 9), NONE, 2) == pytest.approx(10)


def test_what_fits_in_the_slots_is_never_copied_again():
    assert step_seconds(costs([1, 1, 1], [50, 50, 50]), NONE, 3) == pytest.approx(3)


def test_a_chunk_that_is_visited_twice_counts_twice():
    one = Costs(((0, 1.0), (1, 1.0), (0, 1.0), (2, 1.0)), {0: 0.0, 1: 0.0, 2: 0.0}, (1, 1, 1))
    assert step_seconds(one, NONE, 2) == pytest.approx(4)


def test_greedy_is_close_to_the_best_choice():
    chance = random.Random(7)
    for _ in range(20):
        one = costs([chance.random() for _ in range(8)], [chance.random() * 2 for _ in range(8)])
        order = list(residence_order(one, 2))
        assert sorted(order) == list(range(8))
        for kept in (2, 4):
            best = min(step_seconds(one, frozenset(choice), 2) for choice in itertools.combinations(range(8), kept))
            assert step_seconds(one, frozenset(order[:kept]), 2) <= 1.25 * best


def test_weights_in_the_middle_and_compute_at_the_ends_keeps_the_middle():
    """As SDXL's UNet is: an even spread would starve the middle."""
    one = costs([6, 6, 1, 1, 1, 1, 6, 6], [3] * 8)
    kept = set(list(residence_order(one, 3))[:2])
    assert kept <= {2, 3, 4, 5}
    assert step_seconds(one, frozenset(kept), 3) < step_seconds(one, frozenset({0, 4}), 3)


def test_before_it_is_measured_only_what_costs_nothing_stays():
    sizes = (100, 1000, 100, 100, 100)
    unmeasured = Costs((), {}, sizes)
    assert list(residence_order(unmeasured, 3)) == [1], "three slots of 1000 would cost more than keeping it"
    layouts = Layouts(unmeasured, 3)
    assert layouts.within(0).resident == {1}
    assert layouts.floor_bytes == 1000 + 2 * 100
    assert layouts.step_seconds(layouts.within(0)) is None


def test_a_budget_is_filled_and_never_exceeded_above_the_floor():
    one = costs([1] * 10, [1] * 10, [100] * 10)
    layouts = Layouts(one, 3)
    assert layouts.floor_bytes == FEWEST_SLOTS * 100
    before = None
    for budget in range(200, 1300, 50):
        layout = layouts.within(budget)
        assert layout.card_bytes <= budget
        seconds = layouts.step_seconds(layout)
        assert before is None or seconds <= before + 1e-9
        before = seconds
    assert layouts.within(10**9).resident == set(range(10))
    assert layouts.within(250).slots == FEWEST_SLOTS


def test_chunks_are_from_32_to_96_mib():
    assert chunk_bytes_for(100 * MIB) == 32 * MIB
    assert 60 * MIB < chunk_bytes_for(int(5.13 * 10**9)) < 65 * MIB
    assert chunk_bytes_for(22 * GIB) == 96 * MIB


def test_planning_a_model_of_flux_size_takes_seconds():
    chance = random.Random(1)
    one = costs([chance.random() / 300 for _ in range(250)], [0.0018] * 250)
    assert len(list(residence_order(one, 3))) == 250
