"""Everything that a report of a problem needs to say about a machine, in one answer. No torch: only its version."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .. import __version__
from ..errors import SpillwayError
from ..memory.nvml import driver_version
from ..placement.profile import Profile
from ..session import Session
from ..timing.log_rows import LogFilter
from .payloads import host_payload, settings_payload, snapshot_payload

_PACKAGES = (
    "torch", "gradio", "fastapi", "pydantic", "diffusers", "transformers", "accelerate", "psutil", "nvidia-ml-py",
)


def doctor_payload(session: Session) -> dict[str, Any]:
    """Versions, host, card, memory, cap, what is pinned, each profile's availability, and what went otherwise."""
    last = session.last_job()
    info = session.info()
    return {
        "versions": _versions(),
        "host": host_payload(info),
        "memory": snapshot_payload(session.memory()),
        "shared": {
            "cap_bytes": session.cap_bytes(),
            "ledger_cap_bytes": session.ledger.cap_bytes,
            "reserved_bytes": session.ledger.pinned_bytes,
            "excess_bytes": session.ledger.excess_bytes,
        },
        "profiles": [
            {"profile": profile.value, "unavailable_because": session.unavailable_because(profile)}
            for profile in Profile
        ],
        "settings": settings_payload(session),
        "log": _log(session),
        "notices": [*info.notices, *session.log.notices, *(last.notices if last else ())],
    }


def _versions() -> dict[str, str | None]:
    """``None`` is "not installed", for the driver "none, or it cannot be asked"."""
    return {
        "spillway": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name.replace("-", "_"): _version(name) for name in _PACKAGES},
        "nvidia_driver": driver_version(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _log(session: Session) -> dict[str, Any]:
    """A log that cannot be read is one of the things a doctor is asked about."""
    try:
        return {"path": str(session.log.path), "image_count": session.log.count(LogFilter()), "error": None}
    except SpillwayError as error:
        return {"path": str(session.log.path), "image_count": None, "error": str(error)}
