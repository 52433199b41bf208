"""Registers the extension with the WebUI; the package beside it does the rest."""

from modules import scripts

from sd_webui_spillway.hosts.a1111 import plugin

spillway = plugin.install()


class SpillwayScript(scripts.Script):
    """Keeps the compact meter in txt2img and img2img."""

    def title(self) -> str:
        return "Spillway"

    def show(self, is_img2img: bool) -> object:
        return scripts.AlwaysVisible

    def ui(self, is_img2img: bool) -> list[object]:
        spillway.compact(is_img2img=is_img2img)
        return []
