"""Finding a browser of the Chromium family, and asking a page about itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    # Fonts and frames that gradio asks the internet for are no part of this.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge")
_WINDOWS_TAILS = (
    r"Google\Chrome\Application\chrome.exe", r"Chromium\Application\chrome.exe",
    r"Microsoft\Edge\Application\msedge.exe",
)
_WINDOWS_ROOTS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")


def find_chromium() -> str | None:
    """The browser named by SPILLWAY_CHROMIUM, or the first one found."""
    named = os.environ.get("SPILLWAY_CHROMIUM")
    if named:
        return named
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found:
        return found
    roots = [Path(os.environ[root]) for root in _WINDOWS_ROOTS if root in os.environ]
    return next((str(root / tail) for root in roots for tail in _WINDOWS_TAILS if (root / tail).is_file()), None)


@contextmanager
def running_browser() -> Iterator[Any]:
    """playwright's browser until the block ends; skips the test where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    path = find_chromium()
    if path is None:
        assert "SPILLWAY_BROWSER_REQUIRED" not in os.environ, "no browser found, and this run must have one"
        pytest.skip("browser tests need Chromium, Chrome or Edge; name one in SPILLWAY_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


WORST_CONTRAST = """
(selectors) => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const background = (node) => {
    if (!node) return [255, 255, 255, 1];
    const own = rgba(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, background(node.parentElement));
  };
  const luminance = (colour) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const opacity = (node) => (node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1);
  const found = {};
  for (const selector of selectors) {
    const seen = (node) => node.offsetParent && node.textContent.trim();
    const nodes = [...document.querySelectorAll(selector)].filter(seen);
    const ratios = nodes.map((node) => {
      const under = background(node);
      const text = rgba(getComputedStyle(node).color);
      text[3] *= opacity(node);
      const [high, low] = [luminance(over(text, under)), luminance(under)].sort((a, b) => b - a);
      return (high + 0.05) / (low + 0.05);
    });
    found[selector] = ratios.length ? Math.min(...ratios) : null;
  }
  return found;
}
"""
"""The lowest contrast of any text that a selector finds, after WCAG 2; ``null`` where it finds none."""

PRETEND_HIDDEN = """
(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  const state = () => (hidden ? "hidden" : "visible");
  Object.defineProperty(document, "visibilityState", { configurable: true, get: state });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""
