"""The words of ``standalone.py``: make the environment that a command needs, then run the command in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .environment import Environment, SetupError
from .existing import check_existing
from .stacks import STACKS, cannot_run_because, environment_of

EXIT_OK, EXIT_SETUP_FAILED, EXIT_BAD_INPUT = 0, 3, 2
USAGE = """usage: python standalone.py [--python PATH] COMMAND [ARGUMENTS]

  demo                 run out of memory on purpose, recover, and open the panel (--no-serve: end after the table)
  serve                open the panel
  generate PROMPT      make images; profiles, memory, log and model are further commands (COMMAND --help says more)
  test [--stack NAME] [-- ARGUMENTS]
                       run the tests; ARGUMENTS go to pytest. Stacks: {stacks}

  --python PATH        use the environment of this interpreter (a WebUI's, with its CUDA torch) and install nothing
"""


def main(root: Path, arguments: Sequence[str]) -> int:
    """Run ``standalone.py`` with these arguments; ``root`` is the folder it is in."""
    words = list(arguments)
    python: Path | None = None
    if words[:1] == ["--python"]:
        if len(words) < 2:
            return _wrong("--python needs the path of an interpreter.")
        python = Path(words[1])
        words = words[2:]
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE.format(stacks=", ".join(STACKS)))
        return EXIT_OK if words else EXIT_BAD_INPUT
    try:
        if words[0] == "test":
            return _test(root, words[1:], python)
        if python is None:
            python = _own_environment(root, testing=False)
        else:
            check_existing(python)
        return _run([str(python), "-m", "sd_webui_spillway", *words], root)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETUP_FAILED


def _own_environment(root: Path, *, testing: bool) -> Path:
    folder = root / "requirements"
    environment = Environment(
        root / ".venv", [folder / "standalone.txt"], [folder / "vocabulary.txt"], project=root
    )
    environment.ensure()
    if testing:
        # Marked apart, so that going back and forth between running and testing installs nothing again.
        Environment(root / ".venv", [folder / "test.txt"], mark="spillway-test-installed.json").ensure()
    return environment.python


def _test(root: Path, words: list[str], python: Path | None) -> int:
    stack_name = None
    if words[:1] == ["--stack"]:
        if len(words) < 2 or words[1] not in STACKS:
            return _wrong(f"--stack needs one of {', '.join(STACKS)}.")
        stack_name, words = words[1], words[2:]
    if words and words[0] != "--":
        return _wrong(f"“{words[0]}” is not understood; what follows -- goes to pytest.")
    pytest_arguments = words[1:]
    if stack_name is not None:
        stack = STACKS[stack_name]
        reason = cannot_run_because(stack)
        if reason:
            sys.stdout.write(f"The tests on {stack_name} are skipped, because {reason}.\n")
            return EXIT_OK
        environment = environment_of(stack, root)
        environment.ensure()
        return _run([str(environment.python), "-m", "pytest", *stack.tests, *pytest_arguments], root)
    if python is None:
        python = _own_environment(root, testing=True)
    return _run([str(python), "-m", "pytest", *pytest_arguments], root)


def _run(command: list[str], root: Path) -> int:
    """Run in the foreground; Ctrl-C goes to the command, which ends by itself and says so."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - the environment's own interpreter
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def _wrong(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return EXIT_BAD_INPUT
