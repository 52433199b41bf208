"""Parse the command line, run one command, and turn every expected error into one sentence and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from ..errors import BadInputError, SpillwayError
from .parser import build_parser

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
"""Nothing here needs the network; a library that tried would wait for its timeout on a machine without one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spillway`` with these arguments (the process's by default); returns the exit code."""
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        # A Windows console or a pipe may be in a code page that lacks "·" and "×"; never die of a character.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    options = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.ERROR, format="%(name)s: %(message)s")
    try:
        return int(options.run(options) or EXIT_OK)
    except SpillwayError as error:
        sys.stderr.write(f"{error}\n")
        if error.detail and options.verbose:
            sys.stderr.write(f"  ({error.detail})\n")
        return EXIT_BAD_INPUT if isinstance(error, BadInputError) else EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; leave nothing for the interpreter to flush into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
