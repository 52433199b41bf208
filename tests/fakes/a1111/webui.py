"""A small webui: the names, signatures and order of calls that the watch over AUTOMATIC1111's jobs relies on.

``tests/hosts/a1111/test_real_names.py`` checks them against the real sources. It draws nothing: a picture's colour is
its seed, so that a test sees which pictures came back.
"""

from __future__ import annotations

import sys
import threading
import types
from contextlib import nullcontext
from pathlib import Path

import torch
from PIL import Image

from .parts import DecodedSamples, ImageRNG, InterruptedException, ScriptRunner, State, folder_batch


class Webui:
    """Its modules, in ``sys.modules`` from :meth:`install` to :meth:`remove`. A test plans what happens at a place
    with :attr:`at`: called with its name, it may raise or stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at = lambda place: None
        self.state = State()
        self.calls: list[str] = []
        self.saved: list[Path] = []
        self.params = ""
        self._modules = self._made()

    def install(self) -> None:
        sys.modules.update(self._modules)

    def remove(self) -> None:
        for name in self._modules:
            sys.modules.pop(name, None)

    @property
    def processing(self):
        return self._modules["modules.processing"]

    def __getitem__(self, name: str):
        return self._modules[f"modules.{name}"]

    def reach(self, place: str) -> None:
        self.calls.append(place)
        self.at(place)

    def text_to_image(self, **changes):
        return self.processing.StableDiffusionProcessingTxt2Img(self, **changes)

    def image_to_image(self, **changes):
        return self.processing.StableDiffusionProcessingImg2Img(self, **changes)

    def make(self, p):
        """As the webui's ``process_images`` does: the function is looked up when it is called."""
        return self.processing.process_images_inner(p)

    def _made(self) -> dict[str, types.ModuleType]:
        names = (
            "processing", "images", "shared", "devices", "sd_models", "extra_networks", "sd_samplers_common",
            "face_restoration", "errors", "scripts", "img2img",
        )  # fmt: skip
        made = {f"modules.{name}": types.ModuleType(f"modules.{name}") for name in names}
        made["modules"] = types.ModuleType("modules")
        made["modules"].__path__ = []
        self._fill_surroundings(made)
        _fill_processing(made["modules.processing"], made, self)
        return made

    def _fill_surroundings(self, made: dict[str, types.ModuleType]) -> None:
        made["modules.shared"].state = self.state
        made["modules.shared"].cmd_opts = types.SimpleNamespace(api_auth=None)
        made["modules.devices"].autocast = nullcontext
        made["modules.sd_models"].reload_model_weights = lambda sd_model=None, info=None, forced_reload=False: (
            self.reach("reload")
        )
        made["modules.sd_models"].apply_token_merging = lambda *args: self.calls.append("merge")
        made["modules.sd_models"].model_data = types.SimpleNamespace(lock=threading.Lock())
        made["modules.extra_networks"].activate = lambda *args: self.calls.append("activate")
        made["modules.errors"].report = lambda message, exc_info=False: self.calls.append(message)
        made["modules.scripts"].scripts_data = []
        made["modules.scripts"].ScriptRunner = ScriptRunner
        made["modules.img2img"].process_batch = folder_batch(self.make)

        def restore_faces(np_image):
            self.reach("face")
            return np_image

        def save_image(
            image, path, basename, seed=None, prompt=None, extension="png", info=None, short_filename=False,
            no_prompt=False, grid=False, pnginfo_section_name="parameters", p=None, existing_info=None,
            forced_filename=None, suffix="", save_to_dirs=None,
        ):  # fmt: skip
            self.reach("save")
            file = self.folder / f"{len(self.saved):05d}{basename}{suffix}.txt"
            file.write_text(info or "")
            self.saved.append(file)
            return str(file), None

        class Sampler:
            def callback_state(sampler, d):  # noqa: N805
                if self.state.interrupted or self.state.skipped:
                    raise InterruptedException
                self.state.sampling_step = d["i"]

            def run(sampler, steps):  # noqa: N805
                self.state.sampling_steps = steps
                try:
                    for step in range(steps):
                        self.reach("step")
                        sampler.callback_state({"i": step})
                except InterruptedException:
                    pass

        made["modules.face_restoration"].restore_faces = restore_faces
        made["modules.images"].save_image = save_image
        made["modules.sd_samplers_common"].Sampler = Sampler


def _fill_processing(processing: types.ModuleType, made: dict[str, types.ModuleType], webui: Webui) -> None:
    images, sampler = made["modules.images"], made["modules.sd_samplers_common"].Sampler

    class StableDiffusionProcessing:
        def __init__(self, owner, **changes) -> None:
            self.sd_model = "the model"
            self.sd_model_name = None
            self.prompt, self.negative_prompt, self.seed, self.sampler_name = "a circle", "", 5, "Euler"
            self.width = self.height = 16
            self.steps, self.cfg_scale, self.denoising_strength = 4, 7.0, None
            self.batch_size, self.n_iter = 1, 3
            self.do_not_save_samples = self.restore_faces = self.is_api = self.is_hr_pass = False
            self.disable_extra_networks = True
            self.script_args = []
            self.outpath_samples = str(owner.folder)
            self.grid = self.masks = False
            self.extra_generation_params, self.comments = {}, {}
            self.prompts = self.seeds = self.all_seeds = self.rng = self.c = self.uc = None
            vars(self).update(changes)

        def comment(self, text) -> None:
            self.comments[text] = 1

        def save_samples(self):
            return not self.do_not_save_samples

        def get_token_merging_ratio(self, for_hr=False):
            return 0

        def init(self, all_prompts, all_seeds, all_subseeds):
            webui.reach("init")

        def parse_extra_network_prompts(self):
            pass

        def setup_conds(self):
            webui.reach("encode")
            self.c = self.uc = [f"what image {seed} shows" for seed in self.seeds]

        def noise(self, conditioning):
            """As a sampler finds what belongs to its images."""
            of_batch = slice(self.iteration * self.batch_size, (self.iteration + 1) * self.batch_size)
            assert self.all_seeds[of_batch] == self.seeds == self.rng.seeds
            assert conditioning == [f"what image {seed} shows" for seed in self.seeds]
            return self.rng.next()

    class StableDiffusionProcessingTxt2Img(StableDiffusionProcessing):
        def __init__(self, owner, enable_hr=False, **changes) -> None:
            super().__init__(owner, **changes)
            self.enable_hr, self.hr_scale, self.hr_resize_x, self.hr_resize_y = enable_hr, 2.0, 0, 0
            self.hr_upscale_to_x = self.hr_upscale_to_y = self.truncate_x = self.truncate_y = 0

        def setup_conds(self):
            super().setup_conds()

        def sample(self, conditioning, unconditional_conditioning, seeds, subseeds, subseed_strength, prompts):
            samples = self.noise(conditioning)
            sampler().run(self.steps)
            if not self.enable_hr:
                return samples
            return self.sample_hr_pass(samples, None, seeds, subseeds, subseed_strength, prompts)

        def sample_hr_pass(self, samples, decoded_samples, seeds, subseeds, subseed_strength, prompts):
            self.is_hr_pass = True
            self.hr_upscale_to_x, self.hr_upscale_to_y = int(self.width * 2), int(self.height * 2)
            if self.save_samples():
                info = processing.create_infotext(self, self.all_prompts, self.all_seeds, None, [], self.iteration, 0)
                images.save_image(None, self.outpath_samples, "", info=info, p=self, suffix="-before-highres-fix")
            webui.reach("upscale")
            sampler().run(self.steps)
            pixels = processing.decode_latent_batch(self.sd_model, samples)
            self.is_hr_pass = False
            return pixels

    class StableDiffusionProcessingImg2Img(StableDiffusionProcessing):
        def init(self, all_prompts, all_seeds, all_subseeds):
            webui.reach("init")

        def sample(self, conditioning, unconditional_conditioning, seeds, subseeds, subseed_strength, prompts):
            samples = self.noise(conditioning)
            sampler().run(self.steps // 2)
            return samples

    class Processed:
        def __init__(
            self, p, images_list, seed=-1, info="", subseed=None, all_prompts=None, all_negative_prompts=None,
            all_seeds=None, all_subseeds=None, index_of_first_image=0, infotexts=None, comments="",
        ) -> None:  # fmt: skip
            self.images, self.seed, self.info, self.infotexts = images_list, seed, info, infotexts
            self.comments = "".join(f"{comment}\n" for comment in p.comments)
            self.all_prompts, self.all_seeds = all_prompts or p.all_prompts, all_seeds or p.all_seeds
            self.index_of_first_image = index_of_first_image

        def js(self):
            return '{"seed": 5}'

    def decode_latent_batch(model, batch, target_device=None, check_for_nans=False):
        webui.reach("decode")
        p = processing.current
        side = 2 if p.is_hr_pass else 1
        return DecodedSamples(torch.full((3, p.height * side, p.width * side), float(x.max()) / 100) for x in batch)

    def create_infotext(
        p, all_prompts, all_seeds, all_subseeds, comments=None, iteration=0, position_in_batch=0,
        use_main_prompt=False, index=None, all_negative_prompts=None,
    ):  # fmt: skip
        if use_main_prompt:
            index = 0
        elif index is None:
            index = position_in_batch + iteration * p.batch_size
        seed = p.all_seeds[0] if use_main_prompt else all_seeds[index]
        words = {"Steps": p.steps, "Seed": seed, **p.extra_generation_params}
        for key, value in words.items():
            words[key] = value(**locals()) if callable(value) else value
        told = [f'{k}: "{v}"' if "," in str(v) else f"{k}: {v}" for k, v in words.items() if v is not None]
        return f"{p.main_prompt if use_main_prompt else all_prompts[index]}\n" + ", ".join(told)

    def process_images_inner(p):
        count = p.n_iter * p.batch_size
        p.sd_model_name, p.main_prompt = "small", p.prompt
        p.all_prompts = p.all_negative_prompts = [p.prompt] * count
        p.all_seeds = p.all_subseeds = [p.seed + i for i in range(count)]
        p.init(p.all_prompts, p.all_seeds, p.all_subseeds)
        texts, pictures = [], []
        for n in range(p.n_iter):
            p.iteration, processing.current = n, p
            webui.state.skipped = False
            if webui.state.interrupted:
                break
            made["modules.sd_models"].reload_model_weights()
            of_batch = slice(n * p.batch_size, (n + 1) * p.batch_size)
            p.prompts, p.seeds, p.subseeds = p.all_prompts[of_batch], p.all_seeds[of_batch], p.all_subseeds[of_batch]
            p.rng = ImageRNG((4, p.height // 8, p.width // 8), p.seeds)
            if not p.prompts:
                break
            p.parse_extra_network_prompts()
            p.setup_conds()
            if n == 0:
                webui.params = create_infotext_now(p, p.all_prompts, p.all_seeds, None, position_in_batch=0)
            samples = p.sample(
                conditioning=p.c, unconditional_conditioning=p.uc, seeds=p.seeds, subseeds=p.subseeds,
                subseed_strength=0, prompts=p.prompts,
            )  # fmt: skip
            if not getattr(samples, "already_decoded", False):
                samples = processing.decode_latent_batch(p.sd_model, samples, check_for_nans=True)
            samples = torch.stack(samples)
            webui.reach("batch")
            samples = torch.cat([samples] * (len(p.seeds) // len(samples)))
            save = p.save_samples()
            for i, sample in enumerate(samples):
                p.batch_index = i
                _finish(p, i, sample, save, texts, pictures)
        first = 0
        if p.grid and len(pictures) > 1:
            first = 1
            text = processing.create_infotext(p, p.prompts, p.seeds, None, use_main_prompt=True, index=0)
            texts.insert(0, text)
            pictures.insert(0, Image.new("RGB", (8, 8)))
            images.save_image(pictures[0], p.outpath_samples, "grid", info=text, p=p, grid=True)
        texts = texts or [create_infotext_now(p, p.all_prompts, p.all_seeds, None)]
        return processing.Processed(
            p, images_list=pictures, seed=p.all_seeds[0], info=texts[0], subseed=p.all_subseeds[0],
            index_of_first_image=first, infotexts=texts,
        )  # fmt: skip

    def create_infotext_now(*args, **kwargs):
        return processing.create_infotext(*args, **kwargs)

    def _finish(p, i, sample, save, texts, pictures) -> None:
        def infotext(index):
            return processing.create_infotext(p, p.prompts, p.seeds, None, use_main_prompt=False, index=index)

        if p.restore_faces:
            if save:
                images.save_image(
                    None, p.outpath_samples, "", info=infotext(i), p=p, suffix="-before-face-restoration"
                )
            made["modules.face_restoration"].restore_faces(sample)
        picture = Image.new("RGB", (sample.shape[2], sample.shape[1]), (max(0, round(float(sample.max()) * 100)),) * 3)
        webui.reach("picture")
        if save:
            images.save_image(picture, p.outpath_samples, "", p.seeds[i], p.prompts[i], "png", info=infotext(i), p=p)
        texts.append(infotext(i))
        pictures.append(picture)
        if p.masks:
            pictures.append(Image.new("RGB", (4, 4)))

    for value in (
        StableDiffusionProcessing, StableDiffusionProcessingTxt2Img, StableDiffusionProcessingImg2Img, Processed,
        DecodedSamples, decode_latent_batch, create_infotext, process_images_inner,
    ):  # fmt: skip
        setattr(processing, value.__name__, value)
