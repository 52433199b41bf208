"""The embedded model's own tokenizer: CLIP's rule with merges learnt from the captions, so every word is one token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from ..clip_tokenizer import CLIP_PAD, tokenizer_in, words_of, write_tokenizer
from ..pictures import caption, random_scene

if TYPE_CHECKING:
    from transformers import CLIPTokenizer

_CAPTIONS = 20_000
_END_OF_WORD = "</w>"


def _spoken(seed: int) -> Iterator[str]:
    random = Random(seed)  # noqa: S311
    for index in range(_CAPTIONS):
        yield caption(random_scene(random, striped=index % 10 == 0), random)


def learn_merges(captions: Iterable[str], most: int) -> list[str]:
    """Pairs of tokens to be joined, ``"l e</w>"``, the most frequent first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE(end_of_word_suffix=_END_OF_WORD))
    learner.pre_tokenizer = pre_tokenizers.Whitespace()  # splits off commas, as CLIP's own pattern does
    trainer: Any = trainers.BpeTrainer(
        vocab_size=most + 2 * 256, end_of_word_suffix=_END_OF_WORD, show_progress=False, min_frequency=2
    )
    learner.train_from_iterator(captions, trainer)
    merges = json.loads(learner.to_str())["model"]["merges"]
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in merges][:most]


def make_tokenizer(folder: Path, seed: int, merges: int) -> CLIPTokenizer:
    """Learns the tokenizer, writes CLIP's four files into ``folder`` and reads them back."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, words_of(learn_merges(_spoken(seed), merges), CLIP_PAD))
    return tokenizer_in(folder)


def token_ids(tokenizer: Any, captions: list[str]) -> Any:
    """Token numbers [captions, 77], as torch's int16: the vocabulary is far below 32,768."""
    import torch

    rows = tokenizer(captions, padding="max_length", truncation=True, max_length=tokenizer.model_max_length)
    return torch.tensor(rows["input_ids"], dtype=torch.int16)
