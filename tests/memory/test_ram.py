"""RAM under control groups: trees of both versions, made of plain files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sd_webui_spillway.memory.ram import LIMITS_FRESH_SECONDS, RamProvider, wsl_note
from sd_webui_spillway.memory.shared import SharedProvider

GIB = 2**30
PHYSICAL = (64 * GIB, 20 * GIB)
NO_LIMIT_V1 = str(2**63 - 4096)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, object], None]:
    def write(path: str, content: object) -> None:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{content}\n")

    return write


Write = Callable[[str, object], None]


def read(root: Path) -> tuple[object, object]:
    values = RamProvider(root, lambda: PHYSICAL).read().values
    return values.get("ram_total_bytes"), values.get("ram_used_bytes")


def v2(write: Write, folder: str, limit: object, current: int = GIB, inactive: int = 0) -> None:
    write(f"{folder}/memory.max", limit)
    write(f"{folder}/memory.current", current)
    write(f"{folder}/memory.stat", f"anon 1\nfile 2\ninactive_file {inactive}\nactive_file 3")


def v1(write: Write, folder: str, limit: object, usage: int = GIB, inactive: int = 0) -> None:
    write(f"{folder}/memory.limit_in_bytes", limit)
    write(f"{folder}/memory.usage_in_bytes", usage)
    write(f"{folder}/memory.stat", f"cache 1\ninactive_file 1\ntotal_inactive_file {inactive}")


def test_without_groups_it_is_the_physical_memory(tmp_path: Path) -> None:
    assert read(tmp_path) == PHYSICAL


def test_v2_limit_and_use_without_the_cache_that_goes_first(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/app.slice")
    v2(write, "sys/fs/cgroup/app.slice", 8 * GIB, 5 * GIB, 2 * GIB)
    assert read(tmp_path) == (8 * GIB, 3 * GIB)


def test_v2_every_ancestor_counts_and_the_tightest_holds(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/a/b/c")
    v2(write, "sys/fs/cgroup/a", 16 * GIB, 9 * GIB)
    v2(write, "sys/fs/cgroup/a/b", 4 * GIB, 2 * GIB)
    v2(write, "sys/fs/cgroup/a/b/c", "max", GIB)
    write("sys/fs/cgroup/a/b/c/memory.high", GIB)  # slows down, never limits
    assert read(tmp_path) == (4 * GIB, 2 * GIB)


def test_of_equal_limits_the_outer_group_s_larger_use_is_told(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/a/b")
    v2(write, "sys/fs/cgroup/a", 4 * GIB, 3 * GIB)
    v2(write, "sys/fs/cgroup/a/b", 4 * GIB, GIB)
    assert read(tmp_path) == (4 * GIB, 3 * GIB)


def test_v2_max_and_limits_above_the_machine_are_no_limits(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/a/b")
    v2(write, "sys/fs/cgroup/a", "max")
    v2(write, "sys/fs/cgroup/a/b", 200 * GIB)
    assert read(tmp_path) == PHYSICAL


def test_v2_inside_a_container_the_mount_is_its_own_group(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/")
    v2(write, "sys/fs/cgroup", 2 * GIB, GIB)
    assert read(tmp_path) == (2 * GIB, GIB)


@pytest.mark.parametrize("path", ["/docker/0123abcd", "/../../elsewhere"])
def test_a_host_s_path_that_is_not_there_falls_back_to_the_mount(tmp_path: Path, write: Write, path: str) -> None:
    write("proc/self/cgroup", f"5:memory:{path}\n0::{path}")
    v1(write, "sys/fs/cgroup/memory", 3 * GIB, 2 * GIB)
    assert read(tmp_path) == (3 * GIB, 2 * GIB)


def test_v1_limit_use_and_no_limit(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/user/job\n1:cpu,cpuacct:/")
    v1(write, "sys/fs/cgroup/memory", NO_LIMIT_V1, 50 * GIB)
    v1(write, "sys/fs/cgroup/memory/user", 10 * GIB, 6 * GIB, GIB)
    v1(write, "sys/fs/cgroup/memory/user/job", NO_LIMIT_V1)
    assert read(tmp_path) == (10 * GIB, 5 * GIB)


def test_v1_with_no_limit_at_all_is_the_physical_memory(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "4:memory:/job")
    v1(write, "sys/fs/cgroup/memory", NO_LIMIT_V1)
    v1(write, "sys/fs/cgroup/memory/job", NO_LIMIT_V1)
    assert read(tmp_path) == PHYSICAL


def test_hybrid_memory_in_v1_beside_an_empty_v2(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "4:memory:/job\n0::/job")
    write("sys/fs/cgroup/unified/job/cgroup.procs", 1)
    v1(write, "sys/fs/cgroup/memory/job", 7 * GIB, 2 * GIB)
    assert read(tmp_path) == (7 * GIB, 2 * GIB)


def test_hybrid_memory_in_v2(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "4:cpu:/job\n0::/job")
    v2(write, "sys/fs/cgroup/unified/job", 7 * GIB, 2 * GIB)
    assert read(tmp_path) == (7 * GIB, 2 * GIB)


def test_a_group_that_does_not_tell_its_use_leaves_it_unknown(tmp_path: Path, write: Write) -> None:
    write("proc/self/cgroup", "0::/a")
    write("sys/fs/cgroup/a/memory.max", GIB)
    reading = RamProvider(tmp_path, lambda: PHYSICAL).read()
    assert reading.values == {"ram_total_bytes": GIB}
    assert "does not tell its use" in reading.unknown_because["ram_used_bytes"]


def test_a_limit_changed_while_running_is_seen(tmp_path: Path, write: Write) -> None:
    now = 0.0
    write("proc/self/cgroup", "0::/a")
    v2(write, "sys/fs/cgroup/a", 8 * GIB)
    provider = RamProvider(tmp_path, lambda: PHYSICAL, lambda: now)
    assert provider.read().values["ram_total_bytes"] == 8 * GIB
    v2(write, "sys/fs/cgroup/a", 4 * GIB)
    now += LIMITS_FRESH_SECONDS
    assert provider.read().values["ram_total_bytes"] == 4 * GIB


def test_the_real_machine_s_figures_make_sense() -> None:
    values = RamProvider().read().values
    assert 0 < int(values["ram_used_bytes"]) < int(values["ram_total_bytes"]) <= psutil.virtual_memory().total


def test_wsl_is_told_by_its_kernel(tmp_path: Path, write: Write) -> None:
    assert wsl_note(tmp_path) is None
    write("proc/version", "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)")
    assert wsl_note(tmp_path) is None
    write("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)")
    assert "WSL2" in (wsl_note(tmp_path) or "")


def test_shared_memory_on_linux_is_what_we_pinned_and_no_spill(tmp_path: Path, write: Write) -> None:
    reading = SharedProvider(lambda: 5, tmp_path, "linux").read()
    assert reading.values == {"shared_pinned_bytes": 5, "shared_spilled_bytes": 0}
    assert reading.unknown_because == {}


@pytest.mark.parametrize(
    ("platform", "files", "words"),
    [
        ("win32", {}, "Windows counters are not read yet"),
        ("linux", {"proc/version": "5.15-microsoft-standard-WSL2"}, "Windows counters are not read yet"),
        ("linux", {"sys/module/amdgpu/version": "1"}, "AMD"),
        ("darwin", {}, "no counter"),
    ],
)
def test_spill_that_nobody_counts_is_unknown_and_pinned_is_known(
    tmp_path: Path, write: Write, platform: str, files: dict[str, str], words: str
) -> None:
    for path, content in files.items():
        write(path, content)
    reading = SharedProvider(lambda: 5, tmp_path, platform).read()
    assert reading.values == {"shared_pinned_bytes": 5}
    assert words in reading.unknown_because["shared_spilled_bytes"]
