"""A model folder that transformers 4 and 5 both read: one installation's file may be another's input."""

from __future__ import annotations

import shutil
from pathlib import Path

from .clip_tokenizer import Words, write_tokenizer
from .ldm_layout import TEXT, State


def make_readable_by_all(folder: Path, text: State, words: Words) -> None:
    """transformers 5 saves CLIP's names without ``text_model.`` and the tokenizer as one file; transformers 4 reads
    neither, while both read the older form, which this puts in their place."""
    from safetensors.torch import save_file

    named = {f"text_model.{name.removeprefix('text_model.')}": tensor for name, tensor in text.items()}
    save_file(named, str(folder / TEXT / "model.safetensors"), metadata={"format": "pt"})
    shutil.rmtree(folder / "tokenizer")
    (folder / "tokenizer").mkdir()
    write_tokenizer(folder / "tokenizer", words)
