"""Token merging, which the webui applies to a model around each job."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def merge_tokens(p: Any) -> None:
    """As a request's first pass wants it."""
    _apply(p.sd_model, p.get_token_merging_ratio())


@contextmanager
def unmerged(model: Any) -> Iterator[None]:
    """Around the copying of a model: merging changes its blocks and tells them the picture's size through a hook, which
    a copy has not."""
    ratio = getattr(model, "applied_token_merged_ratio", 0)
    if not ratio:
        yield
        return
    _apply(model, 0)
    try:
        yield
    finally:
        _apply(model, ratio)


def _apply(model: Any, ratio: float) -> None:
    importlib.import_module("modules.sd_models").apply_token_merging(model, ratio)
