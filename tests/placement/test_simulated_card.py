"""The simulated card counts what is really alive, and fails the way a card does."""

from __future__ import annotations

import threading

import pytest
import torch

from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.units import GIB, KIB, MIB
from tests.placed_rig import make
from tests.torch_models import UNet

F32 = 4


@pytest.fixture
def card() -> SimulatedCard:
    return SimulatedCard(MIB)


def on_card(card: SimulatedCard, count: int) -> torch.Tensor:
    return card.put(torch.arange(count, dtype=torch.float32))


def test_its_label_says_that_it_is_simulated():
    card = SimulatedCard(3 * GIB)
    assert card.simulated
    assert card.label == "simulated card of 3.0 GiB (runs on the CPU)"
    assert card.total_bytes == card.limit_bytes == 3 * GIB


def test_put_is_a_copy_that_counts_until_it_is_dropped(card):
    source = torch.arange(100, dtype=torch.float32)
    copy = card.put(source)
    assert torch.equal(copy, source)
    assert copy.data_ptr() != source.data_ptr()
    assert card.holds(copy)
    assert not card.holds(source)
    assert card.used_bytes() == 400
    assert card.free_bytes() == MIB - 400
    assert card.moved_bytes == 400
    del copy
    assert card.used_bytes() == 0
    assert card.peak_bytes() == 400


def test_put_keeps_strides_type_and_asks_for_no_gradient(card):
    source = torch.randn(2, 4, 3, 3, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    with torch.inference_mode():
        copy = card.put(source)
    assert (copy.stride(), copy.dtype, copy.requires_grad) == (source.stride(), source.dtype, False)
    assert not copy.is_inference()


def test_fetch_is_a_copy_in_system_memory(card):
    copy = on_card(card, 100)
    back = card.fetch(copy)
    assert torch.equal(back, copy)
    assert back.data_ptr() != copy.data_ptr()
    assert not card.holds(back)
    assert card.used_bytes() == 400
    assert card.moved_bytes == 800


def test_views_share_what_their_base_takes(card):
    x = on_card(card, 1000)
    with card.call_scope(()):
        y = x.view(10, 100)[2:4].t()
        assert card.holds(y)
        assert card.used_bytes() == 1000 * F32
        del x
        assert card.used_bytes() == 1000 * F32, "the view keeps the storage"
        del y
        assert card.used_bytes() == 0


def test_what_dies_inside_a_call_is_free_again_and_a_result_lives_on(card):
    x = on_card(card, 1000)
    with card.call_scope(x):
        hidden = x * 2
        assert card.used_bytes() == 2 * 4000
        hidden = hidden + 1
        assert card.used_bytes() == 2 * 4000
        result = hidden.sum()
        del hidden
        assert card.used_bytes() == 4000 + F32
    assert card.peak_bytes() == 3 * 4000
    assert card.holds(result)
    assert card.used_bytes() == 4000 + F32
    del result, x
    assert card.used_bytes() == 0


def test_an_edit_in_place_takes_nothing(card):
    x = on_card(card, 1000)
    with card.call_scope(x):
        x.add_(1).mul_(2)
    assert card.peak_bytes() == 4000


def test_inputs_of_a_call_count_for_it(card):
    x = torch.zeros(1000)
    with card.call_scope(((x,), {"more": [x, {"deep": torch.zeros(10)}]})):
        assert card.used_bytes() == 4040
    assert card.peak_bytes() == 4040


def test_outside_a_call_nothing_is_counted(card):
    x = on_card(card, 1000)
    y = x * 2
    assert card.used_bytes() == 4000
    del y


def test_past_its_size_it_raises_torchs_own_error_and_counts_nothing(card):
    x = on_card(card, 200 * KIB)
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"card out of memory\. Tried to allocate 800 KiB"):
        card.put(torch.zeros(200 * KIB))
    assert card.used_bytes() == 800 * KIB
    with card.call_scope(x), pytest.raises(torch.cuda.OutOfMemoryError):
        torch.cat([x, x])
    assert card.used_bytes() == 800 * KIB
    assert card.peak_bytes() == 800 * KIB
    with pytest.raises(torch.cuda.OutOfMemoryError), card.call_scope(torch.zeros(100 * KIB)):
        pytest.fail("the inputs do not fit")
    assert card.used_bytes() == 800 * KIB


def test_exactly_its_size_fits_and_one_byte_more_does_not():
    card = SimulatedCard(400)
    x = on_card(card, 100)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        card.put(torch.zeros(1, dtype=torch.uint8))
    del x
    card.put(torch.zeros(100))


def test_a_weight_left_in_system_memory_cannot_meet_a_tensor_on_the_card(card):
    weight = torch.ones(10)
    card.resting(weight)
    x = on_card(card, 10)
    with card.call_scope(x):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*aten\.mul"):
            x * weight
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            torch.cat([weight, x])


def test_a_scalar_in_system_memory_may(card):
    scale = torch.tensor(2.0)
    card.resting(scale)
    x = on_card(card, 10)
    with card.call_scope(x):
        y = x * scale
    assert card.holds(y)


def test_what_is_made_from_system_memory_alone_stays_there(card):
    weight = torch.ones(10)
    card.resting(weight)
    with card.call_scope(()):
        y = weight * 2
        assert not card.holds(y)
        assert not card.holds(weight[2:])
    assert card.used_bytes() == 0


def test_resting_takes_back_nothing_from_the_card_and_gives_the_same_bytes(card):
    parameter = torch.nn.Parameter(torch.ones(10))
    data = card.resting(parameter)
    assert data.data_ptr() == parameter.data_ptr()
    assert not data.requires_grad
    copy = card.put(data)
    parameter.data = copy
    assert card.holds(parameter)


def test_the_peak_starts_again_from_what_is_in_use(card):
    x = on_card(card, 100)
    with card.call_scope(x):
        torch.cat([x, x, x])
    assert card.peak_bytes() == 1600
    card.reset_peak()
    assert card.peak_bytes() == 400


def test_an_address_used_again_is_not_taken_for_the_old_tensor(card):
    for _ in range(200):
        resting = torch.zeros(100)
        card.resting(resting)
        del resting
        x = on_card(card, 100)
        assert card.holds(x)
        with card.call_scope(x):
            y = x + 1
            assert card.holds(y)
        del x, y
    assert card.used_bytes() == 0


def test_another_thread_can_read_while_a_call_runs():
    card = SimulatedCard(64 * MIB)
    unet = make(UNet)
    stop = threading.Event()
    seen: list[int] = []
    errors: list[BaseException] = []

    def read():
        try:
            while not stop.is_set():
                seen.append(card.used_bytes())
        except BaseException as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(3):
            inputs = (torch.zeros(2, 4, 16, 16), torch.tensor(5), torch.zeros(2, 6, 8))
            with torch.no_grad(), card.call_scope(inputs):
                unet(*inputs)
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert max(seen) > 0
    assert max(seen) <= card.peak_bytes()
    del inputs
