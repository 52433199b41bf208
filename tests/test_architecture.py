"""The table of imports in the design, and the rules that every file keeps."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "sd_webui_spillway"
SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))
COMMON = {"errors", "units", ""}
"""What every room may import; "" is the package itself, for its version."""

CORE = {"memory", "placement", "planning", "recovery", "timing"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "memory": set(),
    "timing": set(),
    "placement": {"memory"},
    "planning": {"memory", "placement", "host_port"},
    "recovery": {"memory", "placement"},
    "models": set(),
    "host_port": {"memory", "placement", "timing"},
    "job": {"host_port", "placement", "timing"},
    "settings": {"memory", "placement"},
    "session": {"host_port", "job", "settings", *CORE},
    "panel": {"session", "settings", "host_port", "timing", "memory.snapshot", "placement.profile"},
    "hosts": {"session", "settings", "host_port", "models", "panel", *CORE},
    "bench": {"session", "settings", "host_port", "models", "panel", "hosts", *CORE},
    "cli": {"session", "settings", "host_port", "models", "panel", "hosts", "bench", *CORE},
    "__main__": {"cli"},
    "bootstrap": set(),
    "": set(),
}
"""By room (a folder or a module of the package): the rooms it may import beside itself and the common ones. An entry
with a dot allows that one module: the panel knows the words of a profile and of a snapshot, and nothing of torch."""

OUTSIDE: dict[str, tuple[str, ...]] = {
    "gradio": ("panel/",),
    "diffusers": ("hosts/diffusers", "hosts/samplers.py", "models/", "bench/"),
    "transformers": ("hosts/diffusers", "hosts/samplers.py", "models/", "bench/"),
    "modules": ("hosts/",),
    "backend": ("hosts/",),
}
"""By library: the only places that may import it."""
NO_TORCH = ("panel", "timing", "session", "job", "settings", "host_port", "errors", "units", "memory", "bootstrap")
LONGEST = 350


def room_of(path: Path) -> str:
    inside = path.relative_to(ROOT / PACKAGE)
    name = inside.parts[0] if len(inside.parts) > 1 else inside.stem
    return "" if name == "__init__" else name


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import, of names in a package as far as they are modules of it."""
    package = (PACKAGE, *path.relative_to(ROOT / PACKAGE).parent.parts)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *((node.module,) if node.module else ())))
            folder = ROOT.joinpath(*module.split("."))
            names = [alias.name for alias in node.names]
            modules = [name for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()]
            yield from ((node.lineno, f"{module}.{name}") for name in modules)
            if len(modules) < len(names):
                yield node.lineno, module


def place(path: Path) -> str:
    return path.relative_to(ROOT / PACKAGE).as_posix()


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in SOURCES} <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_rooms_import_only_what_the_table_allows(path):
    room, wrong = room_of(path), []
    for line, name in imports(path):
        if name.split(".")[0] != PACKAGE:
            continue
        inside = name.split(".", 1)[1] if "." in name else ""
        other = inside.split(".")[0]
        allowed = MAY_IMPORT[room] if room == "bootstrap" else MAY_IMPORT[room] | COMMON | {room}
        if room == "bootstrap" and other == room:
            continue
        if other not in allowed and inside not in allowed:
            wrong.append(f"line {line}: {name}")
    assert not wrong


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_libraries_are_imported_only_where_they_belong(path):
    wrong = []
    for line, name in imports(path):
        library = name.split(".")[0]
        if library in OUTSIDE and not place(path).startswith(OUTSIDE[library]):
            wrong.append(f"line {line}: {name}")
        if library == "torch" and room_of(path) in NO_TORCH:
            wrong.append(f"line {line}: {name}")
        if room_of(path) == "bootstrap" and library not in {*sys.stdlib_module_names, PACKAGE}:
            wrong.append(f"line {line}: {name} is not of the standard library")
    assert not wrong


def test_the_start_script_needs_only_the_standard_library():
    tree = tree_of(ROOT / "standalone.py")
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(name.startswith(f"{PACKAGE}.bootstrap") for name in outside)


def text_files() -> list[Path]:
    kinds = {".py", ".js", ".mjs"}
    folders = (PACKAGE, "javascript", "tests", "scripts")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]


def test_files_stay_small():
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
               for path in text_files()}
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST}


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_nothing_prints(path):
    calls = [
        node.lineno for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not calls
