"""The process of one peer: reads orders as JSON lines, answers each with one, and stays warm between them.

``{"do": "load", "model": …}``, then any number of ``{"do": "measure" | "switch", "budget_bytes": …, "steps": …}``;
``{"do": "end"}`` or the end of the input ends it. The first answer, without an order, says that it is there, or why the
peer cannot run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from ...errors import SpillwayError
from .machine import CudaMachine, Machine, RehearsalMachine
from .measuring import Measuring, failure
from .models import MODELS
from .peers import make_peers


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve orders until there are no more."""
    options = _parser().parse_args(arguments)
    # Other tools write to standard output; the answers keep it for themselves.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(options, sys.stdin, answers)
    return 0


def serve(options: argparse.Namespace, orders: TextIO, answers: TextIO) -> None:
    """Answer every order of the stream."""

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    machine: Machine = RehearsalMachine() if options.rehearsal else CudaMachine()
    folders = {options.peer.split("-")[0]: options.folder} if options.folder else {}
    peer = make_peers(folders)[options.peer]
    try:
        reason = peer.unavailable_because(machine)
        if reason is None:
            peer.prepare(machine)
    except Exception as error:  # noqa: BLE001 - another tool's code may fail in any way; the row says how
        reason = _words(error)
    say(ready=reason is None, why=reason)
    measuring: Measuring | None = None
    for line in orders if reason is None else ():
        order = json.loads(line)
        if order["do"] == "end":
            return
        try:
            if order["do"] == "load":
                measuring = Measuring(peer, MODELS[order["model"]], machine)
                say(load_seconds=measuring.load_seconds, torch=torch.__version__)
            elif measuring is None:
                say(why="no model is loaded")
            elif order["do"] == "switch":
                say(**measuring.switching(order["budget_bytes"]))
            else:
                say(**measuring.measure(order["budget_bytes"], order["steps"]))
        except Exception as error:  # noqa: BLE001 - as above; the process stays for the next cell
            say(why=_words(error))


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, SpillwayError) else failure(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sd_webui_spillway.bench.offload.child", description=__doc__)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--folder", type=Path, help="another tool's sources")
    parser.add_argument("--rehearsal", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
