"""CLIP's tokenizer without a hub: transformers' class over the vocabulary that a Python package carries.

``bpe_simple_vocab_16e6.txt.gz`` is OpenAI's published list of merges; the ids follow from it by the rule of
``clip/simple_tokenizer.py``: 256 bytes, the same at a word's end, one id a merge, then start and end of text.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UnavailableError
from .atomic import whole_folder
from .families import TOKENS, VOCABULARY

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

PACKAGES = ("open_clip", "clip")
_BYTES = 256
_FILE = "bpe_simple_vocab_16e6.txt.gz"
_START, _END = "<|startoftext|>", "<|endoftext|>"
CLIP_PAD, OPEN_CLIP_PAD = _END, "!"
"""What fills a short prompt: CLIP repeats the end of text; OpenCLIP uses id 0, which is ``!``."""


def vocabulary_file() -> Path:
    """Where the list of merges is, found without importing the package that has it.

    Raises:
        UnavailableError: no installed package has it.
    """
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec is not None else []:
            if (file := Path(folder) / _FILE).is_file():
                return file
    raise UnavailableError(
        "The CLIP tokenizer is unavailable, because its vocabulary is not installed: pip install open_clip_torch."
    )


def _byte_letters() -> list[str]:
    """A printable letter for each byte, in the order of the vocabulary: printable ones first, as themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = _BYTES - len(printable)
    return [chr(byte) for byte in printable] + [chr(_BYTES + number) for number in range(hidden)]


def write_tokenizer(folder: Path, pad: str) -> None:
    """The four files of CLIP's own tokenizer."""
    with gzip.open(vocabulary_file(), "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    write_vocabulary(folder, lines[1 : VOCABULARY - 2 * _BYTES - 2 + 1], pad)


def write_vocabulary(folder: Path, merges: Sequence[str], pad: str) -> None:
    """The four files of a tokenizer with these merges, as ``from_pretrained`` of transformers 4 and 5 reads them."""
    letters = _byte_letters()
    words = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(merge.split()) for merge in merges)]
    vocabulary = {word: number for number, word in enumerate([*words, _START, _END])}
    special = {"bos_token": _START, "eos_token": _END, "unk_token": _END, "pad_token": pad}
    settings: dict[str, Any] = {
        "tokenizer_class": "CLIPTokenizer", "model_max_length": TOKENS, "do_lower_case": True, "errors": "replace",
        "add_prefix_space": False, "clean_up_tokenization_spaces": True, **special,
    }  # fmt: skip
    for name, content in (
        ("vocab.json", json.dumps(vocabulary, ensure_ascii=False)),
        ("merges.txt", "\n".join(["#version: 0.2", *merges, ""])),
        ("tokenizer_config.json", json.dumps(settings, indent=2)),
        ("special_tokens_map.json", json.dumps(special, indent=2)),
    ):
        (folder / name).write_text(content, "utf-8", newline="\n")


def clip_tokenizer(cache: Path, pad: str = CLIP_PAD) -> CLIPTokenizer:
    """The tokenizer, padding with ``pad``; its files are written into ``cache`` the first time.

    Raises:
        UnavailableError: no installed package has the vocabulary.
        StorageError: the cache cannot be written.
    """
    from transformers import CLIPTokenizer

    name = "clip-tokenizer-1" if pad == CLIP_PAD else "open-clip-tokenizer-1"
    folder = whole_folder(cache / name, lambda building: write_tokenizer(building, pad))
    tokenizer: CLIPTokenizer = CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)
    return tokenizer
