"""Every sentence in the code that a person may be shown has words in every language."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sd_webui_spillway.words import LANGUAGES, translate

from .sentences import FACT, sentences

PACKAGE = Path(__file__).parents[2] / "sd_webui_spillway"
ROOMS = (
    "session.py", "settings.py", "host_port.py", "job.py", "panel", "placement", "planning", "recovery", "timing",
    "memory", "hosts",
)
"""Where sentences are made that reach the page. The command line's and the bench's stay with the command line."""
SQL = re.compile(r"\b(SELECT|WHERE|INSERT|ORDER BY|CREATE|PRAGMA|BEGIN|DELETE FROM|LIMIT)\b")
MARKUP = re.compile(r"^\s*<|charset=|attachment;|\"detail\":")
NOT_SHOWN = {
    # Told to a programmer: the test-bed's own rules, and technical lines under a sentence.
    "placement/simulated_link.py", "placement/stream/host_slab.py", "memory/shared_ledger.py", "hosts/samplers.py",
    # What other programs say, looked for in their errors.
    "recovery/out_of_memory.py",
}
FRAGMENTS = {
    # Pieces of a sentence that is found elsewhere as a whole, names of kinds, and technical lines.
    f"{FACT} to {FACT}", " with the VAE in strips", f" (its rows cannot be split, because {FACT})",
    "release caches", "lower the budget", "smaller placement", "split rows", "looked up", "give up", "given up",
    "near the edge",
    "unable to open", "No space left", "shared memory", "out-of-memory recovery", "out-of-memory recoveries",
    f"schema version {FACT}, known up to {FACT}", "Content-Type must be application/json", f"{FACT} (warm-up)",
    "Spillway id", "half applied", "the shared work of this batch has not ended",
    "Expected all tensors to be on the same device, but found at least two: the simulated card and system memory, in "
    + FACT + ".",
}
FORM = {
    # gradio's labels: the page's own script writes them in the reader's language.
    "Show the last job's images", "What to draw", "Negative prompt", "What to avoid", "Seed (-1: random)",
    "Batch size", "Batch count",
}
HOSTS_LABELS = ("hosts/a1111/settings_page.py", "hosts/a1111/xyz.py")
"""Labels that a host's page shows: its own localization has them from our file."""
NAMES = {
    "GPU", "UNet", "VAE", "NVML", "CUDA", "JSON", "RAM", "AMD", "MIG", "WSL", "NVIDIA", "Windows", "GiB", "MiB", "auto",
    "dedicated", "torch", "diffusers", "group", "norm", "nvidia", "py", "yaml", "version", "data", "folder", "png",
    "WebUI", "fact", "ml", "CPU",
}
"""Words that are the same in Chinese."""


def files() -> list[Path]:
    found = [PACKAGE / room for room in ROOMS]
    return sorted(path for room in found for path in ([room] if room.suffix else room.rglob("*.py")))


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def hosts_words() -> dict[str, str]:
    return json.loads((PACKAGE.parent / "localizations" / "zh_CN.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", files(), ids=place)
def test_every_sentence_is_said_in_chinese(path):
    if place(path) in NOT_SHOWN:
        return
    labels = hosts_words() if place(path) in HOSTS_LABELS else {}
    missing = []
    for line, text in sentences(path):
        if SQL.search(text) or MARKUP.search(text) or text in FRAGMENTS | FORM or text in labels:
            continue
        left = set(re.findall(r"[A-Za-z]{2,}", translate(text, "zh"))) - NAMES
        if left:
            missing.append(f"line {line}: {text!r} (left: {', '.join(sorted(left))})")
    table = "localizations/zh_CN.json" if labels else "words/zh.json"
    assert not missing, f"{table} lacks these:\n" + "\n".join(missing)


@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
def test_a_translation_has_the_fields_of_its_sentence(language):
    table = json.loads((PACKAGE / "words" / f"{language}.json").read_text(encoding="utf-8"))
    fields = re.compile(r"\{\w*\}")
    wrong = {english: other for english, other in table.items()
             if sorted(fields.findall(english)) != sorted(fields.findall(other))}
    assert wrong == {}


def test_the_pages_own_words_are_the_same_in_both_tables():
    folder = PACKAGE.parent / "javascript"
    keys = [re.findall(r'^  "([^"]+)":', (folder / f"strings_{code}.mjs").read_text(encoding="utf-8"), re.MULTILINE)
            for code in LANGUAGES]
    assert keys[0] == keys[1]
    used = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.mjs") if "strings_" not in path.name)
    fixed = set(re.findall(r'\bt\(\s*"([^"]+)"', used))
    assert fixed <= set(keys[0])
