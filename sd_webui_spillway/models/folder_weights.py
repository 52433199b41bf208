"""A diffusers folder's weights as its files hold them: without building a module, in the number type they have."""

from __future__ import annotations

from pathlib import Path

from ..errors import ModelFileError
from .checkpoint_reader import read_checkpoint
from .folder_config import read_json
from .ldm_layout import TEXT, VAE, State

_STEMS = ("diffusion_pytorch_model", "model", "pytorch_model")
_FORMS = (".safetensors", ".fp16.safetensors", ".bin")
_OLD_VAE_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
"""Before diffusers 0.18 the VAE's one attention was named so; it renames them when it loads."""


def component_weights(folder: Path, component: str) -> State:
    """The tensors of one component by their names in its module. Safetensors stay mapped to the disk.

    Raises:
        ModelFileError: no weights are there, or a file of them is damaged or missing.
        StorageError: a file cannot be read.
    """
    state: State = {}
    for file in _files(folder / component):
        state |= read_checkpoint(file).tensors
    if component == VAE:
        state = {_renamed(name): tensor for name, tensor in state.items()}
    if component.startswith(TEXT):
        state = {name: tensor for name, tensor in state.items() if not name.endswith("position_ids")}
    return state


def _files(folder: Path) -> list[Path]:
    for form in _FORMS:
        for stem in _STEMS:
            if (folder / f"{stem}{form}").is_file():
                return [folder / f"{stem}{form}"]
            index = folder / f"{stem}{form}.index.json"
            if index.is_file():
                parts = sorted({Path(str(name)).name for name in read_json(index).get("weight_map", {}).values()})
                return [folder / part for part in parts]
    raise ModelFileError(f"The model folder “{folder.parent.name}” is incomplete: its {folder.name} has no weights.")


def _renamed(name: str) -> str:
    before, attention, after = name.partition(".attentions.0.")
    first, dot, rest = after.partition(".")
    return f"{before}{attention}{_OLD_VAE_ATTENTION.get(first, first)}{dot}{rest}"
