"""Shared by the tests of models: one cache for what is made once, and what a skipped test needs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models-cache")


@pytest.fixture(scope="session")
def diffusers():
    missing = [name for name in ("diffusers", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    import diffusers

    return diffusers


@pytest.fixture(scope="session")
def vocabulary(diffusers):
    if not any(importlib.util.find_spec(name) for name in ("open_clip", "clip")):
        pytest.skip("needs the package open_clip_torch, which carries CLIP's vocabulary")
