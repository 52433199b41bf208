"""Profile and cap on shared memory as axes of the webui's X/Y/Z plot."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import BadInputError
from ...memory.cap import shared_cap_bytes
from ...placement.profile import PROFILES, Profile
from ...session import Session
from ...units import GIB

PROFILE_AXIS, CAP_AXIS = "[Spillway] Profile", "[Spillway] Shared cap (GiB)"


class XyzAxes:
    """Puts the axes into the X/Y/Z plot script and takes them out. What a cell asks for is left on its processing
    object, where the watch over the webui's jobs finds it: it holds for that cell."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self) -> None:
        """To be called as our script is loaded, for ``--nowebui`` asks for the axes before any callback, and before
        the webui builds its page (``on_before_ui``), for the order of scripts is not ours; a second time does nothing.
        """
        for script in _plot_scripts():
            if any(option.label == PROFILE_AXIS for option in script.axis_options):
                continue
            script.axis_options.append(
                script.AxisOption(
                    PROFILE_AXIS, str, _ask_profile, confirm=self._confirm_profiles, choices=self._profiles
                )
            )
            script.axis_options.append(script.AxisOption(CAP_AXIS, float, _ask_cap, confirm=_confirm_caps))

    def remove(self) -> None:
        for script in _plot_scripts():
            kept = [option for option in script.axis_options if option.label not in (PROFILE_AXIS, CAP_AXIS)]
            script.axis_options[:] = kept

    def _profiles(self) -> list[str]:
        unavailable = self._session.info().unavailable_profiles
        return [
            profile.value
            for profile, info in PROFILES.items()
            if not info.unavailable_because and profile not in unavailable
        ]

    def _confirm_profiles(self, p: Any, values: list[str]) -> None:
        """The plot tells the person of a RuntimeError before it begins."""
        known = self._profiles()
        for value in values:
            if value.strip().lower() not in known:
                raise RuntimeError(f"There is no profile “{value}” here; choose from {', '.join(known)}.")


def _ask_profile(p: Any, value: str, values: list[str]) -> None:
    p.spillway_profile = Profile.parse(value)


def _ask_cap(p: Any, value: float, values: list[float]) -> None:
    p.spillway_cap_bytes = int(value * GIB)


def _confirm_caps(p: Any, values: list[float]) -> None:
    try:
        shared_cap_bytes(None, int(min(values) * GIB), None)
    except BadInputError as error:
        raise RuntimeError(str(error)) from error


@contextmanager
def cap_asked(session: Session, p: Any) -> Iterator[None]:
    """Around a job: the cap that its cell asks for, if any; afterwards the user's own."""
    cap_bytes = getattr(p, "spillway_cap_bytes", None)
    if cap_bytes is None:
        yield
        return
    before = session.settings
    session.set_cap(cap_bytes, None)
    try:
        yield
    finally:
        session.set_cap(before.cap_bytes, before.cap_ram_percent)


def _plot_scripts() -> list[Any]:
    """The loaded modules of the plot: the webui executes every script file in a module of its own."""
    scripts = importlib.import_module("modules.scripts")
    modules = {id(data.module): data.module for data in scripts.scripts_data}
    return [module for module in modules.values() if hasattr(module, "axis_options") and hasattr(module, "AxisOption")]
