"""Using an environment that somebody else made, a WebUI's for example, without changing it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .environment import SetupError

NEEDED = {
    "torch": "torch", "diffusers": "diffusers", "transformers": "transformers", "accelerate": "accelerate",
    "gradio": "gradio", "psutil": "psutil", "pynvml": "nvidia-ml-py", "platformdirs": "platformdirs", "rich": "rich",
    "safetensors": "safetensors", "open_clip": "open_clip_torch",
}  # fmt: skip
"""Modules that the standalone program imports, and the packages that have them."""

_PROBE = "import importlib.util as u, json, sys; print(json.dumps([m for m in sys.argv[1:] if u.find_spec(m) is None]))"


def check_existing(python: Path) -> None:
    """Make sure that the interpreter's environment has all that is needed. Nothing is installed.

    Raises:
        SetupError: one sentence: no interpreter there, or what is missing and how to add it.
    """
    try:
        result = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [str(python), "-c", _PROBE, *NEEDED], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise SetupError(f"{python} cannot be run: {error.strerror}.") from error
    if result.returncode:
        raise SetupError(f"{python} is no usable Python: {(result.stderr.strip().splitlines() or ['it failed'])[-1]}.")
    missing = [NEEDED[module] for module in json.loads(result.stdout)]
    if missing:
        raise SetupError(
            f"The environment of {python} lacks {', '.join(missing)}; nothing was changed. "
            f'Add what is missing with: "{python}" -m pip install --no-deps {" ".join(missing)}'
        )
