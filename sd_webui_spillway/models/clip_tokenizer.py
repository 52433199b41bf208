"""CLIP's tokenizer without a hub: transformers' class over the vocabulary that a Python package carries.

``bpe_simple_vocab_16e6.txt.gz`` is OpenAI's published list of merges; the ids follow from it by the rule of
``clip/simple_tokenizer.py``: 256 bytes, the same at a word's end, one id a merge, then start and end of text.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelFileError, UnavailableError
from .atomic import whole_folder
from .families import TOKENS, VOCABULARY

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

PACKAGES = ("open_clip", "clip")
_BYTES = 256
_FILE = "bpe_simple_vocab_16e6.txt.gz"
_START, _END = "<|startoftext|>", "<|endoftext|>"
_PUBLISHED_MERGES = "f61f2adf497e6f5357c347aeb4646fabe82f341e946de5bdec5d2858e41bef4a"
"""SHA-256 of OpenAI's merges, one a line."""
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


@dataclass(frozen=True)
class Words:
    """What a CLIP tokenizer knows."""

    vocabulary: dict[str, int]
    merges: list[str]
    """Pairs of letters or words to join, in their order."""
    special: dict[str, str]
    """``bos_token``, ``eos_token``, ``unk_token`` and ``pad_token``."""
    tokens: int = TOKENS
    """The longest prompt, start and end included."""

    @property
    def published(self) -> bool:
        """Whether these are the words of OpenAI's CLIP, and OpenCLIP's."""
        digest = hashlib.sha256("\n".join(self.merges).encode()).hexdigest()
        return len(self.vocabulary) == VOCABULARY and digest == _PUBLISHED_MERGES


def published_words(pad: str) -> Words:
    """Those of OpenAI's CLIP.

    Raises:
        UnavailableError: no installed package has the vocabulary.
    """
    with gzip.open(vocabulary_file(), "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    return words_of(lines[1 : VOCABULARY - 2 * _BYTES - 2 + 1], pad)


def words_of(merges: Sequence[str], pad: str) -> Words:
    """The words that follow from a list of merges, by CLIP's rule."""
    letters = _byte_letters()
    words = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(merge.split()) for merge in merges)]
    vocabulary = {word: number for number, word in enumerate([*words, _START, _END])}
    special = {"bos_token": _START, "eos_token": _END, "unk_token": _END, "pad_token": pad}
    return Words(vocabulary, list(merges), special)


def read_words(folder: Path) -> Words:
    """The words of a tokenizer's folder, as transformers 4 (``vocab.json``, ``merges.txt``) or 5 (``tokenizer.json``)
    wrote it.

    Raises:
        ModelFileError: it has neither, or they are damaged.
    """
    try:
        if (folder / "vocab.json").is_file():
            vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
            lines = (folder / "merges.txt").read_text("utf-8").split("\n")
            merges = [line for line in lines[lines[0].startswith("#version") :] if line.strip()]
        else:
            model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
            vocabulary = model["vocab"]
            merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        if (folder / "special_tokens_map.json").is_file():
            settings |= json.loads((folder / "special_tokens_map.json").read_text("utf-8"))
        special = {"bos_token": _START, "eos_token": _END, "unk_token": _END, "pad_token": _END}
        for name in special:
            stated = settings.get(name, special[name])
            special[name] = str(stated["content"] if isinstance(stated, dict) else stated)
        limit = settings.get("model_max_length", TOKENS)
        return Words(dict(vocabulary), merges, special, limit if isinstance(limit, int) and limit < 10**6 else TOKENS)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"The tokenizer in “{folder.parent.name}/{folder.name}” cannot be read.", detail=repr(error)
        ) from error


def write_tokenizer(folder: Path, words: Words) -> None:
    """The four files of a CLIP tokenizer, as ``from_pretrained`` of transformers 4 and 5 reads them."""
    settings: dict[str, Any] = {
        "tokenizer_class": "CLIPTokenizer", "model_max_length": words.tokens, "do_lower_case": True,
        "errors": "replace", "add_prefix_space": False, "clean_up_tokenization_spaces": True, **words.special,
    }  # fmt: skip
    for name, content in (
        ("vocab.json", json.dumps(words.vocabulary, ensure_ascii=False)),
        ("merges.txt", "\n".join(["#version: 0.2", *words.merges, ""])),
        ("tokenizer_config.json", json.dumps(settings, indent=2)),
        ("special_tokens_map.json", json.dumps(words.special, indent=2)),
    ):
        (folder / name).write_text(content, "utf-8", newline="\n")


def clip_tokenizer(cache: Path, pad: str = CLIP_PAD) -> CLIPTokenizer:
    """The tokenizer, padding with ``pad``; its files are written into ``cache`` the first time.

    Raises:
        UnavailableError: no installed package has the vocabulary.
        StorageError: the cache cannot be written.
    """
    name = "clip-tokenizer-1" if pad == CLIP_PAD else "open-clip-tokenizer-1"
    folder = whole_folder(cache / name, lambda building: write_tokenizer(building, published_words(pad)))
    return tokenizer_in(folder)


def tokenizer_in(folder: Path) -> CLIPTokenizer:
    """transformers' tokenizer from a folder that :func:`write_tokenizer` filled.

    Raises:
        ModelFileError: its files are missing or damaged.
    """
    from transformers import CLIPTokenizer

    try:
        tokenizer: CLIPTokenizer = CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"The tokenizer in “{folder.name}” cannot be read.", detail=repr(error)) from error
    return tokenizer
