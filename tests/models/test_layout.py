"""The original layout against modules: both ways, against diffusers' own converter, and what is not a whole model."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import save_file

from sd_webui_spillway.errors import ModelFileError
from sd_webui_spillway.models import load_model, make_checkpoint, read_checkpoint
from sd_webui_spillway.models.building import component_dtypes, empty_modules, hold
from sd_webui_spillway.models.checkpoint_reader import Checkpoint
from sd_webui_spillway.models.families import FAMILIES, head_count, published
from sd_webui_spillway.models.ldm_config import prediction_type, read_config
from sd_webui_spillway.models.ldm_layout import to_diffusers, to_ldm
from sd_webui_spillway.models.random_weights import ldm_shapes, random_modules


@pytest.fixture(scope="module")
def tiny(diffusers):
    """Family → (configuration, modules, the same as a file's tensors)."""
    made = {}
    for family in FAMILIES:
        config = published(family, "tiny")
        modules = random_modules(config, 1, torch.float32)
        made[family] = (config, modules, to_ldm(modules.states(), config))
    return made


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", FAMILIES)
def test_there_and_back(tiny, family):
    config, modules, tensors = tiny[family]
    parts = to_diffusers(tensors, config)
    for name, state in modules.states().items():
        canonical = {key.removeprefix("text_model."): value for key, value in parts[name].items()}
        assert equal(canonical, {key.removeprefix("text_model."): value for key, value in state.items()}), name
    assert equal(to_ldm(parts, config), tensors)


@pytest.mark.parametrize("family", FAMILIES)
def test_same_tensors_as_diffusers_own_converter(tiny, family, diffusers, tmp_path):
    _, modules, tensors = tiny[family]
    for name, kind in (("unet", diffusers.UNet2DConditionModel), ("vae", diffusers.AutoencoderKL)):
        module = modules.by_name()[name]
        module.save_config(str(tmp_path / name))
        theirs = kind.from_single_file(
            dict(tensors), config=str(tmp_path), subfolder=name, local_files_only=True, torch_dtype=torch.float32
        )
        assert equal(theirs.state_dict(), module.state_dict()), name


@pytest.mark.parametrize("family", ["sd2", "sdxl"])
def test_open_clip_as_diffusers_converts_it(tiny, family, diffusers):
    from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint

    config, modules, tensors = tiny[family]
    prefix = "cond_stage_model.model." if family == "sd2" else "conditioner.embedders.1.model."
    theirs = convert_open_clip_checkpoint(modules.text_encoders[-1], dict(tensors), prefix=prefix)
    ours = to_diffusers(tensors, config)["text_encoder" if family == "sd2" else "text_encoder_2"]
    assert equal({name: theirs[name] for name in ours}, ours)


@pytest.mark.parametrize(
    ("family", "unet", "count"),
    [("sd1", 859_520_964, 1_066_000_000), ("sd2", 865_910_724, 1_290_000_000), ("sdxl", 2_567_463_684, 3_469_000_000)],
)
def test_published_sizes(diffusers, family, unet, count):
    """The UNets' numbers of weights are those of the published models."""
    shapes = ldm_shapes(published(family, "real"))
    total = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    assert sum(size for name, size in total.items() if name.startswith("model.diffusion_model.")) == unet
    assert sum(total.values()) == pytest.approx(count, rel=0.01)


@pytest.mark.parametrize("size", ["tiny", "real"])
@pytest.mark.parametrize("family", FAMILIES)
def test_configuration_is_read_from_shapes(diffusers, tmp_path, family, size):
    from sd_webui_spillway.models.maker import file_shapes

    config = published(family, size)
    tensors = {name: torch.empty(shape, device="meta") for name, shape in file_shapes(config).items()}
    tensors |= {"betas": torch.ones(3), "model_ema.decay": torch.ones(1)}
    assert read_config(Checkpoint(tensors, tmp_path / "m.safetensors")) == config


def test_head_count():
    assert [head_count(width) for width in (320, 640, 1280, 768)] == [5, 10, 20, 12]
    assert [head_count(width) for width in (64, 32, 160, 96, 200, 195)] == [1, 1, 2, 1, 2, 3]


@pytest.mark.parametrize(
    ("yaml", "metadata", "names", "family", "expected"),
    [
        (None, {}, [], "sd1", ("epsilon", True)),
        (None, {}, [], "sd2", ("v_prediction", False)),
        (None, {"global_step": "875000"}, [], "sd2", ("epsilon", True)),
        (None, {"modelspec.prediction_type": "epsilon"}, [], "sd2", ("epsilon", True)),
        (None, {"modelspec.prediction_type": "v"}, [], "sdxl", ("v_prediction", True)),
        (None, {}, ["v_pred"], "sdxl", ("v_prediction", True)),
        ('model:\n  params:\n    parameterization: "v"\n', {}, [], "sd1", ("v_prediction", True)),
        ("model:\n  params:\n    parameterization: v  # so\n", {}, [], "sd2", ("v_prediction", True)),
        ("model:\n  target: ldm.x\n  # parameterization: v\n", {}, [], "sd2", ("epsilon", True)),
        ("target: sgm.modules.diffusionmodules.denoiser_scaling.VScaling", {}, [], "sdxl", ("v_prediction", True)),
    ],
)
def test_prediction_type(tmp_path, yaml, metadata, names, family, expected):
    if yaml:
        (tmp_path / "m.yaml").write_text(yaml)
    checkpoint = Checkpoint({name: torch.empty(0) for name in names}, tmp_path / "m.safetensors", metadata)
    assert prediction_type(checkpoint, family) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lora_unet_mid_block_attentions_0.lora_up.weight", "looks like a LoRA"),
        ("unet.down_blocks.0.attentions.0.lora_A.weight", "looks like a LoRA"),
        ("decoder.conv_in.weight", "looks like a VAE alone"),
        ("first_stage_model.decoder.conv_in.weight", "looks like a VAE alone"),
        ("decoder.up_blocks.0.resnets.0.conv1.weight", "looks like a diffusers VAE"),
        ("down_blocks.0.resnets.0.conv1.weight", "looks like a diffusers UNet"),
        ("double_blocks.0.img_attn.qkv.weight", "looks like a Flux"),
        ("model.diffusion_model.double_blocks.0.img_attn.qkv.weight", "looks like a Flux"),
        ("model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight", "Stable Diffusion 3"),
        ("control_model.input_blocks.0.0.weight", "ControlNet"),
        ("text_model.encoder.layers.0.mlp.fc1.weight", "a text encoder alone"),
        ("emb_params", "textual inversion"),
        ("something.else", "unknown (looked for model.diffusion_model.input_blocks"),
    ],
)
def test_other_files_are_named(tmp_path, cache, name, words):
    save_file({name: torch.ones(2, 2)}, tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match="is not a whole SD model: ") as caught:
        load_model(tmp_path / "m.safetensors", cache)
    assert words in str(caught.value)


def changed(tensors, drop="\0", **add):
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(drop)} | add


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("sd1", lambda t: changed(t, "cond_stage_model."), "no text encoder"),
        ("sd1", lambda t: changed(t, "first_stage_model."), "no VAE"),
        ("sd1", lambda t: t | {"model.diffusion_model.input_blocks.0.0.weight": torch.ones(32, 9, 3, 3)}, "inpainting"),
        ("sdxl", lambda t: changed(t, "conditioner.embedders.") | {
            "conditioner.embedders.0.model.ln_final.weight": torch.ones(4)}, "refiner"),
        ("sd1", lambda t: changed(t, "model.diffusion_model.out.2.weight"), "incomplete"),
        ("sd1", lambda t: changed(t, "model.diffusion_model.out.0.bias"), "lacks conv_norm_out.bias"),
        ("sd1", lambda t: t | {"model.diffusion_model.out.0.bias": torch.ones(3)}, "instead of [32]"),
        ("sd1", lambda t: t | {"model.diffusion_model.surprise.weight": torch.ones(3)}, "surprise"),
        ("sd2", lambda t: t | {"cond_stage_model.model.transformer.resblocks.0.ln_3.weight": torch.ones(3)}, "ln_3"),
        ("sdxl", lambda t: changed(t, "model.diffusion_model.label_emb"), "incomplete"),
    ],
)  # fmt: skip
def test_models_with_something_wrong(tiny, tmp_path, cache, family, change, words):
    save_file(change(tiny[family][2]), tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError) as caught:
        load_model(tmp_path / "m.safetensors", cache)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_old_files_without_text_model_in_their_names(tiny):
    config, _, tensors = tiny["sd1"]
    old = {name.replace("transformer.text_model.", "transformer."): tensor for name, tensor in tensors.items()}
    old["cond_stage_model.transformer.embeddings.position_ids"] = torch.arange(77)[None]
    assert equal(to_diffusers(old, config)["text_encoder"], to_diffusers(tensors, config)["text_encoder"])


def test_safetensors_in_the_right_type_are_not_copied(tiny, tmp_path, diffusers):
    config, _, tensors = tiny["sd1"]
    save_file({name: tensor.half() for name, tensor in tensors.items()}, tmp_path / "m.safetensors")
    read = read_checkpoint(tmp_path / "m.safetensors").tensors
    address = read["model.diffusion_model.out.2.weight"].data_ptr()
    held = hold(empty_modules(config), to_diffusers(read, config), component_dtypes(config, torch.float16), "m")
    assert held.unet.conv_out.weight.data_ptr() == address
    assert not any(parameter.is_meta or parameter.requires_grad for parameter in held.unet.parameters())
    assert dataclasses.replace(held).vae is held.vae


def test_made_files_hold_the_modules_made_from_the_same_seed(tiny, tmp_path):
    make_checkpoint(tmp_path / "m.safetensors", "sdxl", "tiny", 1, torch.float32)
    assert equal(read_checkpoint(tmp_path / "m.safetensors").tensors, tiny["sdxl"][2])
