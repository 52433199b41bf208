"""The extension's life inside the host: from the loading of its script to its unloading, any number of times."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...errors import BadInputError, SpillwayError
from ...memory import MemoryReader, Monitor, machine_providers
from ...memory.shared_ledger import SharedLedger
from ...panel.host_page import build_accordion, build_tab
from ...recovery.ladder import LadderSwitches
from ...recovery.method_patch import PatchSet
from ...session import Session
from ...settings import SettingsFile
from ...timing import ImageLog
from ...units import parse_bytes
from . import takeover
from .api import add_routes
from .checkpoints import CheckpointLoads
from .host import A1111Host
from .jobs import JobWatch
from .model_table import ModelTable, PlacementChoices
from .settings_page import SettingsPage
from .start import device_index, first_profile, open_card
from .xyz import XyzAxes

logger = logging.getLogger(__name__)
_FOLDER = "spillway"


class Plugin:
    """One loaded extension: the session, and everything of the host's that is patched or added to."""

    def __init__(self) -> None:
        from modules import paths_internal, shared

        folder = Path(paths_internal.data_path) / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = SettingsFile(folder / "settings.json")
        ledger = SharedLedger()
        profile = first_profile(shared.cmd_opts, self._settings)
        self._models = ModelTable(open_card, ledger, profile, self._choices)
        host = A1111Host(self._models, ledger)
        reader = MemoryReader((
            *host.memory_providers(), *machine_providers(device_index(), lambda: 1.0, lambda: ledger.pinned_bytes)
        ))
        self.session = Session(
            host, Monitor(reader), ImageLog.open(folder / "images.sqlite3"), self._settings, folder, ledger
        )
        self._patches = PatchSet()
        self._jobs = JobWatch(self.session, host)
        self._axes = XyzAxes(self.session)
        self._page = SettingsPage(self.session)

    def start(self) -> None:
        """Patch the host, take over the models that it has loaded already, and wait for its callbacks."""
        from modules import sd_models, shared

        _set_cap(self.session, getattr(shared.cmd_opts, "spillway_shared_cap", None))
        takeover.install(self._patches, self._models)
        CheckpointLoads(self._models).install(self._patches)
        self._jobs.install(self._patches)
        self._axes.add()  # without a page nothing else asks for them
        for model in list(sd_models.model_data.loaded_sd_models):
            self._models.attach(model)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._wait_for_callbacks).result()

    def stop(self) -> None:
        """Undo everything: the host's models lie as its own flags say, and its functions are its own."""
        models = [attachment.model for attachment in self._models.attachments]
        self._axes.remove()
        self._page.remove()
        self._patches.undo()
        self.session.close()
        for model in models:
            takeover.give_back_to_host(model)

    def compact(self, *, is_img2img: bool) -> None:
        """The meter and the profile in a few lines, inside what is open of txt2img or img2img."""
        build_accordion(self.session, "img2img" if is_img2img else "txt2img")

    def _wait_for_callbacks(self) -> None:
        """On a thread of its own: for each the host looks up every frame of the stack, and below a script that is being
        loaded this takes 65 ms, because its file is no module that Python knows."""
        from modules import script_callbacks

        script_callbacks.on_model_loaded(self._models.attach)
        script_callbacks.on_before_ui(self._axes.add)
        script_callbacks.on_ui_settings(self._page.add)
        script_callbacks.on_ui_tabs(self._tab)
        script_callbacks.on_app_started(lambda page, app: add_routes(app, self.session))
        script_callbacks.on_script_unloaded(uninstall)

    def _tab(self) -> list[tuple[Any, str, str]]:
        return [(build_tab(self.session), "Spillway", "spillway")]

    def _choices(self) -> PlacementChoices:
        chosen = self._settings.value
        return PlacementChoices(
            LadderSwitches(
                tile=chosen.ladder_tile and chosen.vae_tiling != "never",
                smaller_placement=chosen.ladder_smaller_placement,
                split_rows=chosen.ladder_split_rows,
            ),
            chosen.dedicated_percent,
            chosen.vae_tiling == "always",
            chosen.spill_kind == "driver",
        )


_current: Plugin | None = None


def install() -> Plugin:
    """Called while the host loads the extension's script: everything from here on is the host's callbacks."""
    global _current
    uninstall()
    _current = Plugin()
    _current.start()
    return _current


def uninstall() -> None:
    """Leave the host as if the extension had never been there; a second time does nothing."""
    global _current
    plugin, _current = _current, None
    if plugin is not None:
        plugin.stop()


def _set_cap(session: Session, asked: str | None) -> None:
    """``6GiB`` or ``30%``, as the flag says it."""
    if not asked:
        return
    try:
        if asked.endswith("%"):
            session.set_cap(None, float(asked[:-1]))
        else:
            session.set_cap(parse_bytes(asked), None)
    except (ValueError, BadInputError):
        logger.warning("--spillway-shared-cap %s is no size or share of RAM; write for example 6GiB or 30%%", asked)
    except SpillwayError as error:
        logger.warning("%s", error)


