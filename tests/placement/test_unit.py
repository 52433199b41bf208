"""Units and slots: what moves together comes whole or not at all, and no edit is lost."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.placement.simulated import SimulatedCard
from sd_webui_spillway.placement.unit import SlotTable, WeightUnit
from sd_webui_spillway.units import MIB
from tests.fakes.faulty_card import FaultyCard
from tests.placed_rig import make
from tests.torch_models import TextLayer, TiedEncoder


@pytest.fixture
def card() -> FaultyCard:
    return FaultyCard(8 * MIB)


def unit_of(*modules: torch.nn.Module, keep_masters: bool = True) -> WeightUnit:
    return WeightUnit(SlotTable(keep_masters=keep_masters).slots_of(modules))


@pytest.mark.parametrize("keep_masters", [True, False])
def test_load_and_evict_move_every_byte_and_keep_every_object(card, keep_masters):
    layer = make(lambda: TextLayer(8))
    before = {name: (tensor, tensor.clone()) for name, tensor in layer.state_dict(keep_vars=True).items()}
    unit = unit_of(layer, keep_masters=keep_masters)
    unit.load(card)
    assert unit.loaded
    assert all(card.holds(p) for p in layer.parameters())
    assert card.used_bytes() == unit.nbytes == sum(p.nbytes for p in layer.parameters())
    unit.evict(card)
    assert not any(card.holds(p) for p in layer.parameters())
    assert card.used_bytes() == 0
    for name, tensor in layer.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])


def test_masters_stay_so_letting_go_copies_nothing(card):
    layer = make(lambda: TextLayer(8))
    addresses = [p.data_ptr() for p in layer.parameters()]
    unit = unit_of(layer)
    unit.load(card)
    unit.evict(card)
    assert [p.data_ptr() for p in layer.parameters()] == addresses
    assert card.moved_bytes == unit.nbytes, "only the way up is a copy"


def test_a_tied_weight_is_one_slot(card):
    module = make(TiedEncoder)
    unit = unit_of(module)
    assert len(unit.slots) == len(list(module.parameters())) + 1, "the shared buffer and the tied weight count once"
    unit.load(card)
    assert module.head.weight is module.embedding.weight
    assert card.used_bytes() == unit.nbytes


def test_what_two_units_share_stays_until_the_last_lets_go(card):
    module = make(TiedEncoder)
    table = SlotTable(keep_masters=True)
    first, second = (WeightUnit(table.slots_of([m])) for m in (module.first, module.second))
    first.load(card)
    second.load(card)
    assert card.used_bytes() == first.nbytes + second.nbytes - module.first.scale.nbytes
    first.evict(card)
    assert card.holds(module.first.scale)
    assert not card.holds(module.first.linear.weight)
    second.evict(card)
    assert card.used_bytes() == 0


@pytest.mark.parametrize("keep_masters", [True, False])
@pytest.mark.parametrize("inference", [True, False])
def test_an_edit_in_place_on_the_card_is_kept(card, keep_masters, inference):
    layer = make(lambda: TextLayer(8))
    expected = layer.linear.weight.detach() + 1
    unit = unit_of(layer, keep_masters=keep_masters)
    unit.load(card)
    with torch.inference_mode() if inference else torch.no_grad():
        layer.linear.weight.add_(1)
    unit.evict(card)
    assert torch.equal(layer.linear.weight, expected)
    unit.load(card)
    assert torch.equal(layer.linear.weight, expected)


@pytest.mark.parametrize("keep_masters", [True, False])
@pytest.mark.parametrize("inside_call", [True, False])
def test_data_replaced_while_on_the_card_is_kept(card, keep_masters, inside_call):
    layer = make(lambda: TextLayer(8))
    expected = layer.linear.weight.detach() * 3
    unit = unit_of(layer, keep_masters=keep_masters)
    unit.load(card)
    if inside_call:
        with card.call_scope(()):
            layer.linear.weight.data = layer.linear.weight.data * 3
    else:
        layer.linear.weight.data = layer.linear.weight.data * 3
    unit.evict(card)
    assert torch.equal(layer.linear.weight, expected)
    assert not card.holds(layer.linear.weight)
    assert card.used_bytes() == 0


def test_data_replaced_at_rest_is_what_the_card_gets_next(card):
    layer = make(lambda: TextLayer(8))
    unit = unit_of(layer)
    unit.load(card)
    unit.evict(card)
    wider = torch.ones(8, 8, dtype=torch.float64)
    layer.linear.weight.data = wider
    unit.load(card)
    assert card.holds(layer.linear.weight)
    assert torch.equal(layer.linear.weight, wider)
    assert unit.nbytes == sum(p.nbytes for p in layer.parameters())
    unit.evict(card)
    assert layer.linear.weight.data_ptr() == wider.data_ptr()


@pytest.mark.parametrize("failing", range(8))
def test_failing_in_the_middle_of_a_load_leaves_everything_in_system_memory(card, failing):
    layer = make(lambda: TextLayer(8))
    unit = unit_of(layer)
    card.fail_put(failing)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        unit.load(card)
    assert not unit.loaded
    assert card.used_bytes() == 0
    assert not any(card.holds(p) for p in layer.parameters())
    unit.load(card)
    assert unit.loaded
    assert card.used_bytes() == unit.nbytes


def test_a_card_too_small_takes_nothing():
    layer = make(lambda: TextLayer(64))
    small = SimulatedCard(20_000)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        unit_of(layer).load(small)
    assert small.used_bytes() == 0


@pytest.mark.parametrize("failing", range(8))
def test_an_interrupted_evict_can_be_called_again(card, failing):
    layer = make(lambda: TextLayer(8))
    expected = [p.clone() for p in layer.parameters()]
    unit = unit_of(layer, keep_masters=False)
    unit.load(card)
    card.fail_fetch(failing)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        unit.evict(card)
    unit.evict(card)
    assert card.used_bytes() == 0
    assert all(torch.equal(p, q) for p, q in zip(layer.parameters(), expected, strict=True))


@pytest.mark.parametrize("failing", range(1, 8))
def test_an_interrupted_evict_can_be_loaded_again(card, failing):
    layer = make(lambda: TextLayer(8))
    unit = unit_of(layer, keep_masters=False)
    unit.load(card)
    card.fail_fetch(failing)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        unit.evict(card)
    unit.load(card)
    assert unit.loaded
    assert card.used_bytes() == unit.nbytes
    unit.evict(card)
    assert card.used_bytes() == 0
