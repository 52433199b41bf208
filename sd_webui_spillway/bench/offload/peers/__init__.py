"""Everything that can be measured, by name, the most telling first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ....errors import BadInputError
from ....placement.profile import Profile
from .a1111 import A1111
from .base import Peer, Step, Work
from .comfy import ComfyPartial
from .first_come import FirstCome
from .forge import Forge
from .libraries import AccelerateSequential, DiffusersGroup, DiffusersModelOffload, Mmgp
from .ours import Ours
from .plain import BlockAtATime, PlainTo

SOURCES: Mapping[str, Callable[[Path], tuple[Peer, ...]]] = {
    "a1111": lambda folder: (A1111(folder, "lowvram"), A1111(folder, "medvram")),
    "forge": lambda folder: (
        Forge(folder, "async", "shared"), Forge(folder, "queue", "shared"), Forge(folder, "queue", "cpu"),
    ),
    "comfy": lambda folder: (ComfyPartial(folder),),
}
"""Tools whose own code is run from a folder of their sources: by tool, what it has."""


def make_peers(folders: Mapping[str, Path]) -> dict[str, Peer]:
    """A new object of each, of the tools with sources those whose folder is given.

    Raises:
        BadInputError: there is no such tool.
    """
    for tool in folders:
        if tool not in SOURCES:
            raise BadInputError(f"There is no tool “{tool}” to run from its sources; choose from {', '.join(SOURCES)}.")
    found = (
        Ours(Profile.STREAM, 50e9),
        *(peer for tool, folder in folders.items() for peer in SOURCES[tool](folder)),
        DiffusersGroup("leaf", record_stream=True),
        DiffusersGroup("leaf"),
        DiffusersGroup("block", record_stream=True),
        PlainTo(),
        Mmgp(),
        FirstCome(),
        AccelerateSequential(),
        BlockAtATime(),
        DiffusersGroup("block"),
        DiffusersGroup("leaf", low_cpu_mem=True),
        DiffusersModelOffload(),
        Ours(Profile.LOWVRAM, 6e9),
        Ours(Profile.SEQUENTIAL, 6e9),
        Ours(Profile.MEDVRAM, 6e9),
        Ours(Profile.DEDICATED, 6e9),
    )
    return {peer.name: peer for peer in found}


def chosen(peers: Mapping[str, Peer], names: str | None) -> dict[str, Peer]:
    """Those of a comma-separated list; all where there is none.

    Raises:
        BadInputError: there is none of that name.
    """
    if names is None:
        return dict(peers)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in peers:
            tool = name.split("-")[0]
            hint = f"; it needs --peer {tool}=FOLDER" if tool in SOURCES else f"; choose from {', '.join(peers)}"
            raise BadInputError(f"There is no peer “{name}”{hint}.")
    return {name: peer for name, peer in peers.items() if name in wanted}


__all__ = ["SOURCES", "Peer", "Step", "Work", "chosen", "make_peers"]
