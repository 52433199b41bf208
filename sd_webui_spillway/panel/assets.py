"""Where the page's own script and style lie: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from ..errors import UnavailableError

MEDIA_TYPES = {".mjs": "text/javascript", ".css": "text/css"}


def asset_path(name: str) -> Path | None:
    """The file of that plain name, or ``None`` where there is none that may be served."""
    if Path(name).name != name or Path(name).suffix not in MEDIA_TYPES:
        return None
    package = Path(__file__).parent
    folders = (package / "assets", package.parent.parent)
    inner = Path("javascript") / name if name.endswith(".mjs") else Path(name)
    for folder in folders:
        if (folder / inner).is_file():
            return folder / inner
    return None


def require_assets() -> None:
    """Check that the page can be served at all.

    Raises:
        UnavailableError: the installation is incomplete.
    """
    for name in ("spillway.mjs", "style.css"):
        if asset_path(name) is None:
            raise UnavailableError(
                f"The panel is unavailable, because its file {name} is missing; install the package again."
            )
