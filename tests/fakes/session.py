"""A real session over a fake host, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from sd_webui_spillway.memory.monitor import Monitor
from sd_webui_spillway.memory.snapshot import MemoryReader
from sd_webui_spillway.session import Session
from sd_webui_spillway.settings import SettingsFile
from sd_webui_spillway.timing.image_log import ImageLog

from .host import FakeHost


def open_session(host: FakeHost, folder: Path) -> Session:
    """The session; close it when done."""
    return Session(
        host=host,
        monitor=Monitor(MemoryReader(host.memory_providers()), hertz=4.0),
        log=ImageLog.open(folder / "images.sqlite"),
        settings=SettingsFile(folder / "settings.json"),
        output_folder=folder / "outputs",
    )
