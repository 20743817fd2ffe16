"""The compose files as compose reads them, without an engine."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_DEFAULT = re.compile(r"\$\{(?P<name>\w+):-(?P<value>[^}]*)\}")


#: The files of each stack, in the order of the compose command.
FILES: Mapping[str, tuple[str, ...]] = {
    "server": ("compose.yaml",),
    "microservices": ("compose.microservices.yaml",),
    "monolith": ("compose.monolith.yaml",),
    "microservices-memory": ("compose.microservices.yaml", "compose.microservices.memory.yaml"),
    "monolith-memory": ("compose.monolith.yaml", "compose.monolith.memory.yaml"),
}


def services_of(root: Path, design: str, **variables: str) -> dict[str, dict[str, Any]]:
    """Returns the services, with the given variables and the defaults of all others."""
    first, *more = [_document(root, name, variables)["services"] for name in FILES[design]]
    for services in more:
        for name, changes in services.items():
            first[name] = first[name] | changes
    return dict(first)


def networks_of(root: Path, design: str) -> dict[str, Any]:
    return dict(_document(root, FILES[design][0], {})["networks"])


def volumes_of(root: Path, design: str) -> set[str]:
    """Returns the names of the volumes that outlive the containers."""
    return set(_document(root, FILES[design][0], {})["volumes"])


def mounts_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Returns the path of each volume or folder in a container, followed by :ro if it is read-only."""
    return {source: path for source, _, path in (mount.partition(":") for mount in service.get("volumes", ()))}


def _document(root: Path, name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((root / "deploy" / name).read_text())
    filled: dict[str, Any] = _filled(document, variables)
    return filled


def _filled(node: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401 - any part of a document
    """Replaces every variable, as compose does after it has parsed the document."""
    if isinstance(node, dict):
        return {key: _filled(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, variables) for value in node]
    if isinstance(node, str):
        return _DEFAULT.sub(lambda found: variables.get(found["name"]) or found["value"], node)
    return node


def words(command: str | list[str]) -> list[str]:
    """Splits a command as the engine does."""
    return shlex.split(command) if isinstance(command, str) else [*map(str, command)]


def instructions(root: Path) -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile with their arguments."""
    lines = (root / "deploy/Dockerfile").read_text().replace("\\\n", " ").splitlines()
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in pairs]
