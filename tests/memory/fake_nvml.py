"""A stand-in for the ``pynvml`` module. A test checks each of its names against the real one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any


class NVMLError(Exception):
    """As in pynvml: the text says what the driver answered."""


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801, N818 - the real one's name
    pass


class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801, N818
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801, N818
    pass


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801, N818
    pass


class NVMLError_ArgumentVersionMismatch(NVMLError):  # noqa: N801, N818
    pass


@dataclass
class Process:
    pid: int
    usedGpuMemory: int | None  # noqa: N815


@dataclass
class Memory:
    total: int
    free: int
    used: int
    reserved: int = 0


@dataclass
class Card:
    uuid: str
    bus_id: str = "00000000:01:00.0"
    name: str | bytes = "NVIDIA GeForce RTX 3060"
    total: int = 12 * 2**30
    free: int = 8 * 2**30
    reserved: int = 2**28
    mig: bool | None = None
    compute: list[Process] = field(default_factory=list)
    graphics: list[Process] = field(default_factory=list)

    def own(self, used: int | None) -> Card:
        """With this process among those that compute."""
        self.compute.append(Process(os.getpid(), used))
        return self


class FakeNvml:
    """A machine with these cards. ``fail`` is raised by every question about a card."""

    NVMLError = NVMLError
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_ArgumentVersionMismatch = NVMLError_ArgumentVersionMismatch
    NVML_DEVICE_MIG_ENABLE = 1
    nvmlMemory_v2 = 33554472  # noqa: N815

    def __init__(self, *cards: Card, init_error: NVMLError | None = None, old_driver: bool = False) -> None:
        self._cards = list(cards)
        self._init_error = init_error
        self._old_driver = old_driver
        self._fail: NVMLError | None = None
        self._starts = 0
        self._stops = 0
        self._versions: list[int | None] = []

    def nvmlInit(self) -> None:  # noqa: N802
        self._starts += 1
        if self._init_error is not None:
            raise self._init_error

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._stops += 1

    def nvmlSystemGetDriverVersion(self) -> str | bytes:  # noqa: N802
        return b"555.42"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        return self._cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:  # noqa: N802
        return self._pick(lambda card: card.uuid == uuid)

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> Card:  # noqa: N802, N803
        return self._pick(lambda card: card.bus_id == pciBusId)

    def _pick(self, wanted: Any) -> Card:
        for card in self._cards:
            if wanted(card):
                return card
        raise NVMLError_NotFound("Not Found")

    def nvmlDeviceGetName(self, handle: Card) -> str | bytes:  # noqa: N802
        return handle.name

    def nvmlDeviceGetMigMode(self, handle: Card) -> list[int]:  # noqa: N802
        if handle.mig is None:
            raise NVMLError_NotSupported("Not Supported")
        return [int(handle.mig), int(handle.mig)]

    def nvmlDeviceGetMemoryInfo(self, handle: Card, version: int | None = None) -> Memory:  # noqa: N802
        self._versions.append(version)
        self._check()
        if version is not None and self._old_driver:
            raise NVMLError_FunctionNotFound("Function Not Found")
        used = handle.total - handle.free
        if version is None:
            return Memory(handle.total, handle.free, used)
        return Memory(handle.total, handle.free, used - handle.reserved, handle.reserved)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Card) -> list[Process]:  # noqa: N802
        self._check()
        return handle.compute

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Card) -> list[Process]:  # noqa: N802
        self._check()
        return handle.graphics

    def _check(self) -> None:
        if self._fail is not None:
            raise self._fail
