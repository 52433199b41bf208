"""The image log when things go wrong: kills, two processes, damaged files, no room, no permission."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.timing import ImageLog
from tests.records import make_record

ROOT = Path(__file__).parents[2]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Python code in a process of its own, with the log's path and other arguments in ``sys.argv``."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def assert_healthy(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


WRITES_FOR_EVER = """
import itertools, pathlib, sys
from sd_webui_spillway.timing import ImageLog
from tests.records import make_record
log = ImageLog.open(pathlib.Path(sys.argv[1]))
for number in itertools.count(int(sys.argv[2])):
    log.append(make_record(number, rungs=("x" * 3000,)))
    print(number, flush=True)
"""


def test_kill_in_mid_write_loses_no_row_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "images.db"
    written: list[int] = []
    for round_number in range(3):
        process = start(WRITES_FOR_EVER, path, 100_000 * round_number)
        assert process.stdout is not None
        written += [int(process.stdout.readline()) for _ in range(20 + 37 * round_number)]
        process.kill()
        written += [int(line) for line in process.stdout if line.endswith("\n")]
        process.wait()
        process.stdout.close()
    log = ImageLog.open(path)
    assert log.notices == ()
    assert {r.seed for r in log.records(limit=-1)} >= set(written)
    log.append(make_record(999_999))
    log.close()
    assert_healthy(path)


WRITES_300 = """
import pathlib, sys, time
from sd_webui_spillway.timing import ImageLog
from tests.records import make_record
path, start, at = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
time.sleep(max(0, at - time.time()))
log = ImageLog.open(path)
for number in range(start, start + 300):
    log.append(make_record(number))
log.close()
print(len(log.notices))
"""


@pytest.mark.parametrize("before", [None, b"this is no database, " * 500, b""], ids=["new", "corrupt", "empty"])
def test_two_processes_at_once_both_get_every_row_in(tmp_path: Path, before: bytes | None) -> None:
    """Also where both find the same file corrupt in the same moment: one sets it aside, both use the new one."""
    path = tmp_path / "images.db"
    if before is not None:
        path.write_bytes(before)
    at = time.time() + 1.0
    processes = [start(WRITES_300, path, first, at) for first in (0, 1000, 2000)]
    noticed = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    log = ImageLog.open(path)
    assert {r.seed for r in log.records(limit=-1)} == {*range(300), *range(1000, 1300), *range(2000, 2300)}
    log.close()
    aside = [p for p in tmp_path.iterdir() if ".corrupt-" in p.name]
    assert sum(noticed) == len(aside) == (1 if before else 0)
    assert_healthy(path)


def healthy_bytes(folder: Path, rows: int = 300) -> bytes:
    path = folder / "source.db"
    log = ImageLog.open(path)
    for number in range(rows):
        log.append(make_record(number, rungs=("y" * 500,)))
    log.close()
    return path.read_bytes()


@pytest.mark.parametrize("damage", ["text", "short", "header", "truncated", "zeroed"])
def test_a_corrupt_file_is_set_aside_named_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    whole = healthy_bytes(tmp_path)
    content = {
        "text": b"\x89PNG and other things " * 1000,
        "short": b"hello",
        "header": b"SQLite format 3\0" + b"\xff" * 5000,
        "truncated": whole[: len(whole) // 3],
        "zeroed": whole[:4096] + bytes(len(whole) - 4096),
    }[damage]
    path = tmp_path / "images.db"
    path.write_bytes(content)
    log = ImageLog.open(path)
    (notice,) = log.notices
    (aside,) = tmp_path.glob("images.db.corrupt-*")
    assert re.fullmatch(r"images\.db\.corrupt-\d{8}T\d{6}Z", aside.name)
    assert str(aside) in notice
    assert aside.read_bytes() == content
    log.append(make_record(1))
    assert log.records() == [make_record(1)]
    log.close()
    assert_healthy(path)


def test_damage_found_while_in_use_is_set_aside_and_the_record_kept(tmp_path: Path) -> None:
    path = tmp_path / "images.db"
    content = bytearray(healthy_bytes(tmp_path))
    # The last row and the schema stay readable, so opening sees nothing.
    table_pages = len(content) // 4096
    for page in range(table_pages // 3, table_pages - 12):
        content[page * 4096 : page * 4096 + 200] = b"\xee" * 200
    path.write_bytes(content)
    log = ImageLog.open(path)
    other = ImageLog.open(path)
    if log.notices or other.notices:
        pytest.skip("this SQLite lays its pages out so that the damage shows at opening")
    assert log.records(limit=-1) == []
    log.append(make_record(7))
    assert len(log.notices) == 1
    # The other connection still has the old file open, so its write-ahead log was there to be set aside as well.
    assert [p.name[-4:] for p in tmp_path.glob("images.db.corrupt-*-wal")] == ["-wal"]
    other.append(make_record(8))
    assert [r.seed for r in log.records()] == [8, 7]
    assert other.notices == ()
    log.close()
    other.close()
    assert_healthy(path)


def test_what_lies_beside_a_corrupt_file_is_not_played_into_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "images.db"
    path.write_bytes(b"no database at all " * 500)
    (tmp_path / "images.db-wal").write_bytes(b"leftover" * 4000)
    (tmp_path / "images.db-shm").write_bytes(b"left" * 8192)
    log = ImageLog.open(path)
    assert len(log.notices) == 1
    log.append(make_record(1))
    log.close()
    reopened = ImageLog.open(path)
    assert reopened.records() == [make_record(1)]
    assert reopened.notices == ()
    reopened.close()
    assert_healthy(path)


@pytest.mark.parametrize("wal", [b"", b"garbage" * 1000], ids=["empty", "garbage"])
def test_a_senseless_write_ahead_log_costs_nothing(tmp_path: Path, wal: bytes) -> None:
    path = tmp_path / "images.db"
    path.write_bytes(healthy_bytes(tmp_path, rows=5))
    (tmp_path / "images.db-wal").write_bytes(wal)
    log = ImageLog.open(path)
    assert log.notices == ()
    assert log.count() == 5
    log.append(make_record(9))
    assert log.count() == 6
    log.close()
    assert_healthy(path)


def test_a_log_deleted_while_in_use_is_begun_anew(tmp_path: Path) -> None:
    log = ImageLog.open(tmp_path / "images.db")
    log.append(make_record(1))
    try:
        for name in ("images.db", "images.db-wal", "images.db-shm"):
            (tmp_path / name).unlink()
    except PermissionError:
        pytest.skip("this system does not let an open file be deleted")
    log.append(make_record(2))
    assert [r.seed for r in log.records()] == [2]
    log.close()


def test_a_newer_version_s_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "images.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="newer version") as caught:
        ImageLog.open(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "images.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE images (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="another program"):
        ImageLog.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["under_a_file", "a_folder"])
def test_a_place_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path, place: str) -> None:
    """A folder below a regular file fails for root as well, whom no permission stops."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    path = tmp_path / "file" / "data" / "images.db" if place == "under_a_file" else tmp_path / "folder"
    with pytest.raises(StorageError) as caught:
        ImageLog.open(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


MAY_NOT_WRITE = """
import os, pathlib, sys
from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.timing import ImageLog
from tests.records import make_record
folder = pathlib.Path(sys.argv[1])
path = folder / "images.db"
log = ImageLog.open(path)
log.append(make_record(1))
log.close()
path.chmod(0o444)
(folder / "images.db.lock").chmod(0o666)
if sys.argv[2] == "folder":
    folder.chmod(0o555)
if os.getuid() == 0:
    os.setuid(65534)
try:
    ImageLog.open(path)
except StorageError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX file permissions")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_only_be_read_is_one_clear_sentence(what: str) -> None:
    """In a child, which stops being root: root may write everything. Not below ``tmp_path``, which only its user may
    enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        process = start(MAY_NOT_WRITE, folder, what)
        output, _ = process.communicate(timeout=60)
        Path(folder).chmod(0o700)
    assert process.returncode == 0
    (sentence,) = output.splitlines()
    assert str(Path(folder) / "images.db") in sentence
    assert "read-only" in sentence or "must be one that can be written" in sentence


FILLS_THE_DISK = """
import pathlib, resource, sys
from sd_webui_spillway.errors import StorageError
from sd_webui_spillway.timing import ImageLog
from tests.records import make_record
path = pathlib.Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
log = ImageLog.open(path)
written = 0
try:
    while True:
        log.append(make_record(written, rungs=("x" * 20_000,)))
        written += 1
except StorageError as error:
    print(written)
    print(error)
    try:
        log.append(make_record(10**6, rungs=("x" * 20_000,)))
    except StorageError:
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.append(make_record(10**7))
    log.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes, which Windows has not")
def test_no_more_room_is_one_clear_sentence_and_costs_no_row(tmp_path: Path) -> None:
    """The file-size limit makes every further write fail as a full disk does, in the middle of the log's files."""
    path = tmp_path / "images.db"
    process = start(FILLS_THE_DISK, path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    written, sentence = output.splitlines()
    assert int(written) > 2
    assert str(path) in sentence
    log = ImageLog.open(path)
    assert log.notices == ()
    seeds = {r.seed for r in log.records(limit=-1)}
    assert seeds >= {*range(int(written)), 10**7}
    log.close()
    assert_healthy(path)


def test_a_full_database_says_the_disk_is_full(tmp_path: Path) -> None:
    """SQLite's own page limit gives the very error (SQLITE_FULL) that a full disk does."""
    log = ImageLog.open(tmp_path / "images.db")
    log.append(make_record(1))
    connection = log._connection
    assert connection is not None
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageError, match="because the disk is full"):
        log.append(make_record(2, rungs=("x" * 100_000,)))
    assert [r.seed for r in log.records()] == [1]
    log.close()
