"""A real AUTOMATIC1111 as a process, with a data folder of its own; its own folder is left as it is."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

WEBUI = os.environ.get("SPILLWAY_A1111")
NEEDED = "needs a real AUTOMATIC1111: SPILLWAY_A1111=<its folder> and SPILLWAY_A1111_PYTHON=<its python>"
"""``SPILLWAY_A1111_PYTHON`` is by default ``venv`` inside the folder; the webui must be 1.10.1 and start."""
START_SECONDS = 180
REPOSITORY = Path(__file__).parents[2]


class WebUi:
    """The process and its HTTP interface."""

    def __init__(self, data: Path, checkpoint: Path, *flags: str, page: bool = False) -> None:
        webui = Path(WEBUI or "")
        python = os.environ.get("SPILLWAY_A1111_PYTHON") or str(webui / "venv" / "bin" / "python")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.log = data / "webui.log"
        command = [
            python, "launch.py", "--skip-prepare-environment", "--skip-torch-cuda-test", "--skip-version-check",
            "--use-cpu", "all", "--no-half", "--server-name", "127.0.0.1", "--port", str(port),
            "--data-dir", str(data), "--ckpt", str(checkpoint), "--no-download-sd-model", "--opt-sdp-attention",
            *(["--api"] if page else ["--nowebui"]), *flags,
        ]  # fmt: skip
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment.pop("PYTHONPATH", None)
        environment["PYTHONUNBUFFERED"] = "1"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=webui, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Until it answers; its model may still be loading, and a request then waits for it."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if "Startup time" in self.log.read_text(errors="replace") and self.answers():
                return
            time.sleep(0.5)
        pytest.fail(f"the webui did not start:\n{self.words()}")

    def answers(self) -> bool:
        """It must not be asked before: a request that comes while its page starts makes the webui fail."""
        if "Startup time" not in self.words():
            return False
        try:
            self.ask("/sdapi/v1/options")
        except urllib.error.HTTPError as error:
            return error.code == HTTPStatus.UNAUTHORIZED
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def ask(self, route: str, order: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = json.dumps(order).encode() if order is not None else None
        request = urllib.request.Request(
            self.address + route, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.loads(answer.read())

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def pictures(self, prompt: str, route: str = "/sdapi/v1/txt2img", **changes: Any) -> list[np.ndarray]:
        order = {
            "prompt": prompt, "steps": 4, "sampler_name": "Euler", "scheduler": "Automatic", "seed": 5,
            "width": 64, "height": 64, "cfg_scale": 7, **changes,
        }  # fmt: skip
        return [opened(image) for image in self.ask(route, order)["images"]]

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def opened(image: str) -> np.ndarray:
    """An image of the API's answer, (height, width, 3)."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB")).astype(int)


def add_script(data: Path, extension: str, script: Path) -> None:
    """Put one script of the tests into the host as an extension."""
    target = data / "extensions" / extension / "scripts" / script.name
    target.parent.mkdir(parents=True)
    shutil.copy(script, target)


def add_this_extension(data: Path) -> None:
    """The repository as the host's extension, without its history, in which the host would look for a remote."""
    folder = data / "extensions" / "sd-webui-spillway"
    folder.mkdir(parents=True)
    for item in REPOSITORY.iterdir():
        if not item.name.startswith("."):
            (folder / item.name).symlink_to(item)
