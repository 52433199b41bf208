"""Tiny real pipelines, made once, and hosts over them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.hosts.rig import CallFaults, Rig


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """At these sizes, and on a shared machine, more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def diffusers():
    missing = [name for name in ("diffusers", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    if not any(importlib.util.find_spec(name) for name in ("open_clip", "clip")):
        pytest.skip("needs the package open_clip_torch, which carries CLIP's vocabulary")
    import diffusers

    return diffusers


@pytest.fixture(scope="session")
def tiny_model(diffusers, tmp_path_factory) -> Callable:
    """By family, a model with random weights; one of each for the whole run, and a second one for ``own``: two hosts
    never hold the same model at once."""
    from sd_webui_spillway.models import LoadedModel
    from sd_webui_spillway.models.maker import build_pipeline

    cache = tmp_path_factory.mktemp("hosts-cache")
    made = {}

    def model(family: str, *, own: bool = False) -> LoadedModel:
        if (family, own) not in made:
            pipeline = build_pipeline(family, "tiny", 3, torch.float32, cache)
            made[family, own] = LoadedModel(pipeline, f"tiny {family}", family, (64, 64))
        return made[family, own]

    return model


@pytest.fixture(scope="session")
def start_picture(tmp_path_factory) -> Path:
    """A picture with some structure, larger than what is asked for and of another shape."""
    path = tmp_path_factory.mktemp("pictures") / "start.png"
    gradient = Image.linear_gradient("L").resize((150, 90))
    Image.merge("RGB", (gradient, gradient.rotate(180), Image.radial_gradient("L").resize((150, 90)))).save(path)
    return path


@pytest.fixture
def rig_of(tiny_model, tmp_path, monkeypatch) -> Iterator[Callable[..., Rig]]:
    """Makes a host over a tiny model; closed at the end."""
    rigs: list[Rig] = []

    def make(family: str = "sd1", card_bytes: int = 64 * 2**30) -> Rig:
        model, faults = tiny_model(family, own=True), CallFaults()
        faults.install(model.pipeline, monkeypatch)
        rigs.append(Rig(model, tmp_path / "outputs", card_bytes, faults))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.host.close()


@pytest.fixture(scope="module")
def roomy(tiny_model, tmp_path_factory) -> Iterator[Callable[[str], Rig]]:
    """By family, a host on a card with room for everything, kept for one module of tests."""
    monkeypatch, rigs = pytest.MonkeyPatch(), {}

    def rig(family: str) -> Rig:
        if family not in rigs:
            model, faults = tiny_model(family), CallFaults()
            faults.install(model.pipeline, monkeypatch)
            rigs[family] = Rig(model, tmp_path_factory.mktemp(family), faults=faults)
        found = rigs[family]
        found.faults.reset()
        found.card.arm()
        return found

    yield rig
    for found in rigs.values():
        found.host.close()
    monkeypatch.undo()
