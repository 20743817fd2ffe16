"""The interfaces that users and programs rely on, read from the code: reasons, log events, metrics, the HTTP API.

`python -m tests.unit.outside` writes them into tests/golden/outside. Read the difference before you commit it: every
changed line is a change for users.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

from holdfast.ports import JobApi
from holdfast.server.backend import Backend
from holdfast.server.http import openapi
from holdfast.server.http.application import Application

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "outside"
_APART = frozenset({"lab", "testing", "proto"})
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_REASON = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_EVENT = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_METRIC = re.compile(r"holdfast_[a-z0-9_]+")


@cache
def nodes() -> list[ast.AST]:
    """Returns all syntax nodes of the product's modules, without the lab, the testing helpers and generated code."""
    package = ROOT / "src" / "holdfast"
    paths = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _APART]
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def texts(node: ast.expr) -> Iterator[str]:
    """Yields the literal texts of an expression, also of both branches of a conditional one."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def reasons() -> set[str]:
    """Returns the reasons of errors and refusals, which clients compare."""
    named = {text for node in nodes() for text in _reason_texts(node)}
    return {text for text in named if _REASON.fullmatch(text)}


def _reason_texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "reason":
                yield from texts(keyword.value)
    elif isinstance(node, ast.Assign):
        yield from texts(node.value)


def log_events() -> set[str]:
    """Returns the names of log events, which alerts search for."""
    found = [
        text
        for call in nodes()
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in _LEVELS and call.args
        for text in texts(call.args[0])
    ]
    return {text for text in found if _EVENT.fullmatch(text)}


def metrics() -> set[str]:
    """Returns the names of metrics."""
    found = (node.value for node in nodes() if isinstance(node, ast.Constant))
    return {text for text in found if isinstance(text, str) and _METRIC.fullmatch(text)}


@cache
def outside() -> dict[str, str]:
    """Returns the content of every file of `GOLDEN`."""
    lists = {"reasons.txt": reasons(), "log-events.txt": log_events(), "metrics.txt": metrics()}
    written = {name: "".join(f"{line}\n" for line in sorted(lines)) for name, lines in lists.items()}
    return {**written, "openapi.json": json.dumps(http_api(), indent=1, sort_keys=True) + "\n"}


def http_api() -> object:
    """Returns the OpenAPI document."""
    nothing = cast("JobApi", None)  # no route is called
    return json.loads(openapi.document(Application(Backend(nothing)).router.routes, "0"))


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, text in outside().items():
        (GOLDEN / name).write_text(text)
