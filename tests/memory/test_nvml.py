"""NVML: the right card, no figure invented, one start, one line in the log for each trouble."""

from __future__ import annotations

import inspect
import logging
import os
import threading

import pytest

from sd_webui_spillway.memory.nvml import NvmlProvider, driver_version
from tests.memory import fake_nvml
from tests.memory.fake_nvml import Card, FakeNvml, NVMLError_GpuIsLost, NVMLError_LibraryNotFound, Process

GIB = 2**30


def provider(nvml: FakeNvml, device_id: str | None = None, fraction: float = 1.0) -> NvmlProvider:
    return NvmlProvider(lambda: device_id, lambda: fraction, lambda: nvml)


def test_every_name_of_the_fake_is_in_the_real_module() -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    names = [name for name in dir(FakeNvml) if not name.startswith("_")]
    assert "nvmlInit" in names
    assert [name for name in names if not hasattr(pynvml, name)] == []
    errors = [name for name in dir(fake_nvml) if name.startswith("NVMLError")]
    # The real module makes its error classes from its NVML_ERROR_ constants.
    assert [name for name in errors if not issubclass(getattr(pynvml, name), pynvml.NVMLError)] == []
    for name in ("NVML_DEVICE_MIG_ENABLE", "nvmlMemory_v2"):
        assert getattr(pynvml, name) == getattr(FakeNvml, name)
    assert "version" in inspect.signature(pynvml.nvmlDeviceGetMemoryInfo).parameters
    assert {"total", "free", "used", "reserved"} <= {name for name, _ in pynvml.c_nvmlMemory_v2_t._fields_}
    assert {"pid", "usedGpuMemory"} <= {name for name, _ in pynvml.c_nvmlProcessInfo_v3_t._fields_}


def test_the_drivers_version_and_none_where_there_is_no_driver() -> None:
    def missing() -> FakeNvml:
        raise ImportError

    assert driver_version(lambda: FakeNvml(Card("GPU-1"))) == "555.42"
    assert driver_version(lambda: FakeNvml(init_error=NVMLError_LibraryNotFound("Not Found"))) is None
    assert driver_version(missing) is None


def test_a_card_s_figures() -> None:
    reading = provider(FakeNvml(Card("GPU-1").own(3 * GIB)), fraction=0.5).read()
    assert reading.values == {
        "device_name": "NVIDIA GeForce RTX 3060",
        "dedicated_total_bytes": 12 * GIB,
        "dedicated_limit_bytes": 6 * GIB,
        "dedicated_used_bytes": 4 * GIB,
        "dedicated_process_bytes": 3 * GIB,
    }
    assert reading.unknown_because == {}


def test_used_counts_the_driver_s_reserve_with_old_drivers_and_new() -> None:
    new, old = FakeNvml(Card("GPU-1")), FakeNvml(Card("GPU-1"), old_driver=True)
    for nvml in (new, old):
        assert provider(nvml).read().values["dedicated_used_bytes"] == 4 * GIB
    asked = provider(old)
    old._versions.clear()
    asked.read()
    asked.read()
    assert old._versions == [FakeNvml.nvmlMemory_v2, None, None]
    assert new._versions == [FakeNvml.nvmlMemory_v2]


def test_the_own_process_is_picked_and_counted_once_though_in_both_lists() -> None:
    card = Card("GPU-1", compute=[Process(1, GIB)], graphics=[Process(os.getpid(), 2 * GIB)]).own(2 * GIB)
    assert provider(FakeNvml(card)).read().values["dedicated_process_bytes"] == 2 * GIB


def test_not_available_under_wddm_is_unknown_and_not_zero() -> None:
    reading = provider(FakeNvml(Card("GPU-1").own(None))).read()
    assert "dedicated_process_bytes" not in reading.values
    assert "Windows and WSL2" in reading.unknown_because["dedicated_process_bytes"]
    assert reading.values["dedicated_used_bytes"] == 4 * GIB


def test_a_process_that_is_not_listed_is_unknown_and_not_zero() -> None:
    reading = provider(FakeNvml(Card("GPU-1", compute=[Process(1, GIB)]))).read()
    assert "dedicated_process_bytes" not in reading.values
    assert "does not list this process" in reading.unknown_because["dedicated_process_bytes"]


@pytest.mark.parametrize("device_id", ["GPU-b", "b", "00000000:02:00.0"])
def test_the_card_is_found_by_uuid_or_bus_and_not_by_order(device_id: str) -> None:
    nvml = FakeNvml(Card("GPU-a", total=1), Card("GPU-b", "00000000:02:00.0", name=b"the second"))
    reading = provider(nvml, device_id).read()
    assert reading.values["device_name"] == "the second"
    assert reading.values["dedicated_total_bytes"] == 12 * GIB


def test_of_several_cards_none_is_guessed_and_the_choice_is_taken_up_later() -> None:
    chosen: list[str | None] = [None]
    nvml = FakeNvml(Card("GPU-a"), Card("GPU-b", name="the second"))
    asked = NvmlProvider(lambda: chosen[0], load=lambda: nvml)
    assert asked.read().values == {}
    assert "which card" in asked.read().unknown_because["dedicated_total_bytes"]
    chosen[0] = "GPU-b"
    assert asked.read().values["device_name"] == "the second"


def test_a_card_that_is_not_there_is_unknown() -> None:
    asked = provider(FakeNvml(Card("GPU-a")), "GPU-x")
    for _ in range(2):
        reading = asked.read()
        assert reading.values == {}
        assert "Not Found" in reading.unknown_because["dedicated_total_bytes"]


@pytest.mark.parametrize(("card", "device_id"), [(Card("GPU-a", mig=True), None), (Card("MIG-a"), "MIG-a")])
def test_a_divided_card_is_named_and_its_figures_are_unknown(card: Card, device_id: str | None) -> None:
    reading = provider(FakeNvml(card), device_id).read()
    assert set(reading.values) == {"device_name"}
    assert "MIG" in reading.unknown_because["dedicated_used_bytes"]


def test_no_driver_is_asked_once_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    nvml = FakeNvml(init_error=NVMLError_LibraryNotFound("NVML Shared Library Not Found"))
    asked = provider(nvml)
    reasons = {asked.read().unknown_because["dedicated_total_bytes"] for _ in range(3)}
    assert reasons == {"there is no NVIDIA driver to ask (NVML Shared Library Not Found)"}
    assert nvml._starts == 1
    assert len(caplog.records) == 1
    asked.close()
    assert nvml._stops == 0


def test_without_nvidia_ml_py_everything_is_unknown() -> None:
    def load() -> object:
        raise ModuleNotFoundError("No module named 'pynvml'")

    reading = NvmlProvider(load=load).read()
    assert reading.values == {}
    assert set(reading.unknown_because.values()) == {"nvidia-ml-py is not installed"}


def test_a_lost_card_is_said_once_and_its_return_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    nvml = FakeNvml(Card("GPU-1").own(GIB))
    asked = provider(nvml)
    asked.read()
    nvml._fail = NVMLError_GpuIsLost("GPU is lost")
    for _ in range(3):
        assert asked.read().values == {}
    assert asked.read().unknown_because["dedicated_used_bytes"] == "NVML: GPU is lost"
    assert len(caplog.records) == 1
    nvml._fail = None
    assert asked.read().values["dedicated_process_bytes"] == GIB


def test_many_threads_start_it_once_and_close_ends_it() -> None:
    nvml = FakeNvml(Card("GPU-1"))
    asked = provider(nvml)
    threads = [threading.Thread(target=asked.read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nvml._starts == 1
    asked.close()
    asked.close()
    assert nvml._stops == 1
    assert asked.read().unknown_because["dedicated_total_bytes"] == "NVML is closed"


def test_nothing_is_started_before_the_first_reading() -> None:
    nvml = FakeNvml(Card("GPU-1"))
    provider(nvml)
    assert nvml._starts == 0
