from __future__ import annotations

from random import Random

import pytest
import torch
from conftest import FEW

from sd_webui_spillway.errors import ModelFileError
from sd_webui_spillway.models.embedded import CLASSIFIER_FILE
from sd_webui_spillway.models.pictures import Group, Pair, Thing, layers_of, render
from sd_webui_spillway.models.training.classifier import Classifier, SeenThing
from sd_webui_spillway.models.training.classifier_pictures import (
    MOST_THINGS,
    Vocabulary,
    draw_pool,
    mixture,
    seen_in,
    softened,
    things_scene,
)  # fmt: skip
from sd_webui_spillway.models.training.classifier_training import accuracy
from sd_webui_spillway.models.training.judging import in_words, judge
from sd_webui_spillway.models.training.measure import MeasureSettings, draw_and_judge, held_out_scenes, shares


def test_it_learns_far_beyond_chance(quick):
    found = quick.accuracy
    assert found["colour"] > 1 / 3 + 0.5
    assert found["shape"] > 1 / 2 + 0.15
    assert found["count"] > 1 / 4 + 0.6
    assert found["place"] > 1 / 5 + 0.6


def test_a_wrong_label_is_noticed(quick):
    """The same pictures, judged by captions of another colour and another count."""
    random = Random(5)
    groups = [scene for scene in (things_scene(random, FEW) for _ in range(120)) if isinstance(scene, Group)]
    seen = quick.see(render([layers_of(scene, random, 64) for scene in groups], 64, 64))
    right = wrong_colour = wrong_count = 0
    for scene, things in zip(groups, seen, strict=True):
        right += judge(scene, things).colour and judge(scene, things).count
        other = {"red": "green", "green": "blue", "blue": "red"}[scene.thing.colour]
        wrong_colour += judge(Group(Thing(scene.thing.shape, other), scene.count, "white"), things).colour
        wrong_count += judge(Group(scene.thing, scene.count % 5 + 1, "white"), things).count
    assert right > 0.9 * len(groups)
    assert wrong_colour < 0.1 * len(groups)
    assert wrong_count < 0.1 * len(groups)


def test_accuracy_is_the_same_each_time(quick):
    assert accuracy(quick, 40, 9, FEW) == accuracy(quick, 40, 9, FEW)


def test_a_file_keeps_what_it_sees(quick, tmp_path):
    quick.save(tmp_path / "classifier.safetensors")
    again = Classifier.load(tmp_path / "classifier.safetensors")
    assert again.accuracy == quick.accuracy
    pictures = render([mixture(Random(n), FEW) for n in range(24)], 64, 64)
    before = [sorted((one.colour, one.shape, one.x) for one in seen) for seen in quick.see(pictures)]
    after = [sorted((one.colour, one.shape, one.x) for one in seen) for seen in again.see(pictures)]
    assert sum(a == b for a, b in zip(before, after, strict=True)) >= 22  # float16 may turn a close call


def test_the_full_size_stays_small(tmp_path):
    classifier = Classifier()
    assert sum(weights.numel() for weights in classifier.parameters()) <= 250_000
    classifier.save(tmp_path / "classifier.safetensors")
    assert (tmp_path / "classifier.safetensors").stat().st_size <= 500_000


def test_a_file_of_something_else_is_refused_in_one_sentence(tmp_path):
    from safetensors.torch import save_file

    with pytest.raises(ModelFileError, match="is missing"):
        Classifier.load(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(1)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(ModelFileError, match="not a classifier"):
        Classifier.load(tmp_path / "other.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"12345678{")
    with pytest.raises(ModelFileError, match="cannot be read"):
        Classifier.load(tmp_path / "cut.safetensors")


def test_a_pool_says_what_is_in_its_pictures():
    told = []
    pool = draw_pool(30, 64, torch.device("cpu"), Random(1), Vocabulary(), lambda *done: told.append(done))
    assert pool.pictures.shape == (30, 3, 64, 64)
    assert pool.pictures.dtype == torch.uint8
    assert pool.names.shape == (30, MOST_THINGS, 3)
    assert told == [(30, 30)]
    again = draw_pool(30, 64, torch.device("cpu"), Random(1), Vocabulary())
    assert torch.equal(pool.pictures, again.pictures)
    assert torch.equal(pool.names, again.names)


def test_marks_leave_the_picture_recognisable():
    pictures = render([mixture(Random(n), Vocabulary()) for n in range(8)], 64, 64)
    marked = softened(pictures, torch.Generator().manual_seed(0))
    assert 0 <= float(marked.min()) <= float(marked.max()) <= 1
    assert 0.003 < float((marked - pictures).abs().mean()) < 0.05


HEART, RING = Thing("heart", "red"), Thing("ring", "blue", "dotted")


def seen(thing, x=0.5, y=0.5):
    return SeenThing(thing.shape, thing.colour, thing.texture, x, y)


def test_a_pair_is_right_only_with_each_on_its_side():
    scene = Pair(HEART, RING, "left of", "white")
    right = judge(scene, [seen(HEART, 0.25), seen(RING, 0.75)])
    assert right.everything
    assert right.place is None
    turned = judge(scene, [seen(HEART, 0.75), seen(RING, 0.25)])
    assert turned.binding
    assert turned.relation is False
    assert not turned.everything
    swapped = judge(scene, [seen(Thing("heart", "blue"), 0.25), seen(Thing("ring", "red", "dotted"), 0.75)])
    assert swapped.colour
    assert swapped.shape
    assert swapped.count
    assert swapped.texture
    assert not swapped.binding
    assert swapped.relation is False


@pytest.mark.parametrize(
    ("things", "wrong"),
    [
        ([], {"colour", "shape", "count", "binding", "texture", "place"}),
        ([seen(HEART, 0.75)], {"place"}),
        ([seen(HEART, 0.25), seen(HEART, 0.75)], {"count", "place"}),
        ([seen(Thing("heart", "red", "striped"), 0.25)], {"texture"}),
        ([seen(Thing("something else", "red"), 0.25)], {"shape", "binding"}),
    ],
)
def test_what_is_wrong_is_named(things, wrong):
    verdict = judge(Group(HEART, 1, "white", "left"), things)
    parts = ("colour", "shape", "count", "binding", "texture", "place")
    assert {part for part in parts if not getattr(verdict, part)} == wrong
    assert verdict.relation is None


def test_what_is_seen_is_said_in_words():
    assert in_words([seen(HEART), seen(RING), seen(HEART)]) == "2 red heart, 1 dotted blue ring"
    assert in_words([]) == "nothing"


def test_a_faultless_classifier_would_find_every_scene_right():
    random = Random(3)
    for _ in range(300):
        scene = things_scene(random, Vocabulary())
        assert judge(scene, seen_in(layers_of(scene, random, 64))).everything


def test_the_packaged_classifier_sees_what_the_project_draws():
    assert CLASSIFIER_FILE.stat().st_size <= 500_000
    outcomes = draw_and_judge(Classifier.load(CLASSIFIER_FILE), held_out_scenes(60), MeasureSettings(batch=20))
    for quality in ("colour", "shape", "count", "binding"):
        assert shares(outcomes)[quality].right >= 59
