"""Placing a model for good, between jobs."""

from __future__ import annotations

from sd_webui_spillway.hosts.footprint_meter import FootprintMeter
from sd_webui_spillway.hosts.placer import Placer
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.planning.footprint import AllocatorOverhead
from tests.hosts.test_unknown_footprint import Shapes
from tests.spill_rig import SpillRig


def test_a_switch_goes_by_what_is_free_now_not_by_the_last_job():
    rig = SpillRig(placed=False)
    placer = Placer(
        rig.model, rig.guard, FootprintMeter(rig.components, Shapes(), AllocatorOverhead(), rig.ledger), lambda _: None
    )
    rig.model.set_weights_budget(rig.card.free_bytes())
    others = rig.card.slab(rig.card.free_bytes() - rig.model_bytes * 3 // 4)
    placer.switch(Profile.SPILL)
    assert rig.model.profile is Profile.SPILL, len(others)
    assert rig.spilled()
