"""The chain of providers: the first that knows wins, and unknown always has a reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sd_webui_spillway.memory import MemoryReader, MemorySnapshot, machine_providers
from sd_webui_spillway.memory.snapshot import FIGURES, Reading, Value
from sd_webui_spillway.memory.torch_stats import TorchProvider, torch_device_uuid


class Says:
    """A provider that always says the same."""

    def __init__(self, name: str, values: Mapping[str, Value], unknown: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._reading = Reading(values, unknown or {})

    def read(self) -> Reading:
        return self._reading


class Breaks:
    """A provider that fails the way the test says, or answers."""

    name = "fragile"

    def __init__(self) -> None:
        self.error: Exception | None = None

    def read(self) -> Reading:
        if self.error is not None:
            raise self.error
        return Reading({"dedicated_used_bytes": 7})


def test_the_first_provider_that_knows_a_figure_wins() -> None:
    snapshot = MemoryReader([
        Says("a", {"dedicated_total_bytes": 10}, {"dedicated_process_bytes": "a cannot"}),
        Says("b", {"dedicated_total_bytes": 99, "dedicated_process_bytes": 0, "device_name": "card"}),
        Says("c", {"dedicated_process_bytes": 5, "device_name": "other"}),
    ]).read()
    assert snapshot.dedicated_total_bytes == 10
    assert snapshot.dedicated_process_bytes == 0  # zero is known
    assert snapshot.device_name == "card"
    assert "dedicated_process_bytes" not in snapshot.unknown_because


def test_what_nobody_knows_is_none_with_the_first_reason_given() -> None:
    snapshot = MemoryReader([
        Says("a", {}, {"dedicated_used_bytes": "a has no driver"}), Says("b", {}, {"dedicated_used_bytes": "b neither"})
    ]).read()
    assert snapshot.dedicated_used_bytes is None
    assert snapshot.unknown_because["dedicated_used_bytes"] == "a has no driver"
    assert set(snapshot.unknown_because) == set(FIGURES)
    assert all(snapshot.unknown_because.values())


def test_sums_are_unknown_when_a_part_is() -> None:
    assert MemorySnapshot(0.0, shared_pinned_bytes=5).shared_used_bytes is None
    assert MemorySnapshot(0.0, shared_pinned_bytes=5, shared_spilled_bytes=0).shared_used_bytes == 5
    assert MemorySnapshot(0.0, dedicated_total_bytes=5).dedicated_free_bytes is None
    assert MemorySnapshot(0.0, dedicated_total_bytes=5, dedicated_used_bytes=9).dedicated_free_bytes == 0


def test_a_provider_that_raises_costs_its_own_figures_only_and_is_logged_once_for_each_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fragile = Breaks()
    reader = MemoryReader([fragile, Says("b", {"ram_total_bytes": 3})])
    assert reader.read().dedicated_used_bytes == 7
    for error in (OSError("gone"), OSError("gone again"), ZeroDivisionError()):
        fragile.error = error
        snapshot = reader.read()
        assert snapshot.dedicated_used_bytes is None
        assert snapshot.ram_total_bytes == 3
        assert snapshot.unknown_because["dedicated_used_bytes"].startswith("fragile failed: ")
    assert "gone" in caplog.text
    assert len(caplog.records) == 2
    fragile.error = None
    assert reader.read().dedicated_used_bytes == 7


def test_another_provider_stands_in_for_one_that_raises() -> None:
    fragile = Breaks()
    fragile.error = RuntimeError("never worked")
    snapshot = MemoryReader([fragile, Says("b", {"dedicated_used_bytes": 4})]).read()
    assert snapshot.dedicated_used_bytes == 4
    assert snapshot.unknown_because["ram_total_bytes"] == "fragile failed: never worked"


def test_a_name_that_is_no_figure_is_passed_over() -> None:
    assert MemoryReader([Says("a", {"nonsense": 1, "ram_total_bytes": 2})]).read().ram_total_bytes == 2


def test_this_machine_s_chain_knows_ram_and_gives_reasons_for_the_rest() -> None:
    snapshot = MemoryReader(machine_providers(pinned_bytes=lambda: 11)).read()
    assert snapshot.ram_total_bytes
    assert snapshot.ram_used_bytes
    assert snapshot.shared_pinned_bytes == 11
    for figure in FIGURES:
        assert (getattr(snapshot, figure) is None) == (figure in snapshot.unknown_because)


class FakeProperties:
    name = "a card"
    uuid = "0123-abcd"


class FakeCuda:
    """As much of ``torch.cuda`` as is asked; counts what would start CUDA."""

    def __init__(self, started: bool) -> None:
        self.started = started
        self.asked = 0
        self.error: RuntimeError | None = None

    def is_initialized(self) -> bool:
        return self.started

    def _touch(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error

    def mem_get_info(self, device: int) -> tuple[int, int]:
        self._touch()
        return 30, 100

    def memory_reserved(self, device: int) -> int:
        self._touch()
        return 20

    def get_device_properties(self, device: int) -> FakeProperties:
        self._touch()
        return FakeProperties()


class FakeTorch:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda


def test_torch_s_figures() -> None:
    torch = FakeTorch(FakeCuda(started=True))
    assert TorchProvider(0, lambda: 0.5, lambda: torch).read().values == {
        "device_name": "a card", "dedicated_total_bytes": 100, "dedicated_limit_bytes": 50, "dedicated_used_bytes": 70,
        "dedicated_process_bytes": 20,
    }
    assert torch_device_uuid(0, lambda: torch) == "GPU-0123-abcd"


def test_torch_is_never_made_to_start_cuda() -> None:
    torch = FakeTorch(FakeCuda(started=False))
    reading = TorchProvider(torch=lambda: torch).read()
    assert reading.values == {}
    assert reading.unknown_because["dedicated_total_bytes"] == "CUDA is not in use by this process"
    assert torch_device_uuid(0, lambda: torch) is None
    assert torch.cuda.asked == 0


@pytest.mark.parametrize(("torch", "words"), [(None, "not loaded"), (object(), "not in use")])
def test_torch_that_is_missing_or_still_being_imported(torch: object, words: str) -> None:
    assert words in TorchProvider(torch=lambda: torch).read().unknown_because["dedicated_used_bytes"]
    assert torch_device_uuid(0, lambda: torch) is None


def test_a_cuda_error_makes_torch_s_figures_unknown() -> None:
    torch = FakeTorch(FakeCuda(started=True))
    torch.cuda.error = RuntimeError("CUDA error: unspecified launch failure\nand much more")
    reading = TorchProvider(torch=lambda: torch).read()
    assert reading.unknown_because["dedicated_used_bytes"] == "torch: CUDA error: unspecified launch failure"


def test_the_fake_has_only_what_torch_has() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    for name in ("is_initialized", "mem_get_info", "memory_reserved", "get_device_properties"):
        assert callable(getattr(torch.cuda, name))


def test_memory_and_timing_load_and_read_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None  # any import of it fails
import sd_webui_spillway.memory, sd_webui_spillway.timing, sd_webui_spillway.timing.export, sd_webui_spillway.session
from sd_webui_spillway.memory import MemoryReader, machine_providers
assert "pynvml" not in sys.modules
assert MemoryReader(machine_providers()).read().ram_total_bytes
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=60)
