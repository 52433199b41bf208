"""Importing another tool's code from a folder of its sources."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def sources(folder: Path, arguments: Sequence[str]) -> Iterator[None]:
    """While its modules are imported: the folder is searched first, and its command line is ``arguments``, for such
    tools read theirs as they are imported."""
    own = sys.argv
    sys.argv = [folder.name, *arguments]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.argv = own
