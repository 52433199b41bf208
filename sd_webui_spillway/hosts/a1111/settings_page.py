"""Some of our settings on the webui's own Settings page; the session keeps them, the page shows and changes them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import Any

from ...errors import SpillwayError
from ...placement.profile import PROFILES, Profile
from ...session import Session
from ...settings import Settings
from ...units import GIB

logger = logging.getLogger(__name__)

SECTION = ("spillway", "Spillway")
PROFILE, CAP, BADGES, INFOTEXT = "spillway_profile", "spillway_cap_gib", "spillway_badges", "spillway_infotext"


class SettingsPage:
    """Changing a setting here changes it in the session, and the other way round."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stop_listening: Callable[[], None] | None = None

    def add(self) -> None:
        """To be called as the webui gathers its settings (``on_ui_settings``), at every "Reload UI" again."""
        self.remove()
        shared = importlib.import_module("modules.shared")
        now = _values(self._session.settings)
        choices = {"choices": [p.value for p, info in PROFILES.items() if not info.unavailable_because]}
        options = {
            PROFILE: shared.OptionInfo(now[PROFILE], "Profile: where the weights live", shared.gr.Dropdown, choices),
            CAP: shared.OptionInfo(
                now[CAP], "Cap on shared memory in GiB (0: the default)", shared.gr.Number, {"minimum": 0}
            ),
            BADGES: shared.OptionInfo(now[BADGES], "Show on each image what it took"),
            INFOTEXT: shared.OptionInfo(now[INFOTEXT], "Write into each image's infotext what it took"),
        }
        for key, option in options.items():
            option.section, option.onchange = SECTION, self._apply
            shared.opts.add_option(key, option)
        self._show(self._session.settings)
        self._stop_listening = self._session.on_settings(self._show)

    def remove(self) -> None:
        """Stop following the session, and take the options off the page: the webui keeps them over "Reload UI"."""
        if self._stop_listening is None:
            return
        self._stop_listening()
        self._stop_listening = None
        opts = importlib.import_module("modules.shared").opts
        for key in _values(self._session.settings):
            opts.data_labels.pop(key, None)
            opts.data.pop(key, None)

    def _show(self, settings: Settings) -> None:
        importlib.import_module("modules.shared").opts.data.update(_values(settings))

    def _apply(self) -> None:
        """The webui calls this for each option changed, after it has put the value into its own store. A change that
        cannot be made (a job is running) is logged, and the store shows again what is in force."""
        session = self._session
        asked = importlib.import_module("modules.shared").opts.data
        wanted = {key: asked.get(key) for key in _values(session.settings)}
        changes: dict[str, Callable[[Any], object]] = {
            PROFILE: lambda value: session.set_profile(Profile.parse(str(value))),
            CAP: lambda value: session.set_cap(int(value * GIB) or None, None),
            BADGES: lambda value: session.change_settings(badges=bool(value)),
            INFOTEXT: lambda value: session.change_settings(infotext=bool(value)),
        }
        for key, value in wanted.items():
            change = changes[key]
            if value is None or value == _values(session.settings)[key]:
                continue
            try:
                change(value)
            except SpillwayError as error:
                logger.warning("The setting is not changed. %s", error)
        self._show(session.settings)


def _values(settings: Settings) -> dict[str, Any]:
    """As the page shows them, by option."""
    return {
        PROFILE: settings.profile.value,
        CAP: (settings.cap_bytes or 0) / GIB,
        BADGES: settings.badges,
        INFOTEXT: settings.infotext,
    }
