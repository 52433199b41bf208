"""A component that cannot be run without memory: what it needs is unknown, with the reason, and jobs run anyway."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.hosts.footprint_meter import FootprintMeter
from sd_webui_spillway.hosts.placer import Placer
from sd_webui_spillway.memory.shared_ledger import SharedLedger
from sd_webui_spillway.placement.component import ComponentKind
from sd_webui_spillway.placement.profile import PROFILES, Profile
from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.simulated_link import SimulatedLink
from sd_webui_spillway.planning.footprint import AllocatorOverhead
from sd_webui_spillway.units import KIB, MIB
from tests.placed_rig import Rig, assert_same, unplaced_job

REQUEST = ImageRequest(width=64, height=64)
BECAUSE = "because the unet's work cannot be counted (no size yet)."


class Shapes:
    """Of the small model, whose UNet has to be told a size first."""

    def __init__(self) -> None:
        self.asked = 0

    def adapt(self, copy):
        pass

    def counts(self, component):
        return component.kind is not ComponentKind.TEXT_ENCODER

    def inputs(self, component, call, request):
        if component.kind is ComponentKind.UNET:
            self.asked += 1
            raise TypeError("no size yet")
        return (torch.zeros(1, 4 if call == "decode" else 3, 8, 8),), {}

    def vae_channels(self):
        return (8, 16)

    def vae_item_bytes(self):
        return 4


@pytest.fixture
def rig():
    rig = Rig(SimulatedCard(256 * MIB, SimulatedLink()))
    rig.shapes, rig.said = Shapes(), []
    meter = FootprintMeter(rig.components, rig.shapes, AllocatorOverhead(), SharedLedger())
    rig.placer = Placer(rig.model, rig.guard, meter, rig.said.append)
    return rig


def test_every_profile_says_that_it_is_unknown_and_why(rig):
    predictions = rig.placer.predict(REQUEST)
    assert set(predictions) == set(PROFILES) - {Profile.AUTO}
    for prediction in predictions.values():
        assert (prediction.dedicated_bytes, prediction.fits, prediction.note) == (None, None, f"Unknown, {BECAUSE}")
    rig.placer.predict(REQUEST)
    assert rig.shapes.asked == 1, "what fails is tried once"


def test_auto_guesses_and_says_so(rig):
    chosen = rig.placer.choose(REQUEST)
    assert (chosen.profile, chosen.peak_bytes) == (Profile.DEDICATED, None)
    assert BECAUSE in chosen.reason
    others = rig.card.slab(rig.card.free_bytes() - 64 * KIB)
    assert rig.placer.choose(REQUEST).profile is not Profile.DEDICATED, len(others)


@pytest.mark.parametrize("profile", list(Profile))
def test_a_job_runs_without_an_estimate(rig, profile):
    plan = rig.placer.plan_job(REQUEST, profile)
    assert plan.estimated_dedicated_bytes is None
    assert any(BECAUSE.rstrip(".") in notice for notice in plan.notices)
    placed = rig.placer.begin_job(plan, REQUEST)
    assert placed is profile or profile is Profile.AUTO
    assert_same(rig.run_job(), unplaced_job())
    assert rig.rungs == rig.said == []


def test_a_component_that_cannot_even_be_copied(rig, monkeypatch):
    class Uncopied:
        def __deepcopy__(self, memo):
            raise TypeError("no size yet")

    rig.unet.module.kept = Uncopied()
    meter = FootprintMeter(rig.components, rig.shapes, AllocatorOverhead())
    placer = Placer(rig.model, rig.guard, meter, rig.said.append)
    assert {prediction.note for prediction in placer.predict(REQUEST).values()} == {f"Unknown, {BECAUSE}"}
    assert rig.shapes.asked == 0
