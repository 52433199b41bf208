"""Token merging, which the webui applies to a model around each job."""

from __future__ import annotations

import importlib
from typing import Any


def merge_tokens(p: Any) -> None:
    """As a request's first pass wants it."""
    importlib.import_module("modules.sd_models").apply_token_merging(p.sd_model, p.get_token_merging_ratio())
