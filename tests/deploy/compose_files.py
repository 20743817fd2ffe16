"""The compose files as compose would read them, without an engine."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_DEFAULT = re.compile(r"\$\{(?P<name>\w+):-(?P<value>[^}]*)\}")


def services_of(root: Path, design: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Each service, with the variables that are set and the defaults of those that are not."""
    return dict(_document(root, design, variables)["services"])


def networks_of(root: Path, design: str) -> dict[str, Any]:
    return dict(_document(root, design, {})["networks"])


def _document(root: Path, design: str, variables: Mapping[str, str]) -> dict[str, Any]:
    text = (root / f"deploy/compose.{design}.yaml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    filled: dict[str, Any] = _filled(document, variables)
    return filled


def _filled(node: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401 - any part of a document
    """The same with every variable replaced, as compose does it: after the document is read."""
    if isinstance(node, dict):
        return {key: _filled(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, variables) for value in node]
    if isinstance(node, str):
        return _DEFAULT.sub(lambda found: variables.get(found["name"]) or found["value"], node)
    return node


def words(command: str | list[str]) -> list[str]:
    """A command as the engine splits it."""
    return shlex.split(command) if isinstance(command, str) else [*map(str, command)]


def instructions(root: Path) -> list[tuple[str, str]]:
    """Those of the Dockerfile, each with what follows it."""
    lines = (root / "deploy/Dockerfile").read_text().replace("\\\n", " ").splitlines()
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in pairs]
