"""LoRA files in both forms: the same picture through either, and one sentence where they do not fit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from sd_webui_spillway.errors import BadInputError, ModelFileError
from sd_webui_spillway.models import LoraChoice, load_model
from sd_webui_spillway.models.families import FAMILIES, published
from sd_webui_spillway.models.lora import (
    DIFFUSERS_FILE,
    LoraTargets,
    a1111_state,
    diffusers_state,
    lora_layers,
    read_lora,
    write_lora,
)
from tests.small_models import random_lora, small_config, small_folder

pytestmark = pytest.mark.usefixtures("vocabulary")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, diffusers):
    pytest.importorskip("peft", reason="needs peft")
    return small_folder(tmp_path_factory.mktemp("small") / "small")


@pytest.fixture(scope="module", params=[False, True], ids=["unet", "unet and text"])
def lora(request, folder, tmp_path_factory):
    """A folder in diffusers' form and a file in A1111's."""
    made = tmp_path_factory.mktemp("lora")
    state = random_lora(small_config(), text=request.param)
    write_lora(made / "folder", made / "a1111.safetensors", state, small_config())
    return made


def draw(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(
        "a red circle", num_inference_steps=2, width=64, height=64, output_type="pt", generator=torch.manual_seed(3)
    ).images


def test_the_same_picture_through_both_files_and_diffusers_own_loading(folder, lora, cache):
    by_hand = load_model(folder, cache).pipeline
    plain = draw(by_hand)
    by_hand.load_lora_weights(str(lora / "folder"), weight_name=DIFFUSERS_FILE, local_files_only=True)
    wanted = draw(by_hand)
    assert (wanted - plain).abs().max() > 0.05
    for path in (lora / "folder", lora / "folder" / DIFFUSERS_FILE, lora / "a1111.safetensors"):
        assert torch.equal(draw(load_model(folder, cache, loras=[LoraChoice(path)]).pipeline), wanted), path
    off = load_model(folder, cache, loras=[LoraChoice(lora / "a1111.safetensors", 0.0)]).pipeline
    assert torch.allclose(draw(off), plain, atol=1e-5)


def test_weights_add_up(folder, lora, cache):
    path = lora / "a1111.safetensors"
    twice = load_model(folder, cache, loras=[LoraChoice(path, 0.25), LoraChoice(lora / "folder", 0.5)])
    once = load_model(folder, cache, loras=[LoraChoice(path, 0.75)])
    assert torch.allclose(draw(twice.pipeline), draw(once.pipeline), atol=1e-3)
    assert not any(parameter.requires_grad for parameter in once.pipeline.unet.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_there_and_back(family, diffusers):
    config = published(family, "tiny")
    targets = LoraTargets.of(config)
    layers = lora_layers(random_lora(config, text=True), targets, "x")
    for state in (diffusers_state(layers), a1111_state(layers, targets)):
        back = lora_layers(state, targets, "x")
        assert back.keys() == layers.keys()
        assert all(torch.equal(back[name].up, layer.up) for name, layer in layers.items())
        assert all(torch.equal(back[name].down, layer.down) for name, layer in layers.items())


def test_a1111s_names(lora, folder):
    names = {name.split(".")[0] for name in load_file(lora / "a1111.safetensors")}
    assert "lora_unet_input_blocks_3_1_transformer_blocks_0_attn1_to_q" in names
    assert "lora_unet_middle_block_1_transformer_blocks_0_attn2_to_out_0" in names
    assert {"lora_unet_output_blocks_0_1_proj_in", "lora_unet_input_blocks_1_0_in_layers_2"} <= names
    assert all(name.startswith(("lora_unet_", "lora_te_text_model_encoder_layers_")) for name in names)


def test_other_writers_names(folder, tmp_path):
    """peft's own state dict, and kohya's trainer, which scales by alpha and has diffusers' names with underscores."""
    config = small_config()
    targets, state = LoraTargets.of(config), random_lora(config)
    peft = {f"base_model.model.{name.removeprefix('unet.')}": tensor for name, tensor in state.items()}
    assert lora_layers(peft, targets, "x").keys() == lora_layers(state, targets, "x").keys()
    name = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
    down, up = state[f"{name}.lora_A.weight"], state[f"{name}.lora_B.weight"]
    kohya = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q"
    file = {f"{kohya}.lora_down.weight": down, f"{kohya}.lora_up.weight": up, f"{kohya}.alpha": torch.tensor(2.0)}
    save_file(file, tmp_path / "k.safetensors")
    read = read_lora(tmp_path / "k.safetensors", targets)
    assert list(read) == [name]
    assert torch.equal(read[name].up, up / 2)
    write_lora(tmp_path / "f", tmp_path / "a.safetensors", state, config, scale=0.5)
    for path in (tmp_path / "f", tmp_path / "a.safetensors"):
        assert torch.equal(read_lora(path, targets)[name].up, up / 2)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"lora_unet_input_blocks_9_1_proj_in.lora_down.weight": (4, 64)}, "another model: this one has no lora_un"),
        ({"unet.down_blocks.7.attn.to_q.lora_A.weight": (4, 64)}, "another model: this one has no unet.down_blo"),
        ({"unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight": (4, 128)}, "incomplete"),
        ({"lora_unet_middle_block_1_proj_in.hada_w1_a": (4, 4)}, "kind that is supported"),
        ({"model.diffusion_model.input_blocks.0.0.weight": (4, 4)}, "kind that is supported"),
        ({"unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight": (4, 320),
          "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q.lora_B.weight": (320, 4)}, "[128, 128]"),
    ],
)  # fmt: skip
def test_wrong_files_are_one_sentence(folder, cache, tmp_path, state, words):
    save_file({name: torch.zeros(shape) for name, shape in state.items()}, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError) as caught:
        load_model(folder, cache, loras=[LoraChoice(tmp_path / "wrong.safetensors")])
    assert words in str(caught.value)
    assert "“wrong.safetensors”" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_words_of_an_order(tmp_path):
    assert LoraChoice.parse("a/b.safetensors") == LoraChoice(tmp_path.__class__("a/b.safetensors"), 1.0)
    assert LoraChoice.parse("a/b.safetensors:0.5").weight == 0.5
    assert LoraChoice.parse(r"C:\loras\b.safetensors").path.name.endswith("b.safetensors")
    assert LoraChoice.parse(r"C:\loras\b.safetensors:-1").weight == -1
    for text in ("x:nan", "x:inf"):
        with pytest.raises(BadInputError, match="finite"):
            LoraChoice.parse(text)
    (tmp_path / "empty").mkdir()
    for path, words in ((tmp_path / "none", "no LoRA at"), (tmp_path / "empty", DIFFUSERS_FILE)):
        with pytest.raises(BadInputError, match=words):
            read_lora(path, LoraTargets({}, {}))
