"""The ledger is exact, refuses past the cap, and notices what is given back twice."""

from __future__ import annotations

import threading

import pytest

from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.units import GIB


def test_the_default_cap_is_the_products():
    assert SharedLedger().cap_bytes == 6 * GIB


def test_reserving_to_the_last_byte_and_not_one_more():
    ledger = SharedLedger(100)
    assert ledger.reserve(60)
    assert ledger.reserve(40)
    assert not ledger.reserve(1)
    assert ledger.reserve(0)
    assert ledger.pinned_bytes == 100
    ledger.release(40)
    assert ledger.pinned_bytes == 60
    assert not ledger.reserve(41)
    assert ledger.pinned_bytes == 60, "a refusal takes nothing"


def test_a_lowered_cap_shows_its_excess_and_grants_nothing():
    ledger = SharedLedger(100)
    ledger.reserve(80)
    ledger.set_cap(50)
    assert ledger.excess_bytes == 30
    assert not ledger.reserve(1)
    ledger.release(40)
    assert ledger.excess_bytes == 0
    assert ledger.reserve(10)


@pytest.mark.parametrize("size", [-1, 11])
def test_what_was_not_reserved_cannot_be_given_back(size):
    ledger = SharedLedger(100)
    ledger.reserve(10)
    with pytest.raises(ValueError, match="released of 10 reserved"):
        ledger.release(size)
    with pytest.raises(ValueError, match="a reservation of -1"):
        ledger.reserve(-1)
    assert ledger.pinned_bytes == 10


def test_threads_together_never_exceed_the_cap():
    ledger, granted = SharedLedger(1000), []

    def take() -> None:
        granted.extend(1 for _ in range(300) if ledger.reserve(1))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == ledger.pinned_bytes == 1000
