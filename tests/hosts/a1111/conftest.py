"""A session that watches the small webui, and what a test asks of both; and the table of what was survived."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from sd_webui_spillway.hosts.a1111.jobs import JobWatch
from sd_webui_spillway.memory.monitor import Monitor
from sd_webui_spillway.memory.snapshot import MemoryReader
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.recovery.method_patch import PatchSet
from sd_webui_spillway.session import Session
from sd_webui_spillway.settings import SettingsFile
from sd_webui_spillway.timing.image_log import ImageLog
from sd_webui_spillway.timing.image_record import ImageRecord
from sd_webui_spillway.timing.log_rows import LogFilter
from tests.fakes.a1111.engine import FakeEngine
from tests.fakes.a1111.webui import Webui
from tests.fakes.host import FakeHost

FULL = "The UNet does not fit in 3.0 GiB however small its work is made."


@dataclass
class Faults:
    """Memory that runs out at a place: ``times`` times, from the ``nth`` call there on."""

    place: str
    nth: int = 1
    times: int = 1
    ladder: bool = False
    calls: int = field(default=0, init=False)

    def __call__(self, place: str) -> None:
        if place != self.place:
            return
        self.calls += 1
        if self.nth <= self.calls < self.nth + self.times:
            raise LadderExhaustedError(FULL) if self.ladder else torch.cuda.OutOfMemoryError("CUDA out of memory.")


@dataclass
class Rig:
    webui: Webui
    session: Session
    engine: FakeEngine
    watch: JobWatch
    patches: PatchSet

    def records(self) -> list[ImageRecord]:
        """In the order in which the images ended."""
        return self.session.log.records(LogFilter(), limit=100, offset=0)[::-1]

    def shades(self, processed) -> list[int]:
        """What the small webui draws: an image is as bright as its seed."""
        return [image.getpixel((0, 0))[0] for image in processed.images[processed.index_of_first_image :]]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    host = FakeHost()
    made = Session(
        host, Monitor(MemoryReader(host.memory_providers())), ImageLog(tmp_path / "images.sqlite3"),
        SettingsFile(tmp_path / "settings.json"), tmp_path,
    )  # fmt: skip
    yield made
    made.close()


@pytest.fixture
def rig(tmp_path: Path, session: Session) -> Iterator[Rig]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    webui = Webui(folder)
    webui.install()
    engine, patches = FakeEngine(), PatchSet()
    watch = JobWatch(session, engine)
    watch.install(patches)
    yield Rig(webui, session, engine, watch, patches)
    patches.undo()
    webui.remove()


SURVIVED = "where memory ran out, how, and what came of it"


@pytest.fixture
def survived(record_property, request) -> Callable[[str, str], None]:
    """``survived(how, what came of it)`` puts it into the table that the tests of the real webui end with, in the row
    of the test's place."""

    def tell(how: str, came: str) -> None:
        place = re.sub(r"^(again|ladder)-|-(again|ladder)$", "", request.node.callspec.id)
        record_property(SURVIVED, (place, how, came))

    return tell


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    cells = [value for report in reports for name, value in report.user_properties if name == SURVIVED]
    if not cells:
        return
    table = {(place, how): came for place, how, came in cells}
    places, ways = (list(dict.fromkeys(cell[column] for cell in cells)) for column in (0, 1))
    terminalreporter.section("where memory runs out")
    terminalreporter.line(f"| place | {' | '.join(ways)} |")
    terminalreporter.line("|---" * (len(ways) + 1) + "|")
    for place in places:
        terminalreporter.line(f"| {place} | {' | '.join(table.get((place, way), '') for way in ways)} |")
