"""A step whose weights do not fit, under our profiles and other tools': ``python -m sd_webui_spillway.bench.offload``.

Models with random weights × dedicated bytes for the weights × placements, each in a warm process of its own. Every cell
is written as it ends, the most telling first; the same command goes on where the last one stopped. Tables and plots are
written beside the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import torch

from ...errors import BadInputError, SpillwayError
from ...units import format_seconds, parse_bytes
from ..results import ResultFile
from .cells import plan, plan_seconds
from .machine import RehearsalMachine
from .models import MODELS, ModelSpec
from .peers import SOURCES, Peer, chosen, make_peers
from .plot import svg, titles
from .process import Child, peer_command
from .run import OffloadRun, RunOptions
from .table import rows, tables

_SECONDS_A_MINUTE = 60
_REHEARSED = "tiny"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing, then write tables and plots. 2 for what cannot be done as asked."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _main(_parser().parse_args(words), words)
    except SpillwayError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _main(options: argparse.Namespace, words: Sequence[str]) -> int:
    folders = _folders(options.peer)
    every = make_peers(folders)
    peers = chosen(every, options.peers)
    specs = _specs(options)
    cells = plan(list(specs.values()), peers, options.rounds)
    if options.plan:
        sys.stdout.write("\n".join(map(str, cells)) + "\n")
        seconds = plan_seconds(cells, specs, peers, options.steps)
        sys.stdout.write(f"{len(cells)} cells, about {format_seconds(seconds)}\n")
        return 0
    if options.json is None:
        raise BadInputError("Say with --json which file the results go to.")
    if options.report:
        if not options.json.exists():
            raise BadInputError(f"There are no results in {options.json}.")
        _write(ResultFile(options.json), options.json, every)
        return 0
    if not options.rehearsal and not torch.cuda.is_available():
        raise BadInputError("torch finds no GPU here; --rehearsal runs the small model on the processor instead.")
    results = _results(options, words)
    seconds_left = None if options.minutes is None else options.minutes * _SECONDS_A_MINUTE

    def start(peer: str) -> Child:
        folder = folders.get(peer.split("-")[0])
        return Child(peer_command(peer, folder, rehearsal=options.rehearsal))

    card_bytes = None if options.rehearsal else torch.cuda.get_device_properties(0).total_memory
    run_options = RunOptions(options.steps, options.warm, card_bytes, seconds_left)
    left_out = OffloadRun(results, specs, peers, run_options, start).run(cells)
    _write(results, options.json, every)
    for cell in left_out:
        sys.stderr.write(f"left out for lack of time: {cell}\n")
    return 0


def _results(options: argparse.Namespace, words: Sequence[str]) -> ResultFile:
    about = {"simulated": options.rehearsal, "versions": _versions(), "steps": options.steps, "commands": []}
    if options.rehearsal:
        about["device"] = RehearsalMachine.label
    results = ResultFile(options.json, **about)
    found = results.content["about"]
    if found.get("simulated") is not options.rehearsal:
        raise BadInputError(f"{options.json} holds {'a rehearsal' if found.get('simulated') else 'measurements'}; "
                            "give this run a file of its own.")  # fmt: skip
    command = " ".join(["python -m sd_webui_spillway.bench.offload", *words])
    if command not in found["commands"]:
        found["commands"].append(command)
    if options.again:
        results.cells[:] = [cell for cell in results.cells if not cell["why"]]
    return results


def _write(results: ResultFile, path: Path, peers: Mapping[str, Peer]) -> None:
    holds_all = {name: peer.holds_all for name, peer in peers.items()}
    text = tables(results.content, holds_all, {name: peer.summary for name, peer in peers.items()})
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    every = rows(results.cells, holds_all)
    for model in dict.fromkeys(row.model for row in every):
        picture = svg(titles(model, results.content["about"]), [row for row in every if row.model == model])
        if picture is not None:
            path.with_name(f"{path.stem}-{model}.svg").write_text(picture, encoding="utf-8")


def _specs(options: argparse.Namespace) -> dict[str, ModelSpec]:
    names = [name.strip() for name in options.models.split(",")] if options.models else (
        [_REHEARSED] if options.rehearsal else [name for name, spec in MODELS.items() if not spec.rehearsal]
    )  # fmt: skip
    for name in names:
        if name not in MODELS:
            raise BadInputError(f"There is no model “{name}”; choose from {', '.join(MODELS)}.")
    specs = {name: MODELS[name] for name in names}
    if options.budgets:
        budgets = tuple(parse_bytes(text) for text in options.budgets.split(","))
        specs = {name: replace(spec, budgets_bytes=budgets) for name, spec in specs.items()}
    return specs


def _folders(given: Sequence[str]) -> dict[str, Path]:
    """``tool=folder``, several times.

    Raises:
        BadInputError: not of that form, or no such folder.
    """
    found = {}
    for text in given:
        tool, _, folder = text.partition("=")
        if not folder:
            raise BadInputError(f"“{text}” names no folder; write --peer {tool}=FOLDER.")
        if not Path(folder).is_dir():
            raise BadInputError(f"There is no folder {folder} with the sources of {tool}.")
        found[tool] = Path(folder).resolve()
    return found


def _versions() -> dict[str, str | None]:
    """What the peers are, by package; ``None`` is not installed."""
    versions = {package: _version(package) for package in ("diffusers", "accelerate", "mmgp")}
    return {**versions, "cuda": torch.version.cuda}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spillway bench offload", description=__doc__)
    parser.add_argument("--json", type=Path, help="result file, made or gone on with")
    parser.add_argument("--models", help=f"of {', '.join(MODELS)}; by default the real-size ones")
    parser.add_argument("--peers", help="names, comma-separated; by default all that there are (--plan lists them)")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="TOOL=FOLDER",
        help=f"run a tool's own code from its sources as well: {', '.join(SOURCES)} (may be said several times)",
    )  # fmt: skip
    parser.add_argument("--budgets", help="dedicated sizes for the weights instead of the model's own, as 0.6GB,1.3GB")
    parser.add_argument("--steps", type=int, default=10, help="the fewest that count in a cell (default 10)")
    parser.add_argument("--rounds", type=int, default=2, help="how often each cell is measured, in turns (default 2)")
    parser.add_argument("--warm", type=int, help="processes kept at once (default: up to 8, as many as the card "
                        "has room for; each has the model once or twice in system memory too)")  # fmt: skip
    parser.add_argument("--minutes", type=float, help="begin no cell that would not be done by then")
    parser.add_argument("--again", action="store_true", help="try again what has no figures")
    parser.add_argument("--plan", action="store_true", help="only list the cells, and roughly how long they take")
    parser.add_argument("--report", action="store_true", help="only write tables and plots of what is there")
    parser.add_argument("--rehearsal", action="store_true", help="a small model on the processor: no measurement")
    return parser


if __name__ == "__main__":
    sys.exit(main())
