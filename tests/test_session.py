"""The session over a host that makes no pictures: jobs, settings, caps, profiles and the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from sd_webui_spillway.errors import BadInputError, SpillwayError, StorageError, UnavailableError
from sd_webui_spillway.host_port import (
    Choice,
    DeliveredImage,
    HostInfo,
    ImageRequest,
    JobObserver,
    JobResult,
    Prediction,
)
from sd_webui_spillway.memory import MemoryProvider, MemoryReader, Monitor
from sd_webui_spillway.memory.snapshot import Reading
from sd_webui_spillway.placement import Profile
from sd_webui_spillway.session import Session
from sd_webui_spillway.settings import Settings, SettingsFile
from sd_webui_spillway.timing import ImageLog, Outcome, badge_text
from tests.records import make_record

GIB = 2**30


class Ram:
    name = "RAM"

    def read(self) -> Reading:
        return Reading({"ram_total_bytes": 10 * GIB, "ram_used_bytes": GIB})


class SmallHost:
    """Delivers records at once. ``during`` runs in the middle of a job, after its first image."""

    def __init__(self) -> None:
        self.switched: list[Profile] = []
        self.generated: list[Profile] = []
        self.during: Callable[[JobObserver], None] = lambda observer: None
        self.error: Exception | None = None
        self.closed = 0

    def info(self) -> HostInfo:
        return HostInfo(
            "tests", "tiny", "a card", True, samplers=("default", "euler"),
            unavailable_profiles={Profile.LOWVRAM: "this host has no blocks", Profile.SPILL: "its card has no link"},
        )

    def memory_providers(self) -> tuple[MemoryProvider, ...]:
        return ()

    def turn(self):
        return nullcontext()

    def switch(self, profile: Profile) -> None:
        if self.error is not None:
            raise self.error
        self.switched.append(profile)

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        return {Profile.MEDVRAM: Prediction(GIB * request.batch_size, True, "fits")}

    def choose(self, request: ImageRequest) -> Choice:
        return Choice(Profile.MEDVRAM, "it fits", GIB)

    def generate(
        self, request: ImageRequest, profile: Profile, job_id: str, folder: Path, observer: JobObserver
    ) -> JobResult:
        self.generated.append(profile)
        if self.error is not None:
            raise self.error
        observer.profile(Profile.MEDVRAM)
        images = []
        for index in range(request.image_count):
            if observer.stop_requested():
                return JobResult(job_id, tuple(images), interrupted=True)
            for step in range(request.steps):
                observer.step(step, request.steps)
            observer.stage("decode")
            record = make_record(
                index, record_id=f"{job_id[:24]}{index:08x}", job_id=job_id, steps=request.steps, warm_up=index == 0
            )
            observer.image(record)
            images.append(DeliveredImage(record, folder / f"{index}.png"))
            if index == 0:
                observer.rung("ran out; tiled")
                self.during(observer)
        lost = make_record(99, record_id=f"{job_id[:24]}ffffffff", job_id=job_id, outcome=Outcome.GIVEN_UP)
        observer.image(lost)
        return JobResult(job_id, tuple(images), (lost,), ("random weights",))

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def host() -> SmallHost:
    return SmallHost()


@pytest.fixture
def session(host: SmallHost, tmp_path: Path) -> Iterator[Session]:
    session = Session(
        host, Monitor(MemoryReader([Ram()])), ImageLog.open(tmp_path / "data" / "images.db"),
        SettingsFile(tmp_path / "data" / "settings.json"), tmp_path / "outputs",
    )
    yield session
    host.error = None
    session.close()


def test_a_job_is_delivered_and_every_image_logged(session: Session, host: SmallHost) -> None:
    result = session.generate(ImageRequest(batch_size=2, batch_count=2, steps=3))
    assert len(result.images) == 4
    assert result.notices == ("random weights",)
    assert session.last_job() == result
    assert session.progress() is None
    assert session.log.count() == 5
    assert {r.job_id for r in session.log.records()} == {result.job_id}
    assert [r.outcome for r in session.log.records()].count(Outcome.GIVEN_UP) == 1
    assert host.generated == [Profile.AUTO]
    assert badge_text(session.log.records()[-1]).endswith("medvram")


def test_progress_of_a_running_job(session: Session, host: SmallHost) -> None:
    seen = []
    host.during = lambda observer: seen.append(session.progress())
    session.generate(ImageRequest(batch_size=1, batch_count=3, steps=4), Profile.MEDVRAM)
    (progress,) = seen
    assert progress is not None
    assert (progress.image_index, progress.image_count) == (1, 3)
    assert progress.stage == "decode"
    assert progress.profile == "medvram"
    assert progress.rungs == ("ran out; tiled",)
    assert progress.seconds_per_image is not None
    assert progress.remaining_seconds == pytest.approx(2 * progress.seconds_per_image)


def test_stop_ends_the_job_and_keeps_what_is_finished(session: Session, host: SmallHost) -> None:
    assert not session.stop()
    host.during = lambda observer: assert_true(session.stop())
    result = session.generate(ImageRequest(batch_count=3, steps=1))
    assert result.interrupted
    assert len(result.images) == 1
    assert session.log.count() == 1


def assert_true(value: bool) -> None:
    assert value


def test_a_second_job_or_switch_is_refused_while_one_runs(session: Session, host: SmallHost) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait(_observer: JobObserver) -> None:
        started.set()
        assert go_on.wait(10)

    host.during = wait
    thread = threading.Thread(target=session.generate, args=(ImageRequest(steps=1),))
    thread.start()
    try:
        assert started.wait(10)
        with pytest.raises(UnavailableError, match="A job is running"):
            session.generate(ImageRequest(steps=1))
        with pytest.raises(UnavailableError, match="A job is running"):
            session.set_profile(Profile.MEDVRAM)
    finally:
        go_on.set()
        thread.join()
    assert session.set_profile(Profile.MEDVRAM) >= 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 0}, "width"), ({"height": 10**6}, "height"), ({"width": 513}, "multiple of 8"),
        ({"steps": 0}, "steps"), ({"batch_size": 65}, "batch size"), ({"batch_count": 0}, "batch count"),
        ({"seed": -1}, "seed"), ({"sampler": "nonsense"}, "no sampler"), ({"strength": 0.0}, "strength"),
        ({"guidance_scale": 101.0}, "guidance"), ({"init_image": Path("missing.png")}, "no picture"),
    ],
)
def test_bad_input_is_one_sentence_and_no_job(
    session: Session, host: SmallHost, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        session.generate(replace(ImageRequest(), **changes))
    assert host.generated == []


@pytest.mark.parametrize(
    ("profile", "words"), [(Profile.SPILL, "has no link"), (Profile.LOWVRAM, "has no blocks")]
)
def test_an_unavailable_profile_says_why(session: Session, host: SmallHost, profile: Profile, words: str) -> None:
    with pytest.raises(UnavailableError, match=words):
        session.set_profile(profile)
    with pytest.raises(BadInputError, match=words):
        session.generate(ImageRequest(), profile)
    assert host.switched == host.generated == []


def test_a_job_that_fails_leaves_the_session_usable(session: Session, host: SmallHost) -> None:
    host.error = SpillwayError("There is no memory for anything.")
    with pytest.raises(SpillwayError, match="no memory"):
        session.generate(ImageRequest(steps=1))
    assert session.progress() is None
    host.error = None
    assert session.generate(ImageRequest(steps=1)).images


def test_a_switch_is_made_and_remembered_and_the_host_is_told_of_auto(
    session: Session, host: SmallHost, tmp_path: Path
) -> None:
    session.set_profile(Profile.MEDVRAM)
    session.set_profile(Profile.AUTO)
    session.set_profile(Profile.SEQUENTIAL)
    assert host.switched == [Profile.MEDVRAM, Profile.AUTO, Profile.SEQUENTIAL]
    assert SettingsFile(tmp_path / "data" / "settings.json").value.profile is Profile.SEQUENTIAL
    session.generate(ImageRequest(steps=1))
    assert host.generated == [Profile.SEQUENTIAL]


def test_a_switch_that_fails_leaves_the_choice_as_it_was(session: Session, host: SmallHost) -> None:
    session.set_profile(Profile.MEDVRAM)
    host.error = SpillwayError("It does not fit.")
    with pytest.raises(SpillwayError):
        session.set_profile(Profile.DEDICATED)
    assert session.settings.profile is Profile.MEDVRAM


def test_the_cap_is_the_lower_of_size_and_share(session: Session) -> None:
    assert session.cap_bytes() == 3 * GIB  # 30 % of 10 GiB is below 6 GiB
    assert session.set_cap(2 * GIB, 50.0) == 2 * GIB
    assert session.set_cap(8 * GIB, 50.0) == 5 * GIB
    assert session.cap_bytes() == 5 * GIB
    assert session.set_cap(0, None) == 0
    with pytest.raises(BadInputError):
        session.set_cap(None, 101.0)
    assert session.cap_bytes() == 0
    assert session.set_cap(None, None) == 3 * GIB


def test_profile_rows_hold_predictions_and_what_was_measured(session: Session) -> None:
    session.generate(ImageRequest(batch_size=2, batch_count=2))
    rows = {row.profile: row for row in session.profile_rows(ImageRequest(batch_size=2))}
    assert list(rows) == list(Profile)
    assert rows[Profile.AUTO].in_use
    medvram = rows[Profile.MEDVRAM]
    assert (medvram.predicted_dedicated_bytes, medvram.fits) == (2 * GIB, True)
    assert (medvram.measured_seconds, medvram.measured_count) == (1.84, 3)  # the first was a warm-up
    assert rows[Profile.DEDICATED].measured_seconds is None
    assert rows[Profile.LOWVRAM].unavailable_because == "this host has no blocks"


def test_a_log_that_cannot_be_written_costs_no_image_and_is_said_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(record: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(session.log, "append", full)
    result = session.generate(ImageRequest(batch_count=3, steps=1))
    assert len(result.images) == 3
    assert result.notices == ("random weights", "The disk is full.")


def test_a_log_replaced_during_a_job_is_named_in_its_notices(session: Session, host: SmallHost) -> None:
    def spoil(_observer: JobObserver) -> None:
        for path in session.log.path.parent.glob("images.db*"):
            if not path.name.endswith(".lock"):
                path.unlink()
        session.log.path.write_bytes(b"no database " * 1000)

    host.during = spoil
    result = session.generate(ImageRequest(batch_count=3, steps=1))
    assert len(result.images) == 3
    assert "was damaged" in result.notices[-1]
    assert session.log.count() == 3  # all after the damage, the image given up included


def test_closing_closes_the_log_also_when_the_host_fails(session: Session, host: SmallHost) -> None:
    host.error = SpillwayError("It cannot be undone.")
    with pytest.raises(SpillwayError):
        session.close()
    assert not session.monitor.running
    with pytest.raises(StorageError, match="closed"):
        session.log.count()


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "[]", "5", '{"profile": "fast"}', '{"cap_bytes": "6 GiB"}', '{"cap_bytes": -1}',
        '{"cap_bytes": 1.5}',
        '{"cap_ram_percent": NaN}', '{"cap_ram_percent": []}', '{"badges": "yes"}', "\udcff",
    ],
)
def test_settings_that_make_no_sense_are_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert SettingsFile(path).value == Settings()


def test_settings_are_kept_and_unknown_ones_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.json"
    file = SettingsFile(path)
    file.change(profile=Profile.LOWVRAM, cap_bytes=5, badges=False)
    assert SettingsFile(path).value == Settings(Profile.LOWVRAM, 5, None, False)
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]
    path.write_text('{"badges": false, "of_a_later_version": 1}')
    assert SettingsFile(path).value == Settings(badges=False)


def test_settings_that_cannot_be_saved_hold_for_the_session_and_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    file = SettingsFile(tmp_path / "file" / "settings.json")
    with pytest.raises(StorageError, match="cannot be saved"):
        file.change(badges=False)
    assert not file.value.badges


def test_a_job_that_the_host_makes_by_itself_is_followed_logged_and_kept(session: Session) -> None:
    with session.foreign_job(ImageRequest(steps=4), Profile.MEDVRAM) as job:
        job.tracker.step(1, 4)
        assert session.progress().job_id == job.job_id
        with pytest.raises(UnavailableError, match="A job is running"):
            session.set_profile(Profile.DEDICATED)
        record = job.tracker.image(make_record(job_id=job.job_id))
        job.result = JobResult(job.job_id, (DeliveredImage(record, Path("a.png")),))
    assert session.progress() is None
    assert session.last_job().job_id == job.job_id
    assert [row.record_id for row in session.log.records()] == [record.record_id]
