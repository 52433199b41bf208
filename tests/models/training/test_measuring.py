from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import torch
from conftest import FEW
from PIL import Image
from standins import DrawingPipeline, Knowing

from sd_webui_spillway.errors import BadInputError
from sd_webui_spillway.models.pictures import Group, Pair, Thing, caption, is_held_out, random_scene
from sd_webui_spillway.models.training.classifier_pictures import things_scene
from sd_webui_spillway.models.training.judging import judge
from sd_webui_spillway.models.training.measure import (
    MeasureSettings,
    Outcome,
    held_out_scenes,
    kind_of,
    measure,
    seed_of,
    wilson,
)  # fmt: skip
from sd_webui_spillway.models.training.sheet import write_sheets

SMALL = MeasureSettings(steps=3, guidance_scale=5.0, width=64, height=64, batch=5)


def another_colour(scene):
    other = "red" if scene.thing.colour != "red" else "blue"
    return replace(scene, thing=replace(scene.thing, colour=other))


def one_more(scene):
    return replace(scene, count=scene.count % 5 + 1, place="")


def measured(scenes, instead_of=None, progress=None):
    """With a stand-in pipeline and a classifier that knows its pictures; also gives the pipeline."""
    pipeline, knowing = DrawingPipeline(scenes, instead_of), Knowing()
    knowing.learn([(scene, seed_of(scene)) for scene in scenes], 64)
    knowing.learn([(shown, seed_of(pipeline.scenes[words])) for words, shown in pipeline.instead_of.items()], 64)
    return measure(pipeline, knowing, scenes, SMALL, progress), pipeline


def test_right_pictures_count_as_right():
    scenes, told = held_out_scenes(13), []
    found, pipeline = measured(scenes, progress=lambda *done: told.append(done))
    counted = found.as_json()
    assert {name: share["share"] for name, share in counted["drawn_by_model"]["all"].items()} == dict.fromkeys(
        ("colour", "shape", "count", "binding", "texture", "relation", "everything")
        + (("place",) if any(isinstance(one, Group) and one.place for one in scenes) else ()), 1.0
    )  # fmt: skip
    assert counted["drawn_by_model"]["failures"] == []
    assert counted["drawn_by_project"]["all"]["everything"]["share"] == 1.0
    assert told == [(5, 13), (10, 13), (13, 13)]
    assert [len(call[0]) for call in pipeline.calls] == [5, 5, 3]
    assert all(call[1:5] == (3, 5.0, 64, 64) for call in pipeline.calls)


def test_wrong_pictures_count_as_wrong_in_what_is_wrong_about_them():
    scenes = [scene for scene in held_out_scenes(30) if isinstance(scene, Group)]
    recoloured, miscounted = scenes[:6], scenes[6:10]
    instead_of = {caption(scene): another_colour(scene) for scene in recoloured}
    instead_of |= {caption(scene): one_more(scene) for scene in miscounted}
    found, _ = measured(scenes, instead_of)
    counted = found.as_json()
    model, total = counted["drawn_by_model"]["all"], len(scenes)
    assert (model["colour"]["right"], model["colour"]["of"]) == (total - 6, total)
    assert model["binding"]["right"] == total - 6
    assert model["count"]["right"] == total - 4
    assert model["shape"]["right"] == model["texture"]["right"] == total
    assert model["everything"]["right"] == total - 10
    by_count = counted["drawn_by_model"]["by_kind"]
    assert set(by_count) == {"1", "2", "3", "4", "5"}
    for kind, expected in Counter(kind_of(scene) for scene in miscounted).items():
        assert by_count[kind]["count"]["of"] - by_count[kind]["count"]["right"] == expected
    failures = counted["drawn_by_model"]["failures"]
    assert [one["caption"] for one in failures] == [caption(scene) for scene in recoloured + miscounted]
    assert failures[0]["seed"] == seed_of(recoloured[0])
    assert {"colour", "binding"} == set(failures[0]["wrong"])
    assert another_colour(recoloured[0]).thing.colour in failures[0]["seen"]
    assert counted["drawn_by_project"]["all"]["everything"]["right"] == total


def test_with_a_classifier_that_really_sees(quick):
    random = Random(7)
    scenes = [scene for scene in (things_scene(random, FEW) for _ in range(80)) if isinstance(scene, Group)]
    scenes = list({caption(scene): scene for scene in scenes}.values())[:40]
    settings = replace(SMALL, batch=20)
    right = measure(DrawingPipeline(scenes), quick, scenes, settings).as_json()
    wrong = measure(
        DrawingPipeline(scenes, {caption(scene): another_colour(scene) for scene in scenes}), quick, scenes, settings
    ).as_json()
    assert right["drawn_by_model"]["all"]["colour"]["share"] > 0.9
    assert wrong["drawn_by_model"]["all"]["colour"]["share"] < 0.1
    assert wrong["drawn_by_project"] == right["drawn_by_project"]


def test_everything_that_a_figure_depends_on_is_recorded():
    found, _ = measured(held_out_scenes(6))
    counted = json.loads(json.dumps(found.as_json()))
    assert counted["settings"] == {
        "captions": 6, "steps": 3, "guidance_scale": 5.0, "sampler": "SimpleNamespace", "width": 64, "height": 64,
        "batch": 5, "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    assert {"model_seconds", "classifier_accuracy"} <= set(counted)


def test_a_seed_belongs_to_its_caption_whatever_the_batch():
    scenes = held_out_scenes(12)
    _, pipeline = measured(scenes)
    assert [seed for call in pipeline.calls for seed in call[5]] == [seed_of(scene) for scene in scenes]
    assert len({seed_of(scene) for scene in scenes}) == 12


def test_a_broken_picture_is_a_wrong_one(quick):
    class Broken(DrawingPipeline):
        def __call__(self, **options):
            answer = super().__call__(**options)
            answer.images = torch.full_like(answer.images, float("nan"))
            return answer

    scenes = held_out_scenes(6)
    found = measure(Broken(scenes), quick, scenes, SMALL).as_json()
    assert found["drawn_by_model"]["all"]["everything"]["right"] == 0


def test_held_out_scenes_are_balanced_and_distinct_and_never_trained_on():
    scenes = held_out_scenes(200)
    assert len({caption(scene) for scene in scenes}) == 200
    assert set(Counter(map(kind_of, scenes)).values()) <= {33, 34}
    assert held_out_scenes(200) == scenes != held_out_scenes(200, seed=1)
    random = Random(0)
    trained = {caption(scene) for scene in (random_scene(random) for _ in range(20_000)) if not is_held_out(scene)}
    assert not trained & {caption(scene) for scene in scenes}
    for scene in scenes:  # nor would another size, place or background of a pair make it one that is trained on
        if isinstance(scene, Pair):
            variants = [replace(scene, background="grey", first=replace(scene.first, size="big"))]
        else:
            variants = [replace(scene, place="", thing=replace(scene.thing, size=size)) for size in ("small", "big")]
        assert all(map(is_held_out, variants))


@pytest.mark.parametrize("count", [0, 601])
def test_more_captions_than_there_are_is_said_in_a_sentence(count):
    with pytest.raises(BadInputError, match="from 1 to 600"):
        held_out_scenes(count)


def test_wilsons_interval():
    low, high = wilson(190, 200)  # by hand: (0.95 + 0.0096 ± 0.0317) / 1.0192
    assert low == pytest.approx(0.9104, abs=5e-4)
    assert high == pytest.approx(0.9726, abs=5e-4)
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=5e-4), pytest.approx(1.0))
    assert wilson(0, 0) == (None, None)


def noisy_outcomes(count):
    """Half of them wrong; pictures of noise, the worst to store."""
    scene, generator = Group(Thing("heart", "red", "checkered", "small"), 5, "yellow"), torch.Generator().manual_seed(0)
    parts = ("colour", "shape", "count", "binding", "texture")
    return [
        Outcome(
            scene, n, (), replace(judge(scene, ()), **dict.fromkeys(parts, n % 2 == 0)),
            torch.randint(0, 256, (3, 256, 256), generator=generator, dtype=torch.uint8),
        ) for n in range(count)
    ]  # fmt: skip


def test_sheets_are_small_and_apart(tmp_path):
    right, wrong = write_sheets(noisy_outcomes(50), tmp_path / "sheets", most=24)
    assert (right.name, wrong.name) == ("right.png", "wrong.png")
    for path in (right, wrong):
        assert path.stat().st_size <= 500_000
    with Image.open(right) as one, Image.open(wrong) as other:
        assert one.width > 400
        assert other.height / other.width > one.height / one.width  # what was seen stands beneath, too


def test_a_sheet_with_nothing_to_show_is_not_written(tmp_path):
    found, _ = measured(held_out_scenes(8))
    assert [path.name for path in write_sheets(found.drawn_by_model, tmp_path)] == ["right.png"]
    with Image.open(tmp_path / "right.png") as sheet:
        beneath = sheet.convert("L").crop((0, 155, sheet.width, 190))
        assert beneath.getextrema()[0] < 100  # ink
