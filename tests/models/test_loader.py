"""From a path to a pipeline that draws."""

from __future__ import annotations

import json
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file

from sd_webui_spillway.errors import BadInputError, ModelFileError, StorageError, UnavailableError
from sd_webui_spillway.models import atomic, clip_tokenizer, embedded, load_model, make_checkpoint, maker
from sd_webui_spillway.models.building import empty_modules
from sd_webui_spillway.models.families import FAMILIES, published
from sd_webui_spillway.models.ldm_layout import to_ldm

PROMPT = [49406, 320, 1125, 539, 320, 2368, 49407]

pytestmark = pytest.mark.usefixtures("vocabulary")


@pytest.fixture(autouse=True)
def one_thread():
    """Pools of threads that wait for each other on a shared machine cost more than they bring at these sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(pipeline, **options):
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(3)
    return pipeline(
        "a cat", num_inference_steps=1, width=64, height=64, output_type="pt", generator=generator, **options
    ).images


def unet_inputs(config):
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "sample": torch.randn(2, 4, 8, 8, generator=generator),
        "timestep": torch.tensor([1, 500]),
        "encoder_hidden_states": torch.randn(2, 77, config["cross_attention_dim"], generator=generator),
    }
    if "addition_embed_type" in config:
        pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
        inputs["added_cond_kwargs"] = {"text_embeds": torch.randn(2, pooled), "time_ids": torch.ones(2, 6)}
    return inputs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_computes_what_the_modules_it_was_made_of_compute(family, diffusers, tmp_path, cache):
    """Modules as the libraries initialise them, saved in the original layout and loaded: the same bytes out."""
    import transformers

    config = published(family, "tiny")
    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(**config.unet).eval()
    vae = diffusers.AutoencoderKL(**config.vae).eval()
    texts = []
    for arguments in config.text_encoders:
        kind = "CLIPTextModelWithProjection" if arguments["with_projection"] else "CLIPTextModel"
        settings = {name: value for name, value in arguments.items() if name != "with_projection"}
        texts.append(getattr(transformers, kind)(transformers.CLIPTextConfig(**settings)).eval())
    parts = {"unet": unet.state_dict(), "vae": vae.state_dict(), "text_encoder": texts[0].state_dict()}
    if len(texts) > 1:
        parts["text_encoder_2"] = texts[1].state_dict()
    tensors = to_ldm(parts, config)
    if family == "sd2":  # a file has one block more than is read
        unread = "cond_stage_model.model.transformer.resblocks.2."
        first = {name: tensor for name, tensor in tensors.items() if ".resblocks.0." in name}
        tensors |= {unread + name.split(".resblocks.0.")[1]: tensor.clone() for name, tensor in first.items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")

    loaded = load_model(tmp_path / "model.safetensors", cache)
    assert (loaded.family, loaded.name) == (family, "model")
    assert bool(loaded.notices) is (family == "sd2")
    pipeline = loaded.pipeline
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        inputs = unet_inputs(config.unet)
        assert torch.equal(pipeline.unet(**inputs).sample, unet(**inputs).sample)
        latents = inputs["sample"]
        assert torch.equal(pipeline.vae.decode(latents).sample, vae.decode(latents).sample)
        for ours, theirs in zip(
            [pipeline.text_encoder, getattr(pipeline, "text_encoder_2", None)], [*texts, None], strict=False
        ):
            if theirs is not None:
                assert torch.equal(ours(ids)[0], theirs(ids)[0])


@pytest.mark.parametrize(
    ("family", "size", "suffix"),
    [("sd1", 512, ".ckpt"), ("sd2", 768, ".safetensors"), ("sdxl", 1024, ".safetensors")],
)
def test_made_checkpoints_draw(family, size, suffix, tmp_path, cache):
    seen = []
    path = make_checkpoint(
        tmp_path / f"m{suffix}", family, "tiny", 0, torch.float16, lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] == len(seen)
    assert path.with_suffix(".yaml").is_file()
    loaded = load_model(path, cache)
    assert loaded.default_size == (size, size)
    assert loaded.notices == ()  # the yaml tells what SD 2 predicts
    image = draw(loaded.pipeline)
    assert image.shape == (1, 3, 64, 64)
    assert image.isfinite().all()
    assert image.std() > 0.05


def test_a_pipeline_without_a_file_is_the_one_from_the_file(tmp_path, cache):
    path = make_checkpoint(tmp_path / "m.safetensors", "sd1", "tiny", 5, torch.float32)
    loaded, built = load_model(path, cache).pipeline, maker.build_pipeline("sd1", "tiny", 5, torch.float32, cache)
    for name in ("unet", "vae", "text_encoder"):
        ours, theirs = getattr(built, name).state_dict(), getattr(loaded, name).state_dict()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())


def test_half_precision_keeps_an_overflowing_vae_in_float32(tmp_path, cache):
    path = make_checkpoint(tmp_path / "m.safetensors", "sdxl", "tiny", 0, torch.float16)
    single = load_model(path, cache, torch.float16).pipeline
    single.save_pretrained(str(tmp_path / "folder"))
    for pipeline in (single, load_model(tmp_path / "folder", cache, torch.float16).pipeline):
        assert {pipeline.unet.dtype, pipeline.text_encoder.dtype, pipeline.text_encoder_2.dtype} == {torch.float16}
        assert pipeline.vae.dtype == torch.float32


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    for suffix in (".safetensors", ".ckpt"):
        with monkeypatch.context() as patch:
            patch.setattr(maker.NoisePool, "fill", full)
            with pytest.raises(StorageError, match="No space left on device"):
                make_checkpoint(tmp_path / f"m{suffix}", "sd1")
    assert list(tmp_path.iterdir()) == []


def test_bad_orders_for_a_checkpoint(tmp_path):
    for arguments in (("m.bin", "sd1"), ("m.ckpt", "sd9"), ("m.ckpt", "sd1", "huge")):
        with pytest.raises(BadInputError):
            make_checkpoint(tmp_path / arguments[0], *arguments[1:])


def test_token_ids(cache):
    one, two = (
        clip_tokenizer.clip_tokenizer(cache, pad) for pad in (clip_tokenizer.CLIP_PAD, clip_tokenizer.OPEN_CLIP_PAD)
    )
    assert one("a photo of a cat").input_ids == PROMPT
    assert one("A PHOTO of a cat").input_ids == PROMPT
    padded = {"padding": "max_length", "max_length": 9, "truncation": True}
    assert one("a photo of a cat", **padded).input_ids == [*PROMPT, 49407, 49407]
    assert two("a photo of a cat", **padded).input_ids == [*PROMPT, 0, 0]
    assert one.model_max_length == two.model_max_length == 77
    assert len(one) == len(two) == 49408


def test_no_vocabulary_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(clip_tokenizer, "PACKAGES", ("no_such_package",))
    with pytest.raises(UnavailableError, match="pip install open_clip_torch"):
        clip_tokenizer.clip_tokenizer(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_makers_at_once_get_one_whole_folder(tmp_path):
    both = threading.Barrier(2)

    def write(folder):
        (folder / "a").write_text("a")
        both.wait(10)
        (folder / "b").write_text("b")

    threads = [threading.Thread(target=atomic.whole_folder, args=(tmp_path / "made", write)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.name for file in tmp_path.iterdir()] == ["made"]
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["a", "b"]


@pytest.fixture
def folder(tmp_path, cache):
    return shutil.copytree(embedded.embedded_folder(), tmp_path / "mine")


def test_a_folder(folder, cache):
    loaded = load_model(folder, cache)
    assert (loaded.family, loaded.name, loaded.notices) == ("sd1", "mine", ())
    assert loaded.pipeline.safety_checker is None


def edit_index(folder, **changes):
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | changes))


def without_a_text_weight(folder):
    weights = load_file(folder / "text_encoder" / "model.safetensors")
    weights.pop("text_model.final_layer_norm.weight")
    save_file(weights, folder / "text_encoder" / "model.safetensors", metadata={"format": "pt"})


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "model_index.json").write_text("{"), "model_index.json cannot be read"),
        (lambda f: (f / "model_index.json").unlink(), "without model_index.json"),
        (lambda f: edit_index(f, _class_name="FluxPipeline"), "FluxPipeline"),
        (lambda f: edit_index(f, scheduler=["os", "system"]), "refused"),
        (lambda f: edit_index(f, text_encoder=["transformers", "T5EncoderModel"]), "T5EncoderModel"),
        (lambda f: shutil.rmtree(f / "vae"), "its vae is missing"),
        (lambda f: cut(f / "unet" / "diffusion_pytorch_model.safetensors"), "cannot be loaded"),
        (lambda f: (f / "unet" / "diffusion_pytorch_model.safetensors").unlink(), "cannot be loaded"),
        (without_a_text_weight, "lacks"),
    ],
)
def test_damaged_folders(folder, cache, damage, words):
    damage(folder)
    with pytest.raises(ModelFileError) as caught:
        load_model(folder, cache)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_impossible_configuration_is_one_sentence(diffusers):
    import dataclasses

    config = published("sd1", "tiny")
    broken = dataclasses.replace(config, unet=config.unet | {"block_out_channels": [33, 64, 64, 64]})
    with pytest.raises(ModelFileError, match="working network"):
        empty_modules(broken)
