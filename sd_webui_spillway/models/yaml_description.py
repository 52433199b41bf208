"""What the ``.yaml`` beside a checkpoint says that no tensor's shape does. :mod:`.ldm_yaml` writes such files."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Description:
    """A field is ``None`` where the file does not say."""

    prediction_type: str | None = None
    """``"epsilon"`` or ``"v_prediction"``; a model described without either means epsilon, as in A1111."""
    heads: int | None = None
    """Attention heads of every layer of the UNet …"""
    head_width: int | None = None
    """… or channels of one head."""
    scale_factor: float | None = None
    """What latents are multiplied by."""
    text_folder: Path | None = None
    """An existing folder with the CLIP text encoder's ``config.json`` and tokenizer."""


def read_description(checkpoint: Path) -> Description:
    """What the yaml beside ``checkpoint`` says; nothing where there is none, or one that cannot be read."""
    path = checkpoint.with_suffix(".yaml")
    # transformers and huggingface_hub need PyYAML, so wherever a model can be loaded it is there.
    yaml: Any = importlib.import_module("yaml")
    try:
        content = yaml.safe_load(path.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return Description()
    except (OSError, yaml.YAMLError) as error:
        _log.warning("%s is left aside, because it cannot be read (%s)", path, error)
        return Description()
    nodes = list(_mappings(content))
    unet, scales = _parameters(nodes, "UNetModel"), [node.get("scale_factor") for node in nodes]
    return Description(
        prediction_type=_prediction(nodes),
        heads=_positive(unet.get("num_heads")),
        head_width=_positive(unet.get("num_head_channels")),
        scale_factor=next((scale for scale in scales if isinstance(scale, float)), None),
        text_folder=_text_folder(_parameters(nodes, "FrozenCLIPEmbedder").get("version"), path.parent),
    )


def _mappings(content: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in the file, outer ones first."""
    if isinstance(content, dict):
        yield content
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for value in inner:
        yield from _mappings(value)


def _parameters(nodes: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The parameters of the first node that builds this class."""
    for node in nodes:
        if str(node.get("target", "")).rpartition(".")[2] == kind:
            parameters = node.get("params")
            return parameters if isinstance(parameters, dict) else {}
    return {}


def _prediction(nodes: list[dict[str, Any]]) -> str | None:
    stated = next((str(node["parameterization"]) for node in nodes if "parameterization" in node), None)
    if stated is None and any(str(node.get("target", "")).endswith("denoiser_scaling.VScaling") for node in nodes):
        stated = "v"
    if stated is None:
        return "epsilon" if nodes and "model" in nodes[0] else None
    return "v_prediction" if stated.startswith("v") else "epsilon"


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _text_folder(version: Any, beside: Path) -> Path | None:
    """Where it says, or beside the checkpoint: the pair may have been moved, even from another system."""
    if not isinstance(version, str):
        return None
    for folder in (Path(version), beside / PureWindowsPath(version).name):
        if (folder / "config.json").is_file():
            return folder
    return None
