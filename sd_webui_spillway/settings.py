"""What the user chose, kept between runs in one small JSON file."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .errors import BadInputError, StorageError, first_line
from .memory.cap import shared_cap_bytes
from .placement.profile import Profile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The user's choices. A cap that is ``None`` leaves the default in force."""

    profile: Profile = Profile.AUTO
    cap_bytes: int | None = None
    cap_ram_percent: float | None = None
    badges: bool = True
    dedicated_percent: int = 90
    """How much of the card is planned with; the rest is left for what nobody foresees."""
    vae_tiling: str = "auto"
    ladder_tile: bool = True
    """The guard may decode a picture in tiles when memory runs out."""
    ladder_smaller_placement: bool = True
    """The guard may keep less of the model on the card when memory runs out."""
    ladder_split_rows: bool = True
    """The guard may run a batch in parts when memory runs out."""
    infotext: bool = True
    """Each image's generation parameters say what it took."""
    spill_kind: str = "ours"
    """Who moves what does not fit: this program (weights only, to an exact cap) or the graphics driver."""

    def validated(self) -> Settings:
        """These settings, if every one is of a kind and in a range that a control could have set.

        Raises:
            BadInputError: with one sentence that names the setting.
        """
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.type == "bool" and not isinstance(value, bool):
                raise BadInputError(f"The setting {entry.name} must be on or off, not {value!r}.")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise BadInputError(f"The setting {name} must be one of {', '.join(choices)}, not {value!r}.")
        percent = self.dedicated_percent
        whole = isinstance(percent, int) and not isinstance(percent, bool)
        if not (whole and LEAST_DEDICATED_PERCENT <= percent <= 100):
            raise BadInputError(
                f"The share of the card must be a whole number from {LEAST_DEDICATED_PERCENT} to 100 %, "
                f"not {percent!r}."
            )
        return self


CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "vae_tiling": ("auto", "always", "never"),
    "spill_kind": ("ours", "driver"),
})
"""The settings that are one of a few words."""
LEAST_DEDICATED_PERCENT = 50


class SettingsFile:
    """Reads and replaces the settings file; a file that cannot be read is reported and the defaults are used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.existed = path.exists()
        """Whether there was a file when the program began: the user has chosen before."""
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Settings], None]] = []
        self.value = self._read()

    def on_change(self, listener: Callable[[Settings], None]) -> Callable[[], None]:
        """Tell ``listener`` of every change from now on; what is returned ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def change(self, **changes: Any) -> Settings:
        """Set these fields and write the file whole, so that a crash leaves the old or the new one.

        Raises:
            StorageError: it cannot be written; the choice holds for this session.
        """
        with self._lock:
            changed = self.value = replace(self.value, **changes)
            try:
                self._write()
            finally:
                for listener in list(self._listeners):
                    listener(changed)
        return changed

    def _write(self) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(asdict(self.value), indent=2), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise StorageError(f"The settings cannot be saved to {self._path}: {first_line(error)}.") from error

    def _read(self) -> Settings:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            known = {name: stored[name] for name in asdict(Settings()) if name in stored}
            if "profile" in known:
                known["profile"] = Profile(known["profile"])
            return _checked(Settings(**known))
        except FileNotFoundError:
            return Settings()
        except (OSError, ValueError, TypeError, BadInputError) as error:
            logger.warning("settings in %s cannot be read (%s); the defaults are used", self._path, first_line(error))
            return Settings()


def _checked(settings: Settings) -> Settings:
    """A file edited by hand may hold what no control would let through."""
    if not isinstance(settings.cap_bytes, int | None):
        raise TypeError("a value of another kind than expected")
    shared_cap_bytes(None, settings.cap_bytes, settings.cap_ram_percent)
    return settings.validated()
