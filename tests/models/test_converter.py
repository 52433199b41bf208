"""From a diffusers folder to one file in the original layout and back: the same weights, words and pictures."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from sd_webui_spillway.errors import BadInputError, ModelFileError, StorageError
from sd_webui_spillway.models import clip_tokenizer, convert_folder, converter, load_model, read_checkpoint
from sd_webui_spillway.models.building import quiet_libraries
from sd_webui_spillway.models.families import FAMILIES, published
from sd_webui_spillway.models.folder_config import read_folder_config
from sd_webui_spillway.models.maker import build_pipeline
from tests.small_models import small_config, small_folder, small_words

pytestmark = pytest.mark.usefixtures("vocabulary")
PARTS = ("unet", "vae", "text_encoder", "text_encoder_2")


def draw(pipeline, prompt="a red circle above a blue square"):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(
        prompt, num_inference_steps=2, width=64, height=64, output_type="pt", generator=torch.manual_seed(3)
    ).images


def same_weights(ours, theirs):
    for name in PARTS:
        if getattr(theirs, name, None) is not None:
            one, other = getattr(ours, name).state_dict(), getattr(theirs, name).state_dict()
            assert one.keys() == other.keys()
            assert all(torch.equal(one[key], other[key]) for key in one), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory, diffusers):
    return small_folder(tmp_path_factory.mktemp("small") / "small")


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.parametrize(
    "sizes", [{}, {"vae_layers": 0}, {"prediction": "v_prediction"}, {"heads": 4}], ids=str
)
def test_a_small_model_with_its_own_words(sizes, tmp_path, cache):
    source = small_folder(tmp_path / "source", **sizes)
    assert read_folder_config(source) == small_config(**sizes)
    seen = []
    written = convert_folder(
        source, tmp_path / "m" / "small.safetensors", progress=lambda *numbers: seen.append(numbers)
    )
    assert seen[-1][0] == seen[-1][1] == len(seen)
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert names == ["small-clip", "small.safetensors", "small.yaml"]
    assert any(str(written.text_folder) in notice for notice in written.notices)
    one, other = load_model(written.checkpoint, cache), load_model(source, cache)
    assert one.notices == ()
    assert (one.family, one.default_size) == (other.family, other.default_size) == ("sd1", (128, 128))
    same_weights(one.pipeline, other.pipeline)
    assert one.pipeline.tokenizer.get_vocab() == small_words().vocabulary
    assert one.pipeline.tokenizer("a RED circle, 2").input_ids == other.pipeline.tokenizer("a RED circle, 2").input_ids
    assert torch.equal(draw(one.pipeline), draw(other.pipeline))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family, tmp_path, cache):
    pipeline = build_pipeline(family, "tiny", 2, torch.float32, cache)
    with quiet_libraries():
        pipeline.save_pretrained(str(tmp_path / "source"))
    written = convert_folder(tmp_path / "source", tmp_path / "m.safetensors")
    assert (written.text_folder is None) is (family == "sd2")
    assert any("OpenCLIP" in notice for notice in written.notices) is (family != "sd1")
    one, other = load_model(written.checkpoint, cache), load_model(tmp_path / "source", cache)
    assert one.family == other.family == family
    assert one.default_size == other.default_size
    same_weights(one.pipeline, other.pipeline)
    assert torch.equal(draw(one.pipeline), draw(other.pipeline))


def test_the_number_type_is_the_sources_or_the_one_asked_for(tmp_path, cache):
    source = small_folder(tmp_path / "half", dtype=torch.float16)
    as_it_is = convert_folder(source, tmp_path / "a.safetensors").checkpoint
    asked = convert_folder(source, tmp_path / "b.safetensors", torch.bfloat16).checkpoint
    kinds = [{tensor.dtype for tensor in read_checkpoint(path).tensors.values()} for path in (as_it_is, asked)]
    assert kinds == [{torch.float16}, {torch.bfloat16}]
    same_weights(load_model(as_it_is, cache).pipeline, load_model(source, cache).pipeline)


def as_diffusers_once_wrote(folder):
    """Pickles, the VAE's attention by its old names, and the UNet in two files."""
    for part, stem in (("vae", "diffusion_pytorch_model"), ("text_encoder", "model")):
        file = folder / part / f"{stem}.safetensors"
        old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"} if part == "vae" else {}
        state = {}
        for name, tensor in load_file(file).items():
            for new, before in old.items():
                name = name.replace(f"mid_block.attentions.0.{new}.", f"mid_block.attentions.0.{before}.")
            state[name] = tensor.clone()
        torch.save(state, folder / part / f"{'pytorch_model' if part != 'vae' else stem}.bin")
        file.unlink()
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    state = {name: tensor.clone() for name, tensor in load_file(file).items()}
    file.unlink()
    names = sorted(state)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, inside in shards.items():
        save_file({name: state[name] for name in inside}, folder / "unet" / shard)
    index = {"weight_map": {name: shard for shard, inside in shards.items() for name in inside}}
    (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))


def test_older_and_divided_folders(copy, folder, tmp_path):
    as_diffusers_once_wrote(copy)
    one = read_checkpoint(convert_folder(copy, tmp_path / "a.safetensors").checkpoint).tensors
    other = read_checkpoint(convert_folder(folder, tmp_path / "b.safetensors").checkpoint).tensors
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_published_words_and_sizes_need_no_folder(tmp_path):
    config = published("sd1", "real")
    (tmp_path / "tokenizer").mkdir()
    words = clip_tokenizer.published_words(clip_tokenizer.CLIP_PAD)
    clip_tokenizer.write_tokenizer(tmp_path / "tokenizer", words)
    assert converter._own_words(tmp_path, config) is None
    assert converter._own_words(tmp_path, published("sd1", "tiny")) is not None
    other = clip_tokenizer.words_of(words.merges[::-1], clip_tokenizer.CLIP_PAD)
    clip_tokenizer.write_tokenizer(tmp_path / "tokenizer", other)
    assert converter._own_words(tmp_path, config) is not None


def test_moved_with_its_folder_it_keeps_its_words(folder, tmp_path, cache):
    convert_folder(folder, tmp_path / "old" / "m.safetensors")
    (tmp_path / "old").rename(tmp_path / "new")
    moved = load_model(tmp_path / "new" / "m.safetensors", cache).pipeline
    assert moved.tokenizer.get_vocab() == small_words().vocabulary
    shutil.rmtree(tmp_path / "new" / "m-clip")
    with pytest.raises(ModelFileError, match="words of its own; the folder with its tokenizer"):
        load_model(tmp_path / "new" / "m.safetensors", cache)


def test_nothing_is_overwritten_unless_forced(folder, tmp_path, cache):
    target = tmp_path / "m.safetensors"
    for name in ("m.safetensors", "m.yaml", "m-clip"):
        there = tmp_path / name
        if name.endswith("clip"):
            there.mkdir()
        else:
            there.write_text("mine")
        with pytest.raises(BadInputError, match=f"{name} is there already.*--force"):
            convert_folder(folder, target)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        if name.endswith("clip"):
            there.rmdir()
        else:
            there.unlink()
    convert_folder(folder, target)
    (tmp_path / "m-clip" / "stale").write_text("old")
    convert_folder(folder, target, force=True)
    assert not (tmp_path / "m-clip" / "stale").exists()
    assert load_model(target, cache).family == "sd1"


def test_a_full_disk_leaves_what_was_there(folder, tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    for function in ("write_safetensors", "write_tokenizer"):
        with monkeypatch.context() as patch:
            patch.setattr(converter, function, full)
            with pytest.raises(StorageError, match="No space left on device"):
                convert_folder(folder, tmp_path / "m.safetensors")
        assert list(tmp_path.iterdir()) == []


def edit(folder, part, **changes):
    path = folder / part / ("scheduler_config.json" if part == "scheduler" else "config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def swap_weights(folder):
    (folder / "vae" / "diffusion_pytorch_model.safetensors").write_bytes(
        (folder / "unet" / "diffusion_pytorch_model.safetensors").read_bytes()
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "unet" / "config.json").unlink(), "config.json cannot be read"),
        (lambda f: edit(f, "unet", norm_num_groups=16), "norm_num_groups 16"),
        (lambda f: edit(f, "unet", block_out_channels=[64, 96]), "multiple of the first"),
        (lambda f: edit(f, "unet", attention_head_dim=[8, 4], down_block_types=["CrossAttnDownBlock2D"] * 2,
                        up_block_types=["CrossAttnUpBlock2D"] * 2), "attention heads"),
        (lambda f: edit(f, "vae", use_quant_conv=False), "use_quant_conv False"),
        (lambda f: edit(f, "scheduler", beta_schedule="linear"), "beta_schedule linear"),
        (lambda f: edit(f, "scheduler", prediction_type="sample"), "predicts “sample”"),
        (lambda f: edit(f, "text_encoder", vocab_size=700), "its text encoder 700"),
        (lambda f: edit(f, "unet", cross_attention_dim=128), "instead of"),
        (swap_weights, "its vae"),
        (lambda f: shutil.rmtree(f / "tokenizer"), "tokenizer"),
        (lambda f: (f / "unet" / "diffusion_pytorch_model.safetensors").unlink(), "its unet has no weights"),
        (lambda f: (f / "model_index.json").write_text('{"_class_name": "FluxPipeline"}'), "FluxPipeline"),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_converted(copy, tmp_path, damage, words):
    damage(copy)
    with pytest.raises(ModelFileError) as caught:
        convert_folder(copy, tmp_path / "m.safetensors")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
