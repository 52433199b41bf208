"""Reading checkpoint files: what is read, what is refused, and in which words."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sd_webui_spillway.errors import ModelFileError
from sd_webui_spillway.models import read_checkpoint

WEIGHTS = {"a.weight": torch.arange(600.0).reshape(20, 30), "a.bias": torch.ones(20, dtype=torch.float16)}


def same(tensors):
    return tensors.keys() == WEIGHTS.keys() and all(torch.equal(tensors[name], WEIGHTS[name]) for name in WEIGHTS)


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_checkpoint(path)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert path.name in sentence
    return sentence


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request, tmp_path):
    def write(held, name="model.ckpt"):
        torch.save(held, tmp_path / name, _use_new_zipfile_serialization=request.param)
        return tmp_path / name

    return write


@pytest.fixture
def framework(monkeypatch):
    """A class that pickles as ``pytorch_lightning``'s and is gone when the file is read."""
    module = types.ModuleType("pytorch_lightning.callbacks")

    class ModelCheckpoint(dict):
        def __init__(self):
            super().__init__(monitor="loss")
            self.best = Path("best.ckpt")

    ModelCheckpoint.__module__, ModelCheckpoint.__qualname__ = module.__name__, "ModelCheckpoint"
    module.ModelCheckpoint = ModelCheckpoint
    monkeypatch.setitem(sys.modules, "pytorch_lightning", types.ModuleType("pytorch_lightning"))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def gone():
        monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
        monkeypatch.setitem(sys.modules, module.__name__, None)

    return ModelCheckpoint, gone


def test_safetensors_with_metadata(tmp_path):
    save_file(WEIGHTS, tmp_path / "m.safetensors", metadata={"modelspec.title": "x"})
    checkpoint = read_checkpoint(tmp_path / "m.safetensors")
    assert same(checkpoint.tensors)
    assert checkpoint.metadata == {"modelspec.title": "x"}


def test_plain_and_wrapped_pickles(save):
    assert same(read_checkpoint(save(WEIGHTS)).tensors)
    wrapped = read_checkpoint(save({"state_dict": collections.OrderedDict(WEIGHTS), "global_step": 875000}))
    assert same(wrapped.tensors)
    assert wrapped.metadata["global_step"] == "875000"


def test_module_state_and_parameters(save):
    layer = torch.nn.Linear(3, 3)
    held = {**layer.state_dict(), "extra": torch.nn.Parameter(torch.ones(2))}
    tensors = read_checkpoint(save(held)).tensors
    assert torch.equal(tensors["weight"], layer.weight)
    assert not tensors["extra"].requires_grad
    assert same(read_checkpoint(save({"state_dict": layer.state_dict() | WEIGHTS})).tensors) is False


def test_training_objects_are_read_as_stubs(save, framework):
    kind, gone = framework
    path = save({
        "state_dict": WEIGHTS, "callbacks": {kind: kind()}, "optimizer_states": [{"state": {0: torch.ones(())}}],
        "lr": np.float64(0.5), "array": np.arange(4), "sets": {1, 2}, "counts": collections.defaultdict(list),
        "when": __import__("datetime").datetime(2024, 1, 1), "dtype": torch.float16, "size": torch.Size([1, 2]),
    })  # fmt: skip
    gone()
    checkpoint = read_checkpoint(path)
    assert same(checkpoint.tensors)
    assert float(checkpoint.metadata["lr"]) == 0.5


class Call:
    """Pickles as a call of ``function(*arguments)``."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {}",), "system"),
        (eval, ("open('{}', 'w')",), "builtins.eval"),
        (exec, ("open('{}', 'w')",), "builtins.exec"),
        (subprocess.Popen, (["touch", "{}"],), "subprocess.Popen"),
        (getattr, (torch.Tensor, "numpy"), "builtins.getattr"),
        (torch.load, ("{}",), "torch"),
        (open, ("{}", "w"), "open"),
    ],
)
def test_code_is_refused_and_not_run(save, tmp_path, function, arguments, name):
    mark = tmp_path / "mark"
    filled = [
        [part.format(mark) for part in one] if isinstance(one, list) else one.format(mark) if type(one) is str else one
        for one in arguments
    ]
    path = save({"state_dict": WEIGHTS, "hook": Call(function, *filled)})
    sentence = refusal(path)
    assert name in sentence
    assert "nothing was run" in sentence
    assert not mark.exists()


def test_a_state_cannot_change_a_class(tmp_path, save):
    """The C unpickler would let this one set an attribute of a class for the whole process."""
    evil = (
        b"\x80\x02ccollections\nOrderedDict\n" + pickle.NONE + b"}U\x08poisonedK\x01s" + pickle.TUPLE2 + pickle.BUILD
    ) + b"."
    path = save(WEIGHTS)
    if path.read_bytes()[:2] == b"PK":
        import zipfile

        with zipfile.ZipFile(path) as old:
            entries = {name: old.read(name) for name in old.namelist()}
        with zipfile.ZipFile(path, "w") as new:
            for name, content in entries.items():
                new.writestr(name, evil if name.endswith("data.pkl") else content)
    else:
        path.write_bytes(evil)
    refusal(path)
    assert not hasattr(collections.OrderedDict, "poisoned")


def test_torchscript_is_refused(tmp_path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "m.pt"))
    assert "TorchScript" in refusal(tmp_path / "m.pt")


def test_missing_empty_folder_and_suffix(tmp_path):
    assert "There is no model file" in refusal(tmp_path / "none.safetensors")
    (tmp_path / "empty.safetensors").touch()
    assert "empty" in refusal(tmp_path / "empty.safetensors")
    (tmp_path / "folder").mkdir()
    assert "model_index.json" in refusal(tmp_path / "folder")
    (tmp_path / "m.gguf").write_bytes(b"GGUF\0\0\0")
    assert ".safetensors" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "web page"),
        (b"just some words\n", "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
        (bytes(range(256)) * 4, "is not a"),
    ],
)
def test_not_a_checkpoint(tmp_path, suffix, content, words):
    (tmp_path / f"m{suffix}").write_bytes(content)
    assert words in refusal(tmp_path / f"m{suffix}")


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
def test_truncated_safetensors(tmp_path, kept):
    save_file(WEIGHTS, tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(whole[: int(len(whole) * kept)])
    sentence = refusal(tmp_path / "m.safetensors")
    assert "truncated" in sentence
    assert kept < 0.5 or f"{len(whole):,}" in sentence


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.98])
def test_truncated_pickle(save, kept):
    path = save(WEIGHTS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert "truncated" in refusal(path)


def test_no_weights(save, tmp_path):
    assert "holds no weights" in refusal(save({"state_dict": {}, "epoch": 3}))
    assert "holds no weights" in refusal(save([1, 2]))
    save_file({}, tmp_path / "m.safetensors")
    assert "holds no weights" in refusal(tmp_path / "m.safetensors")
