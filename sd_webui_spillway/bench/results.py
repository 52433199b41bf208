"""Benchmark results as JSON files that say what they were measured on, and from which a run can go on."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from .. import __version__


def environment() -> dict[str, Any]:
    """What a figure depends on: device, driver-side versions, date."""
    on_gpu = torch.cuda.is_available()
    facts: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "spillway": __version__,
    }
    try:
        import diffusers

        facts["diffusers"] = diffusers.__version__
    except ImportError:
        facts["diffusers"] = None
    return facts


class ResultFile:
    """Cells by key, written after each one, so that a run that is cut short has lost nothing."""

    def __init__(self, path: Path, **about: Any) -> None:
        self._path = path
        self.content: dict[str, Any] = {"about": {**environment(), **about}, "cells": []}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    @property
    def cells(self) -> list[dict[str, Any]]:
        cells: list[dict[str, Any]] = self.content["cells"]
        return cells

    def has(self, **key: Any) -> bool:
        return any(all(cell.get(name) == value for name, value in key.items()) for cell in self.cells)

    def add(self, **cell: Any) -> None:
        self.cells.append(cell)
        self.save()

    def save(self) -> None:
        """Write the whole file, or leave the one that is there."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self._path)
