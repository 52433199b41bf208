"""The words of the command line. What each command does is in :mod:`.commands` and :mod:`.run_job`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import __version__
from . import commands, run_job
from .bench import add_bench_command
from .model_parser import add_model_commands

DEFAULT_PORT = 7870


def build_parser() -> argparse.ArgumentParser:
    """The parser for ``spillway``; every command sets ``run`` to a function of the parsed options."""
    parser = argparse.ArgumentParser(
        prog="spillway",
        description="Stable Diffusion under a memory limit: it recovers from running out, and says what images cost.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is done, with technical details")
    parser.add_argument("--data-folder", type=Path, help="where the image log and the settings are kept")
    words = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = words.add_parser("demo", help="run out of memory on purpose, recover, and show what every image cost")
    demo.add_argument("--no-serve", action="store_true", help="end after the table instead of opening the panel")
    demo.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    demo.add_argument("--port", type=int, default=DEFAULT_PORT)
    _add_model(demo)
    demo.set_defaults(run=run_job.demo)

    serve = words.add_parser("serve", help="open the panel on 127.0.0.1")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT)
    serve.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    _add_model(serve)
    serve.set_defaults(run=run_job.serve)

    generate = words.add_parser("generate", help="make images")
    generate.add_argument("prompt")
    generate.add_argument("--profile", help="placement for this job (default: the one last chosen, at first auto)")
    _add_model(generate)
    _add_request(generate)
    generate.add_argument("--json", action="store_true", help="print the images' records as JSON")
    generate.set_defaults(run=run_job.generate)

    profiles = words.add_parser("profiles", help="what each profile would need, and what auto would take")
    _add_model(profiles)
    _add_request(profiles)
    profiles.add_argument("--json", action="store_true")
    profiles.set_defaults(run=run_job.profiles)

    memory = words.add_parser("memory", help="dedicated, shared and system memory now")
    memory.add_argument("--watch", action="store_true", help="again twice a second, until Ctrl-C")
    memory.add_argument("--json", action="store_true")
    memory.set_defaults(run=commands.memory)

    log = words.add_parser("log", help="what every image cost, newest first")
    log.add_argument("--limit", type=int, default=20)
    log.add_argument("--profile")
    log.add_argument("--model")
    how = log.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true")
    how.add_argument("--csv", type=Path, metavar="FILE", help="write the log to this file (- for standard output)")
    how.add_argument("--clear", action="store_true", help="forget every image (asks first)")
    log.add_argument("--yes", action="store_true", help="with --clear: do not ask")
    log.set_defaults(run=commands.log)

    add_model_commands(words)
    add_bench_command(words)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="a diffusers folder or an SD 1, SD 2 or SDXL checkpoint file")
    parser.add_argument(
        "--lora", action="append", default=[], metavar="FILE_OR_FOLDER[:WEIGHT]",
        help="add a LoRA, in diffusers' or AUTOMATIC1111's form (may be said several times)",
    )  # fmt: skip
    parser.add_argument("--precision", help="fp16, bf16 or fp32 (default: fp16 on a GPU, fp32 on a CPU)")
    parser.add_argument("--dedicated-limit", metavar="SIZE", help="use only so much of the card, for example 3GiB")
    parser.add_argument("--simulated-card", metavar="SIZE", help="count on a simulated card of this size, on the CPU")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where images are saved")


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--negative-prompt", default="")
    parser.add_argument("--width", type=int, help="default: the model's own")
    parser.add_argument("--height", type=int)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance-scale", type=float, default=7.0)
    parser.add_argument("--sampler", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--batch-count", type=int, default=1)
    parser.add_argument("--init-image", type=Path, help="start from this picture")
    parser.add_argument("--strength", type=float, default=0.6, help="how far to go from the picture, above 0 to 1")
