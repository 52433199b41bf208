"""``spillway bench``: the measurements, each with options of its own."""

from __future__ import annotations

import argparse
import importlib

BENCHES = ("offload", "profiles", "footprint", "overhead")


def add_bench_command(words: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser's."""
    bench = words.add_parser("bench", help="measure: offloading against other tools, profiles, estimates, watching")
    bench.add_argument("name", choices=BENCHES)
    bench.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="of that one; --help lists them")
    bench.set_defaults(run=bench_named)


def bench_named(options: argparse.Namespace) -> int:
    """Run one with the rest of the command line."""
    name = f"sd_webui_spillway.bench.{options.name}"
    module = importlib.import_module(f"{name}.__main__" if options.name == "offload" else name)
    return int(module.main(options.arguments))
