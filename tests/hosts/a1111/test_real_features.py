"""What changes a picture in the real AUTOMATIC1111 — another VAE, a refiner, embeddings, hypernetworks, token merging,
attention, previews — changes it under every profile as it does in the host without the extension, to the byte, and
nothing of it stays on the card."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.hosts.webui import NEEDED, WEBUI, WebUi

from . import features_rig as rig
from .features_rig import PROMPT, Pictures, options, place, same, state

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]
PROFILES = ("lowvram", "sequential", "stream", "spill")
HIRES = {"enable_hr": True, "hr_scale": 1.5, "denoising_strength": 0.6, "hr_upscaler": "Latent"}
REFINER = {"refiner_checkpoint": "other", "refiner_switch_at": 0.5, "n_iter": 2}
MERGING = {"token_merging_ratio": 0.5, "token_merging_ratio_hr": 0.25}
VAE = {"sd_vae": "other-vae.safetensors"}


@dataclass(frozen=True)
class Case:
    """One request, and what is set on the Settings page before it and set back after it."""

    order: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    changes: bool = True
    """Whether the picture is another one than without."""

    def made(self, host: WebUi) -> Pictures:
        options(host, **self.before)
        try:
            return host.pictures(**{"prompt": PROMPT, "return_grid": False, **self.order})
        finally:
            options(host, **self.after)


def attention(title: str) -> Case:
    name = "cross_attention_optimization"
    return Case({}, {name: title}, {name: "Automatic"}, changes=False)


CASES = {
    "plain": Case(changes=False),
    "VAE in the settings": Case({}, VAE, {"sd_vae": "Automatic"}),
    "VAE in the request": Case({"override_settings": VAE}),
    "refiner": Case(REFINER),
    "hires checkpoint": Case({**HIRES, "hr_checkpoint_name": "other", "n_iter": 2}),
    "hires checkpoint and a VAE": Case({**HIRES, "hr_checkpoint_name": "other", "override_settings": VAE}),
    "embedding": Case({"prompt": f"scrawl {PROMPT}"}),
    "hypernetwork": Case({"prompt": f"{PROMPT} <hypernet:tiny:1>"}),
    "hypernetwork and refiner": Case({**REFINER, "prompt": f"{PROMPT} <hypernet:tiny:1>"}),
    "token merging": Case({**HIRES, "override_settings": MERGING}),
    "token merging and refiner": Case({**REFINER, "override_settings": MERGING}),
    "token merging after another attention": Case(
        {"override_settings": MERGING}, {"cross_attention_optimization": "V1 - original v1"},
        {"cross_attention_optimization": "Automatic"},
    ),
    "attention Doggettx": attention("Doggettx"),
    "attention sub-quadratic": attention("sub-quadratic"),
    "attention InvokeAI": attention("InvokeAI"),
    "attention V1": attention("V1 - original v1"),
    "attention sdp-no-mem": attention("sdp-no-mem - scaled dot product without memory efficient attention"),
    "attention of the model": attention("None"),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain_data(tmp_path_factory):
    data = tmp_path_factory.mktemp("plain")
    rig.make_models(data)
    rig.dress(data, extended=False)
    return data


@pytest.fixture(scope="module")
def wanted(plain_data) -> dict[str, Pictures]:
    """What the host draws by itself, where it repeats itself."""
    host = rig.begin(plain_data)
    try:
        order = {"name": "tiny", "width": 64, "weights": "XavierNormal"}
        assert host.ask("/features/hypernetwork", order) == {"found": ["tiny"]}
        made, again = ({name: case.made(host) for name, case in CASES.items()} for _ in range(2))
    finally:
        host.close()
    for name, pictures in made.items():
        assert same(pictures, again[name]), f"the host itself does not repeat {name}"
        assert not CASES[name].changes or not same(pictures[:1], made["plain"]), f"{name} changes nothing"
    return made


@pytest.fixture(scope="module")
def host(plain_data, wanted, tmp_path_factory):
    data = rig.copied(plain_data, tmp_path_factory.mktemp("extended"))
    rig.dress(data, extended=True)
    host = rig.begin(data, "--spillway-dedicated-limit", rig.TIGHT)
    yield host
    host.close()


@pytest.fixture(scope="module", params=PROFILES)
def profile(request, host) -> str:
    """In force, with everything loaded that stays loaded."""
    rows = {row["profile"]: row for row in host.ask("/spillway/v1/profile")["rows"]}
    if rows[request.param]["unavailable_because"]:
        pytest.skip(f"{request.param} needs what this version lacks: {rows[request.param]['unavailable_because']}")
    place(host, request.param)
    for _ in range(3):
        CASES["plain"].made(host)
    return request.param


@pytest.fixture
def undisturbed(host, profile):
    """Afterwards everything lies as it did before, and nothing went wrong in silence."""
    before, said = state(host), len(host.log.read_text(errors="replace"))
    yield
    after = state(host)
    beside = [found.pop("used_bytes") - found["resident_bytes"] for found in (before, after)]
    assert after == before
    assert (after["profiles"], after["current"]) == ([profile], [True])
    assert beside[1] - beside[0] < 64 * 2**10, "more than the prompts that the host keeps"
    words = host.log.read_text(errors="replace")[said:]
    assert "Traceback" not in words
    assert "without Spillway" not in words


@pytest.mark.parametrize("name", CASES)
def test_the_picture_is_the_hosts_own(host, wanted, profile, undisturbed, name):
    assert same(CASES[name].made(host), wanted[name])
    records = host.ask("/spillway/v1/images?limit=1")["images"]
    assert [(record["profile_used"], record["rungs"]) for record in records] == [(profile, [])]
    assert same(CASES["plain"].made(host), wanted["plain"])


@pytest.mark.parametrize("shown", ["Full", "Approx cheap"])
def test_previews_are_shown_and_change_nothing(host, wanted, profile, undisturbed, shown):
    steps = {"steps": 12}
    quiet = host.pictures(PROMPT, **steps)
    options(host, live_previews_enable=True, show_progress_type=shown)
    try:
        with ThreadPoolExecutor(1) as pool:
            making, seen = pool.submit(host.pictures, PROMPT, **steps), set()
            while not making.done():
                seen.add(host.ask("/sdapi/v1/progress")["current_image"])
                time.sleep(0.05)
    finally:
        options(host, live_previews_enable=False)
    assert len(seen - {None, ""}) > 1
    assert same(making.result(), quiet)
