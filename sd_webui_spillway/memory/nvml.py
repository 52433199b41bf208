"""Dedicated memory as NVIDIA's management library (NVML) sees it, through nvidia-ml-py (its module is ``pynvml``).

Facts are from the NVML API reference. Under WDDM (Windows) and WSL2 the memory of a process is always "not available".
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from ..errors import first_line
from .snapshot import Reading, Value

logger = logging.getLogger(__name__)

_PCI_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-7])?")
_CARD_FIGURES = ("dedicated_total_bytes", "dedicated_limit_bytes", "dedicated_used_bytes")
_PROCESS_FIGURE = "dedicated_process_bytes"


def _import_pynvml() -> Any:
    return importlib.import_module("pynvml")


def driver_version(load: Callable[[], Any] = _import_pynvml) -> str | None:
    """Of the NVIDIA driver; ``None`` where there is none, or nothing to ask it with."""
    try:
        nvml = load()
    except ImportError:
        return None
    try:
        nvml.nvmlInit()  # counted by NVML: whoever else uses it is not disturbed by our shutdown
        try:
            version = nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


class NvmlProvider:
    """The one gateway to NVML: started at the first read, once; guarded by a lock; each kind of failure logged once.

    ``device_id`` tells which card: the uuid torch gives (with or without ``GPU-``) or a PCI bus id, since NVML's order
    is not CUDA's. ``None`` means "not known yet"; then a machine's only card is taken, and of several none.
    ``fraction`` is the part of the card this process may use.
    """

    name = "NVML"

    def __init__(
        self,
        device_id: Callable[[], str | None] = lambda: None,
        fraction: Callable[[], float] = lambda: 1.0,
        load: Callable[[], Any] = _import_pynvml,
    ) -> None:
        self._device_id = device_id
        self._fraction = fraction
        self._load = load
        self._lock = threading.Lock()
        self._nvml: Any = None
        self._unavailable: str | None = None
        self._asked: str | None = None
        self._handle: Any = None
        self._device_name = ""
        self._divided = False
        self._memory_version: int | None = None
        self._logged: set[str] = set()

    def read(self) -> Reading:
        """Total, used (everything that is not free, the driver's reserve included) and what this process has."""
        with self._lock:
            if not self._started():
                return _unknown(self._unavailable or "NVML is closed")
            try:
                reason = self._find_card()
                return _unknown(reason) if reason else self._read_card()
            except self._nvml.NVMLError as error:
                return _unknown(f"NVML: {self._log_once(error)}")

    def close(self) -> None:
        """Give NVML back. Later reads are unknown."""
        with self._lock:
            if self._nvml is None:
                return
            nvml, self._nvml = self._nvml, None
            self._unavailable = "NVML is closed"
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                self._log_once(error)

    def _started(self) -> bool:
        if self._nvml is not None or self._unavailable is not None:
            return self._nvml is not None
        try:
            nvml = self._load()
        except ImportError:
            self._unavailable = "nvidia-ml-py is not installed"
            return False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._unavailable = f"there is no NVIDIA driver to ask ({first_line(error)})"
            logger.info("NVML is unavailable: %s", first_line(error))
            return False
        self._nvml = nvml
        self._memory_version = getattr(nvml, "nvmlMemory_v2", None)
        return True

    def _find_card(self) -> str | None:
        """Make the handle fit the card asked for; a reason where there is no such card."""
        asked = self._device_id()
        if self._handle is not None and asked == self._asked:
            return None
        nvml = self._nvml
        self._handle = None
        if asked is None:
            count = nvml.nvmlDeviceGetCount()
            if count != 1:
                return "there is no NVIDIA card" if count == 0 else "it is not known yet which card is used"
            handle = nvml.nvmlDeviceGetHandleByIndex(0)
        elif _PCI_BUS_ID.fullmatch(asked):
            handle = nvml.nvmlDeviceGetHandleByPciBusId(asked)
        else:
            uuid = asked if asked.startswith(("GPU-", "MIG-")) else f"GPU-{asked}"
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        name = nvml.nvmlDeviceGetName(handle)
        self._device_name = name.decode() if isinstance(name, bytes) else name
        self._divided = (asked or "").startswith("MIG-") or self._has_mig(handle)
        self._handle, self._asked = handle, asked
        return None

    def _has_mig(self, handle: Any) -> bool:
        try:
            current, _pending = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError:
            return False  # most cards do not know the question
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _read_card(self) -> Reading:
        if self._divided:
            reading = _unknown("the card is divided (MIG), and NVML's figures are the whole card's")
            return Reading({"device_name": self._device_name}, reading.unknown_because)
        info = self._memory_info()
        values: dict[str, Value] = {
            "device_name": self._device_name,
            "dedicated_total_bytes": int(info.total),
            "dedicated_limit_bytes": int(info.total * self._fraction()),
            "dedicated_used_bytes": int(info.total - info.free),
        }
        process_bytes, reason = self._process_bytes()
        if process_bytes is None:
            return Reading(values, {_PROCESS_FIGURE: reason})
        return Reading({**values, _PROCESS_FIGURE: process_bytes})

    def _memory_info(self) -> Any:
        nvml = self._nvml
        if self._memory_version is not None:
            try:
                return nvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._memory_version)
            except (
                nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported, nvml.NVMLError_ArgumentVersionMismatch
            ):
                self._memory_version = None  # a driver before 510
        return nvml.nvmlDeviceGetMemoryInfo(self._handle)

    def _process_bytes(self) -> tuple[int | None, str]:
        """This process's bytes, or ``None`` and why. A process that both computes and draws is in both lists, with
        the same figure."""
        nvml, own, listed = self._nvml, os.getpid(), False
        figures = []
        for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            try:
                processes = ask(self._handle)
            except nvml.NVMLError as error:
                return None, f"NVML: {self._log_once(error)}"
            for process in processes:
                if process.pid == own:
                    listed = True
                    if process.usedGpuMemory is not None:
                        figures.append(int(process.usedGpuMemory))
        if figures:
            return max(figures), ""
        if listed:
            return None, "not available: the driver does not tell a process's share under Windows and WSL2"
        return None, "NVML does not list this process: it has not used the card yet, or its container hides it"

    def _log_once(self, error: Exception) -> str:
        text = first_line(error)
        if text not in self._logged:
            self._logged.add(text)
            logger.warning("NVML: %s", text)
        return text


def _unknown(reason: str) -> Reading:
    return Reading(unknown_because=dict.fromkeys((*_CARD_FIGURES, _PROCESS_FIGURE), reason))
