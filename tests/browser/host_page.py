"""As much of a host's page as the panel's script looks at: fields, a gallery with its texts, tabs, the panel's tab.

The names and their nesting are those of AUTOMATIC1111 1.10.1; a test against the real one is elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.panel.app import head_markup
from sd_webui_spillway.panel.gradio_compat import event_options, gallery, mount, new_blocks
from sd_webui_spillway.panel.page import HeadInjector
from sd_webui_spillway.panel.panel import build_compact, build_panel
from sd_webui_spillway.panel.routes import build_router
from sd_webui_spillway.session import Session

REQUEST = ImageRequest(width=64, height=64, steps=2, batch_size=2, seed=5)
EVERY_MODULE = """
<script type="module">
  // As the host does: each module by itself, under an address that no other module uses.
  const names = %s;
  for (const name of names) await import(`/spillway/v1/assets/${name}?mtime`);
</script>
"""


def build_host_page(session: Session, folder: Path) -> FastAPI:
    """A page whose button makes a grid, two images saved or not, and a mask, as the host delivers them."""
    import gradio

    def make(saved: bool) -> tuple[list[str], str]:
        result = session.generate(REQUEST)
        records = [image.record for image in result.images]
        paths = [image.path for image in result.images]
        if not saved:
            paths = [_temporary(folder, record.record_id, path) for record, path in zip(records, paths, strict=True)]
        grid = _temporary(folder, records[0].record_id, paths[0])
        mask = folder / f"mask-{records[0].record_id[:6]}.png"
        Image.new("RGB", (64, 64)).save(mask)
        return [str(grid), str(paths[0]), str(mask), str(paths[1])], json.dumps({"index_of_first_image": 1})

    app = FastAPI()
    app.include_router(build_router(session))
    with new_blocks("A host") as blocks, gradio.Tabs(elem_id="tabs"):
        with gradio.Tab("txt2img", elem_id="tab_txt2img"):
            for name, value in (("width", 64), ("height", 64), ("steps", 2), ("batch_size", 2)):
                gradio.Number(value=value, label=name, elem_id=f"txt2img_{name}")
            with gradio.Accordion("Spillway", open=True):
                build_compact(session, "txt2img")
            images = gallery(label="Output", columns=4, elem_id="txt2img_gallery")
            texts = gradio.Textbox(elem_id="generation_info_txt2img")
            for name, saved in (("saved", True), ("unsaved", False)):
                button = gradio.Button(f"Generate {name}", elem_id=f"txt2img_{name}")
                button.click(_with(make, saved), outputs=[images, texts], **event_options(queue=True))
        with gradio.Tab("Spillway", elem_id="tab_spillway"):
            build_panel(session, None)
    app = mount(app, blocks, (folder, session.output_folder))
    modules = sorted(path.name for path in (Path(__file__).parents[2] / "javascript").glob("*.mjs"))
    app.add_middleware(HeadInjector, markup=head_markup() + EVERY_MODULE % json.dumps(modules))
    return app


def _with(make: Any, saved: bool) -> Any:
    return lambda: make(saved)


def _temporary(folder: Path, record_id: str, picture: Path) -> Path:
    """A copy under the name that Python gives a temporary file, with the host's parameters in it."""
    texts = PngInfo()
    texts.add_text("parameters", f"a shape\nSteps: 2, Size: 64x64, Spillway id: {record_id[:8]}, Version: 1")
    number = len(list(folder.glob("tmp*.png")))
    path = folder / f"tmp{record_id[:6]}{number}.png"
    with Image.open(picture) as image:
        image.save(path, pnginfo=texts)
    return path
