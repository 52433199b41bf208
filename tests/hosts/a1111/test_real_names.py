"""The small webui has the names and signatures of the real one, read from its sources."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path

import pytest

from sd_webui_spillway.hosts.a1111.series import HEED_MISSING_IMAGES
from tests.fakes.a1111.parts import ImageRNG
from tests.fakes.a1111.webui import Webui

WEBUI = os.environ.get("SPILLWAY_A1111")
pytestmark = pytest.mark.skipif(not WEBUI, reason="needs a real AUTOMATIC1111: SPILLWAY_A1111=<its folder>")


def real(file: str, path: str) -> list[str]:
    """The parameters of a function, or of a method "Class.method", in a source file."""
    body = ast.parse((Path(WEBUI) / file).read_text(encoding="utf-8")).body
    *classes, name = path.split(".")
    for wanted in classes:
        (body,) = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == wanted]
    (function,) = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return [argument.arg for argument in function.args.args]


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("processing", "process_images_inner"),
        ("processing", "create_infotext"),
        ("processing", "decode_latent_batch"),
        ("processing", "Processed.__init__"),
        ("processing", "Processed.js"),
        ("processing", "StableDiffusionProcessing.setup_conds"),
        ("processing", "StableDiffusionProcessing.parse_extra_network_prompts"),
        ("processing", "StableDiffusionProcessing.comment"),
        ("processing", "StableDiffusionProcessing.save_samples"),
        ("processing", "StableDiffusionProcessing.get_token_merging_ratio"),
        ("processing", "StableDiffusionProcessingTxt2Img.setup_conds"),
        ("processing", "StableDiffusionProcessingTxt2Img.sample"),
        ("processing", "StableDiffusionProcessingTxt2Img.sample_hr_pass"),
        ("processing", "StableDiffusionProcessingImg2Img.init"),
        ("processing", "StableDiffusionProcessingImg2Img.sample"),
        ("img2img", "process_batch"),
        ("images", "save_image"),
        ("face_restoration", "restore_faces"),
    ],
)
def test_signatures(tmp_path, module, path):
    found = Webui(tmp_path)[module]
    for name in path.split("."):
        found = getattr(found, name)
    names = list(inspect.signature(found).parameters)
    wanted = real(f"modules/{module}.py", path)
    if path.endswith("comment"):
        assert len(names) == len(wanted)
    else:
        assert names == wanted


def test_surroundings():
    assert real("modules/sd_samplers_common.py", "Sampler.callback_state") == ["self", "d"]
    assert real("modules/errors.py", "report")[0] == "message"
    assert real("modules/extra_networks.py", "activate") == ["p", "extra_network_data"]
    assert real("modules/sd_models.py", "load_model") == ["checkpoint_info", "already_loaded_state_dict"]
    assert real("modules/sd_models.py", "reload_model_weights") == ["sd_model", "info", "forced_reload"]
    assert real("modules/scripts.py", "ScriptRunner.run") == ["self", "p"]
    assert real("modules/prompt_parser.py", "MulticondLearnedConditioning.__init__") == ["self", "shape", "batch"]
    assert real("modules/sd_models.py", "apply_token_merging") == ["sd_model", "token_merging_ratio"]
    assert real("modules/shared_state.py", "State.interrupt") == ["self"]
    assert real("extensions-builtin/Lora/networks.py", "network_apply_weights") == ["self"]
    assert real("modules/rng.py", "ImageRNG.__init__") == list(inspect.signature(ImageRNG.__init__).parameters)
    axis = real("scripts/xyz_grid.py", "AxisOption.__init__")
    assert {"label", "type", "apply", "confirm", "choices"} <= set(axis)
    option = real("modules/options.py", "OptionInfo.__init__")
    assert option[1:5] == ["default", "label", "component", "component_args"]
    assert real("modules/options.py", "Options.add_option") == ["self", "key", "info"]


def test_a_lock_is_held_while_the_first_checkpoint_is_loaded():
    source = (Path(WEBUI) / "modules/sd_models.py").read_text(encoding="utf-8")
    (loads,) = [part for part in source.split("    def ") if part.startswith("get_sd_model")]
    assert loads.index("with self.lock:") < loads.index("load_model()")


@pytest.mark.parametrize("script", HEED_MISSING_IMAGES)
def test_scripts_that_are_told_of_missing_images_are_there(script):
    assert (Path(WEBUI) / f"scripts/{script}.py").is_file()


def test_an_image_of_a_batch_is_found_by_iteration_and_size():
    """What makes an image the same alone as in its batch: no signature shows it."""
    sampling = (Path(WEBUI) / "modules/sd_samplers_common.py").read_text(encoding="utf-8")
    assert "p.all_seeds[p.iteration * p.batch_size:(p.iteration + 1) * p.batch_size]" in sampling
    text = (Path(WEBUI) / "modules/processing.py").read_text(encoding="utf-8")
    assert "self.all_hr_prompts[self.iteration * self.batch_size:(self.iteration + 1) * self.batch_size]" in text


def test_the_batchs_own_seeds_describe_a_finished_image():
    """What tells a finished image's infotext from every other: no signature shows it."""
    source = (Path(WEBUI) / "modules/processing.py").read_text(encoding="utf-8")
    assert source.count("create_infotext(p, p.prompts, p.seeds, p.subseeds, use_main_prompt=use_main_prompt") == 1
