"""Every text in the code that a person may be shown, found in the syntax tree; each fact in it is :data:`FACT`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

FACT = "⟨fact⟩"
LETTERS = 5
"""A text with fewer is no sentence but a unit or a joint."""


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text; a text that depends on a condition is found once for each way it can come out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = set(_not_said(tree))
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        for text in _texts(node):
            words = text.replace(FACT, "")
            if " " in text.strip() and sum(letter.isalpha() for letter in words) > LETTERS:
                yield node.lineno, text


def _not_said(tree: ast.AST) -> Iterator[int]:
    """Docstrings, what goes to the log of the program, and the parts of a text that is found as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        elif _is_logging(node):
            yield from (id(inner) for inner in ast.walk(node))
        elif isinstance(node, ast.JoinedStr):
            yield from (id(inner) for inner in ast.walk(node) if inner is not node)


def _is_logging(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called.startswith("logger.") or called.endswith("unharmed")


def _texts(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else [FACT]
    if isinstance(node, ast.JoinedStr):
        return ["".join(parts) for parts in product(*(_texts(value) for value in node.values))]
    if isinstance(node, ast.FormattedValue):
        return _texts(node.value)
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return ["".join(parts) for parts in product(_texts(node.left), _texts(node.right))]
    return [FACT]
