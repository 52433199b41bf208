"""What a job needs, counted in the real AUTOMATIC1111 with the types and attentions of a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts.webui import NEEDED, WEBUI, WebUi, add_script, add_this_extension

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]


def test_half_precision_is_counted_under_every_attention(tmp_path):
    from sd_webui_spillway.models import convert_folder
    from sd_webui_spillway.models.embedded import embedded_folder

    checkpoint = tmp_path / "models" / "Stable-diffusion" / "small.safetensors"
    checkpoint.parent.mkdir(parents=True)
    convert_folder(embedded_folder(), checkpoint)
    add_this_extension(tmp_path)
    add_script(tmp_path, "the-count", Path(__file__).with_name("count_probe.py"))  # loaded after this one, by name
    host = WebUi(tmp_path, checkpoint)
    try:
        host.wait()
        counts = host.ask("/count", {})
    finally:
        host.close()
    assert len(counts) == 7
    assert {count["unknown"] for count in counts.values()} == {None}
    assert len({count["unet"] for count in counts.values()}) == 1
