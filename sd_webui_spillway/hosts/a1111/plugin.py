"""The extension's life inside the host: from the loading of its script to its unloading, any number of times."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ...errors import UnavailableError
from ...memory import MemoryReader, Monitor, machine_providers
from ...memory.shared_ledger import SharedLedger
from ...placement.card import Card, CudaCard
from ...placement.profile import Profile
from ...placement.simulated import SimulatedCard
from ...placement.simulated_link import SimulatedLink
from ...recovery.method_patch import PatchSet
from ...session import Session
from ...settings import Settings, SettingsFile
from ...timing import ImageLog
from ...units import parse_bytes
from . import takeover
from .host import A1111Host

logger = logging.getLogger(__name__)
_FOLDER = "spillway"


class Plugin:
    """One loaded extension: the session, and everything of the host's that is patched."""

    def __init__(self) -> None:
        from modules import paths_internal, shared

        folder = Path(paths_internal.data_path) / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        settings = SettingsFile(folder / "settings.json")
        self._first_start = not (folder / "settings.json").exists()
        ledger = SharedLedger()
        self.host = A1111Host(_open_card, ledger, self._first_profile(shared.cmd_opts, settings.value))
        self._patches = PatchSet()
        reader = MemoryReader((
            *self.host.memory_providers(), *machine_providers(_device_index(), lambda: 1.0, lambda: ledger.pinned_bytes)
        ))
        self.session = Session(
            self.host, Monitor(reader), ImageLog.open(folder / "images.sqlite3"), settings,
            Path(shared.opts.outdir_samples or shared.opts.outdir_txt2img_samples or folder), ledger,
        )

    def start(self) -> None:
        """Patch the host, and take over the models that it has loaded already."""
        from modules import sd_models

        takeover.install(self._patches, self.host)
        for model in list(sd_models.model_data.loaded_sd_models):
            self.host.attach(model)

    def stop(self) -> None:
        """Undo everything: the host's models lie as its own flags say, its functions are its own."""
        models = self.host.models()
        self._patches.undo()
        self.session.close()
        for model in models:
            takeover.give_back_to_host(model)

    def _first_profile(self, flags: Any, settings: Settings) -> Profile:
        asked = getattr(flags, "spillway_profile", None)
        if asked:
            return Profile.parse(asked)
        if not self._first_start:
            return settings.profile
        if flags.lowvram:
            return Profile.LOWVRAM
        return Profile.MEDVRAM if flags.medvram or flags.medvram_sdxl else settings.profile


_current: Plugin | None = None


def install() -> None:
    """Called while the host loads the extension's script: everything from here on is the host's callbacks."""
    from modules import script_callbacks

    uninstall()
    global _current
    _current = Plugin()
    _current.start()
    script_callbacks.on_model_loaded(_current.host.attach)
    script_callbacks.on_script_unloaded(uninstall)


def uninstall() -> None:
    """Leave the host as if the extension had never been there; a second time does nothing."""
    global _current
    plugin, _current = _current, None
    if plugin is not None:
        plugin.stop()


def _open_card() -> Card:
    from modules import devices, shared

    limit = getattr(shared.cmd_opts, "spillway_dedicated_limit", None)
    limit_bytes = parse_bytes(limit) if limit else None
    if devices.device.type == "cuda":
        return CudaCard(limit_bytes, devices.device.index)
    if limit_bytes is not None and devices.device.type == "cpu":
        return SimulatedCard(limit_bytes, SimulatedLink())
    raise UnavailableError(
        "there is no GPU here" if devices.device.type == "cpu" else f"{devices.device.type} devices are not known yet"
    )


def _device_index() -> int:
    from modules import shared

    chosen = str(shared.cmd_opts.device_id or "0")
    return int(chosen) if chosen.isdigit() else 0
