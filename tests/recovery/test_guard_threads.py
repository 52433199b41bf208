"""The guard beside other work in the same process: previews decoded in another thread, and another extension's hook."""

from __future__ import annotations

import threading

import torch

from sd_webui_spillway.placement.profile import Profile
from tests.placed_rig import Rig, assert_same, unplaced_job


def test_a_call_of_another_thread_takes_its_turn():
    rig = Rig()
    rig.model.switch(Profile.MEDVRAM)
    expected = unplaced_job()
    running, seen = threading.Event(), []
    latents = torch.zeros(1, 4, 4, 4)

    def preview():
        running.wait(10)
        with torch.no_grad():
            seen.append(rig.vae.module.decode(latents).sample)

    thread = threading.Thread(target=preview)
    thread.start()
    hook = rig.unet.module.conv_in.register_forward_pre_hook(lambda module, args: running.set() or thread.join(0.3))
    results = rig.run_job()
    hook.remove()
    thread.join(10)
    assert len(seen) == 1
    assert_same(results, expected)
    assert rig.rungs == []


def test_the_placement_is_not_changed_during_a_call_of_another_thread():
    rig = Rig()
    rig.model.switch(Profile.DEDICATED)
    inside, order = threading.Event(), []
    hook = rig.unet.module.conv_in.register_forward_pre_hook(lambda module, args: inside.set() or settled.join(0.3))
    rig.unet.module.conv_in.register_forward_hook(lambda module, args, output: order.append("call"))

    def settle():
        inside.wait(10)
        rig.guard.settle(Profile.LOWVRAM)
        order.append("settled")

    settled = threading.Thread(target=settle)
    settled.start()
    with torch.no_grad():
        text = rig.text.module(torch.zeros(1, 6, dtype=torch.long))
        rig.unet.module(
            torch.zeros(1, 4, 2, 2), torch.tensor(1), encoder_hidden_states=text.last_hidden_state,
            added={"time_ids": torch.zeros(1, 8)},
        )
    settled.join(10)
    hook.remove()
    assert order == ["call", "settled"]


def test_rows_that_were_to_be_split_stay_whole_under_a_hook_that_came_since():
    hooked = []
    rig = Rig(whole_batch_because=lambda component: "of a hook" if hooked else None)
    rig.model.switch(Profile.MEDVRAM)
    rows = []
    rig.unet.module.conv_in.register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    with rig.guard.job():
        rig.guard.plan_rows(rig.unet, "forward", 1, "one row at a time")
        rig.job()
        assert set(rows) == {1}
        assert [rung.words for rung in rig.rungs] == ["one row at a time"]
        rows.clear()
        hooked.append(True)
        assert_same(rig.job(), unplaced_job())
        assert set(rows) == {2}
    before = len(rig.rungs)
    with rig.guard.job():
        rig.guard.plan_rows(rig.unet, "forward", 1, "one row at a time")
        rig.job()
    assert len(rig.rungs) == before, "what is not done is not said"
