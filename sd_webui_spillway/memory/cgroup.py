"""The memory limits that Linux control groups put on this process (containers, systemd, batch systems).

Facts are from the kernel's documents "Control Group v2" and "Memory Resource Controller" (v1).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class _Version:
    limit: str
    usage: str
    inactive_file: str
    """The line of ``memory.stat`` with the page cache that the kernel drops first when memory is short."""


_V2 = _Version("memory.max", "memory.current", "inactive_file")
_V1 = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True)
class Cgroup:
    """One control group that accounts memory."""

    folder: Path
    version: _Version

    def limit_bytes(self) -> int | None:
        """Its hard limit; ``None`` for none. v1 writes "no limit" as a number near 2⁶³, above any machine's memory."""
        text = _read(self.folder / self.version.limit)
        return int(text) if text is not None and text.isdigit() else None

    def used_bytes(self) -> int | None:
        """What counts against the limit, without the file cache that would go first, as container tools show it."""
        usage = _read(self.folder / self.version.usage)
        if usage is None or not usage.isdigit():
            return None
        for line in (_read(self.folder / "memory.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == self.version.inactive_file:
                return max(0, int(usage) - int(value))
        return int(usage)


def own_cgroups(root: Path = Path("/")) -> tuple[Cgroup, ...]:
    """Every group above and around this process that accounts memory, outermost first; each one's limit holds.

    Inside a container the path in ``/proc/self/cgroup`` may be the host's, which is not there; then the folder that is
    mounted is the process's own.
    """
    mounts = root / "sys/fs/cgroup"
    found: list[Cgroup] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            # In the hybrid layout v2 is mounted beside the v1 controllers.
            folders, version = (mounts, mounts / "unified"), _V2
        elif "memory" in controllers.split(","):
            folders, version = (mounts / "memory", mounts / controllers), _V1
        else:
            continue
        for mount in dict.fromkeys(folders):
            found.extend(
                Cgroup(folder, version)
                for folder in _from_mount_down(mount, path)
                if (folder / version.limit).is_file() or (folder / version.usage).is_file()
            )
    return tuple(found)


def _from_mount_down(mount: Path, path: str) -> list[Path]:
    parts = PurePosixPath(path).parts[1:]
    if ".." in parts:  # the process is outside the group namespace it sees
        parts = ()
    folders = [mount]
    for part in parts:
        folders.append(folders[-1] / part)
    return folders


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
