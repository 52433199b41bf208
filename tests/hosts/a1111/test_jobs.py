"""Every request of the webui is a job, and the webui works on whatever becomes of the job."""

from __future__ import annotations

import re
import sqlite3
import threading
from contextlib import closing

import pytest

from sd_webui_spillway.errors import UnavailableError
from sd_webui_spillway.hosts.a1111.series import NothingMadeError
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.recovery.guard import LadderExhaustedError
from sd_webui_spillway.timing.image_record import Outcome
from sd_webui_spillway.units import GIB
from tests.hosts.a1111.conftest import Faults

NO_ROOM = "The model's largest layer does not fit on the card: 1 MiB of 0.4 GiB are free."


def test_each_image_has_a_record_with_its_file_and_its_share(rig):
    p = rig.webui.text_to_image(batch_size=2, n_iter=2)
    rig.webui.make(p)
    records = rig.records()
    assert [(record.seed, record.batch_index, record.batch_size) for record in records] == [
        (5, 0, 2), (6, 1, 2), (7, 0, 2), (8, 1, 2),
    ]  # fmt: skip
    assert [record.file_path for record in records] == [str(file) for file in rig.webui.saved]
    assert len({record.record_id for record in records}) == 4
    first = records[0]
    assert (first.host, first.model, first.sampler, first.steps) == ("AUTOMATIC1111", "small", "Euler", 4)
    assert (first.width, first.height, first.outcome) == (16, 16, Outcome.DELIVERED)
    assert (first.profile_asked, first.profile_used, first.device_name) == ("auto", "stream", "Fake card")
    assert first.estimated_dedicated_bytes == 3 * GIB
    assert first.peak_dedicated_bytes == rig.engine.peak
    assert first.peak_shared_bytes == GIB // 2
    assert list(first.stage_seconds) == ["encode", "sample", "decode", "save"]
    assert [record.warm_up for record in records] == [True, True, False, False]
    assert sum(first.stage_seconds.values()) <= first.total_seconds
    assert rig.engine.open_jobs == 0


def test_a_batch_divides_what_it_did_together(rig):
    p = rig.webui.text_to_image(batch_size=4, n_iter=1)
    rig.webui.make(p)
    assert len({record.sample_seconds for record in rig.records()}) == 1
    assert rig.records()[0].steps_per_second == pytest.approx(4 / (4 * rig.records()[0].sample_seconds))


def test_hires_fix_has_a_stage_of_its_own_and_the_final_size(rig):
    p = rig.webui.text_to_image(enable_hr=True, n_iter=1)
    rig.webui.make(p)
    (record,) = rig.records()
    assert (record.width, record.height) == (32, 32)
    assert list(record.stage_seconds) == ["encode", "sample", "hires", "decode", "save"]
    (request, _profile) = rig.engine.requests[0]
    assert (request.width, request.height) == (32, 32)


def test_pictures_that_are_no_finished_images_are_not_recorded(rig):
    p = rig.webui.text_to_image(enable_hr=True, restore_faces=True, grid=True, n_iter=2)
    rig.webui.make(p)
    names = [file.stem for file in rig.webui.saved]
    assert len(names) == 7
    assert [record.file_path for record in rig.records()] == [
        str(file) for file in rig.webui.saved if file.stem.isdigit()
    ]


def test_images_that_are_not_saved_are_recorded_without_a_file(rig):
    rig.webui.make(rig.webui.text_to_image(do_not_save_samples=True, batch_size=2, n_iter=1))
    assert [record.file_path for record in rig.records()] == [None, None]
    delivered = rig.session.last_job().images
    assert [image.path for image in delivered] == [None, None]
    assert rig.session.last_job().paths == ()
    found = rig.session.log.by_id_prefixes([image.record.record_id[:8] for image in delivered])
    assert [record.seed for record in found.values()] == [5, 6]


def test_images_that_a_script_adds_to_a_batch_are_recorded(rig):
    p = rig.webui.text_to_image(n_iter=1, batch_size=2)

    def double(place: str) -> None:
        if place == "batch":
            p.seeds, p.prompts = p.seeds * 2, p.prompts * 2

    rig.webui.at = double
    rig.webui.make(p)
    assert [(record.seed, record.batch_index) for record in rig.records()] == [(5, 0), (6, 1), (5, 2), (6, 3)]


def test_a_batch_folder_asks_with_one_object_again_and_again(rig):
    p = rig.webui.image_to_image(n_iter=1)
    for seed in (5, 50):
        p.seed = seed
        rig.webui.make(p)
    p.seed = 70
    rig.webui.at = Faults("init", ladder=True)
    with pytest.raises(Exception, match="does not fit"):
        rig.webui.make(p)
    assert [record.seed for record in rig.records()] == [5, 50, 70]


def test_a_scripts_request_inside_a_job_joins_it(rig):
    inner = rig.webui.image_to_image(n_iter=1, seed=90, do_not_save_samples=True)

    def repaint(place: str) -> None:
        if place == "picture" and inner.all_seeds is None:
            rig.webui.make(inner)

    rig.webui.at = repaint
    rig.webui.make(rig.webui.text_to_image(n_iter=2))
    assert [record.seed for record in rig.records()] == [5, 6]
    assert len(rig.engine.requests) == 1
    assert rig.records()[0].sample_seconds > 0


def test_a_busy_session_costs_the_webui_nothing(rig, caplog):
    from sd_webui_spillway.host_port import ImageRequest

    with rig.session.foreign_job(ImageRequest()):
        assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]
        rig.webui.make(rig.webui.text_to_image())
    assert rig.records() == []
    assert len([record for record in caplog.records if "without Spillway" in record.message]) == 1


def test_models_that_cannot_be_placed_cost_the_webui_nothing(rig):
    rig.engine.cannot_place = UnavailableError("Another program places the UNet.")
    assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]
    assert rig.session.progress() is None


def test_without_room_for_the_model_nothing_is_tried_and_one_sentence_says_so(rig):
    rig.engine.cannot_place = LadderExhaustedError(NO_ROOM)
    sentence = f"Nothing could be made: {NO_ROOM}"
    with pytest.raises(NothingMadeError, match=re.escape(sentence)):
        rig.webui.make(rig.webui.text_to_image(is_api=True))
    for_a_person = rig.webui.make(rig.webui.text_to_image())
    assert (for_a_person.images, for_a_person.spillway_notices) == ([], (sentence,))
    assert sentence in for_a_person.comments
    assert rig.webui.calls.count("step") == 0
    assert rig.session.last_job().notices == (NO_ROOM,)
    assert rig.session.progress() is None
    rig.engine.cannot_place = None
    assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]


def test_what_was_done_as_the_job_began_is_told_with_its_first_image(rig):
    rig.engine.rungs_at_start = ("the batch does not fit at once",)
    rig.webui.make(rig.webui.text_to_image(n_iter=2))
    assert [record.rungs for record in rig.records()] == [("the batch does not fit at once",), ()]


def test_a_job_waits_for_the_checkpoint_that_is_being_loaded(rig):
    lock = rig.webui["sd_models"].model_data.lock
    lock.acquire()
    thread = threading.Thread(target=rig.webui.make, args=(rig.webui.text_to_image(n_iter=1),))
    thread.start()
    thread.join(0.2)
    assert rig.engine.requests == []
    lock.release()
    thread.join(10)
    assert len(rig.records()) == 1


def test_a_closed_session_costs_the_webui_nothing(rig):
    rig.session.close()
    assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]


def test_records_that_cannot_be_made_cost_the_webui_nothing(rig, monkeypatch):
    def broken() -> int:
        raise ValueError("planned")

    monkeypatch.setattr(rig.engine, "resident_percent", lambda: None)
    rig.webui.make(rig.webui.text_to_image(n_iter=1))
    monkeypatch.setattr(rig.engine, "profile_in_force", broken)
    p = rig.webui.text_to_image(n_iter=2)
    assert rig.shades(rig.webui.make(p)) == [5, 6]
    assert rig.engine.open_jobs == 0
    assert rig.session.progress() is None


def test_a_log_that_another_program_holds_costs_a_message_and_no_image(rig, monkeypatch):
    monkeypatch.setattr("sd_webui_spillway.timing.image_log.BUSY_SECONDS", 0.1)
    rig.session.log._connection.execute("PRAGMA busy_timeout=100")
    with closing(sqlite3.connect(rig.session.log.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert rig.shades(rig.webui.make(rig.webui.text_to_image())) == [5, 6, 7]
    assert len(rig.webui.saved) == 3
    assert len(rig.session.last_job().images) == 3
    (notice,) = [words for words in rig.session.last_job().notices if "image log" in words]
    assert "another program" in notice
    rig.webui.make(rig.webui.text_to_image(n_iter=1))
    assert len(rig.records()) == 1


def test_an_error_of_the_webui_stays_its_own(rig):
    def broken(place: str) -> None:
        if place == "decode":
            raise ValueError("a tensor with all NaNs")

    rig.webui.at = broken
    with pytest.raises(ValueError, match="all NaNs"):
        rig.webui.make(rig.webui.text_to_image())
    assert rig.engine.open_jobs == 0
    rig.webui.at = lambda place: None
    rig.webui.make(rig.webui.text_to_image(n_iter=1))
    assert len(rig.records()) == 1


def test_steps_and_stage_are_told_while_it_runs(rig):
    seen = []

    def look(place: str) -> None:
        progress = rig.session.progress()
        if place == "step":
            seen.append((progress.stage, progress.step, rig.engine.whereabouts()))

    rig.webui.at = look
    rig.webui.make(rig.webui.text_to_image(n_iter=1))
    assert seen[1:] == [
        ("sample", 1, "at step 2 of 4"), ("sample", 2, "at step 3 of 4"), ("sample", 3, "at step 4 of 4"),
    ]  # fmt: skip
    assert rig.engine.whereabouts() == ""


def test_stop_interrupts_the_webui(rig):
    def stop(place: str) -> None:
        if place == "step" and rig.webui.calls.count("step") == 6:
            assert rig.session.stop()

    rig.webui.at = stop
    rig.webui.make(rig.webui.text_to_image())
    result = rig.session.last_job()
    assert result.interrupted
    assert [image.record.seed for image in result.images] == [5, 6]
    cut_short = rig.records()[1]
    assert cut_short.steps < 4
    assert "Stopped by the user" in cut_short.message


def test_skip_ends_one_batch_and_is_told(rig):
    def skip(place: str) -> None:
        if place == "step" and rig.webui.calls.count("step") == 2:
            rig.webui.state.skipped = True

    rig.webui.at = skip
    rig.webui.make(rig.webui.text_to_image(n_iter=2))
    assert rig.session.last_job().interrupted
    assert [record.steps for record in rig.records()] == [2, 4]


def test_a_cell_of_a_plot_has_its_own_profile_and_cap(rig):
    rig.session.set_cap(4 * GIB, None)
    seen = []
    rig.webui.at = lambda place: seen.append(rig.session.settings.cap_bytes)
    rig.webui.make(rig.webui.text_to_image(n_iter=1, spillway_profile=Profile.LOWVRAM, spillway_cap_bytes=GIB))
    assert rig.engine.requests[-1][1] is Profile.LOWVRAM
    assert set(seen) == {GIB}
    assert rig.session.settings.cap_bytes == 4 * GIB
    rig.webui.make(rig.webui.text_to_image(n_iter=1))
    assert rig.engine.requests[-1][1] is Profile.AUTO


def test_afterwards_the_webui_is_as_it_was(rig):
    processing = rig.webui.processing
    rig.patches.undo()
    assert "patched" not in processing.process_images_inner.__code__.co_name
    assert "setup_conds" in vars(processing.StableDiffusionProcessingTxt2Img)
    rig.webui.at = Faults("step", ladder=True)
    with pytest.raises(Exception, match="does not fit"):
        rig.webui.make(rig.webui.text_to_image())
    assert rig.records() == []
