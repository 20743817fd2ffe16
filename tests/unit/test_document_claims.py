"""The documents compared with the code: the names in them exist, and the lists in them are complete."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main

from holdfast.cli.main import program as holdfast_program
from holdfast.sdk import url_schemes
from holdfast.settings import KNOWN, TopologyName
from holdfast.settings_sources import NO_SETTINGS, TOKEN
from holdfast_lab.sabotage_cluster_table import CLUSTER_VARIANTS
from holdfast_lab.sabotage_table import VARIANTS

TOPOLOGIES: tuple[str, ...] = get_args(get_args(TopologyName)[0])
#: Sections that describe topologies; the rest of the page is about the default one.
ON_TOPOLOGIES = {
    "docs/dashboard.md": "## On other topologies",
    "docs/operations/back-up.md": "## Other topologies",
    "docs/operations/upgrade.md": "## Other topologies",
    "docs/operations/security.md": "## Tokens",
    "docs/guarantees.md": "## Limits of the guarantees",
}
#: Features that users of other queues look for, and that exist.
HAD = ("dashboard", "tls", "password", "token", "cron", "schedule", "http", "metrics", "asyncio", "backup")
#: Variables that are read by compose, by the tests and by the lab.
OTHER_VARIABLES = {"HOLDFAST_IMAGE", "HOLDFAST_TEST_CACHE", f"{TOKEN}_FILE", *NO_SETTINGS}
GLOBAL = frozenset({"--help", "--version", "--install-completion", "--show-completion"})
_INLINE = re.compile(r"`(holdfast [^`]+)`")
_TYPED = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(holdfast .*)$", re.MULTILINE)
_OPTION = re.compile(r"--?[a-z][a-z-]*")


def documents(root: Path) -> list[Path]:
    """Returns all documents for readers; the lab writes its reports."""
    found = [*root.glob("*.md"), root / "deploy/README.md", *(root / "docs").rglob("*.md")]
    return [path for path in found if path != root / "docs/lab/report.md"]


def section(text: str, title: str) -> str:
    """Returns the text under a title, up to the next title of its level."""
    _, found, below = text.partition(f"{title}\n")
    assert found, title
    return below.split("\n## ")[0]


def commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each `holdfast` command in a document, inline or on a line of its own."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for command in (*_INLINE.findall(joined.replace("\n", " ")), *_TYPED.findall(joined)):
        yield re.split(r" [#|&>] ?", command)[0].split()[1:]


@functools.cache
def program() -> Any:  # noqa: ANN401 - typer's own kind of command
    """Returns the command-line program."""
    return typer.main.get_command(holdfast_program())


def unknown_in(words: list[str]) -> Iterator[str]:
    """Yields the parts of a command that the program does not know: its name, or an option."""
    command = program()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if words and re.fullmatch("[a-z]+", words[0]) and getattr(command, "commands", {}):
        yield words[0]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | GLOBAL
    options = [word.strip("[],.…").partition("=")[0] for word in words]
    yield from (option for option in options if _OPTION.fullmatch(option) and option not in known)


def test_every_command_and_option_that_is_named_exists(root: Path) -> None:
    """The program knows each command and option that a document names."""
    named = [(path, words) for path in documents(root) for words in commands(path.read_text())]
    assert len(named) > 200
    wrong = [(path.name, " ".join(words), [*unknown_in(words)]) for path, words in named]
    assert [row for row in wrong if row[2]] == []


@pytest.mark.parametrize("words", ["job show ID", "server --volume x", "queue list --jsn", "no-such", "worker lists"])
def test_unknown_command_would_be_found(words: str) -> None:
    """The check above finds a wrong command, a wrong verb and a wrong option."""
    wrong = [*unknown_in(words.replace("no-such", "nosuch").split())]
    assert len(wrong) == 1


def test_every_variable_that_is_named_exists(root: Path) -> None:
    """Every variable with the prefix HOLDFAST_ in a document is one that the code reads."""
    known = {f"HOLDFAST_{name.upper()}" for name in KNOWN} | OTHER_VARIABLES
    named = {name for path in documents(root) for name in re.findall(r"\bHOLDFAST_[A-Z_]*[A-Z]\b", path.read_text())}
    assert named - known == set()


def test_every_target_that_is_named_exists(root: Path) -> None:
    """`make` knows each target that a document names."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = {name for path in documents(root) for name in re.findall(r"`make ([a-z-]+)", path.read_text())}
    assert named - targets == set()


@pytest.mark.parametrize(("name", "title"), ON_TOPOLOGIES.items())
def test_every_topology_is_named_where_they_differ(root: Path, name: str, title: str) -> None:
    """A page that distinguishes topologies names all of them."""
    said = section((root / name).read_text(), title).lower()
    assert [topology for topology in TOPOLOGIES[1:] if topology not in said] == [], f"name them under {title!r}"


@pytest.mark.parametrize("name", ["celery", "rq", "dramatiq"])
def test_nothing_that_is_there_is_said_to_be_missing(root: Path, name: str) -> None:
    """A page for users of another queue does not list an existing feature as missing."""
    denied = section((root / f"docs/coming-from/{name}.md").read_text(), "## Missing features").lower()
    assert [word for word in HAD if word in denied] == []


@pytest.mark.parametrize("name", ["docs/guide.md", "docs/reference.md", "docs/operations/back-up.md"])
def test_backups_are_made_beside_a_running_server(root: Path, name: str) -> None:
    """Each page about backups names the command that needs no stop of the server."""
    text = (root / name).read_text()
    assert "holdfast journal backup" in text
    assert not re.search(r"[Bb]ack[^.]{0,40}(server stopped|nobody serves|while it is stopped)", text)


def test_every_url_that_an_app_opens_is_in_the_guide(root: Path) -> None:
    """The guide's table of URLs has a row for each scheme that `Holdfast(url)` accepts."""
    table = section((root / "docs/guide.md").read_text(), "## Storage").split("```")[0]
    prefixes = [scheme.prefix for scheme in url_schemes.SCHEMES]
    assert [prefix for prefix in prefixes if f'| `"{prefix}' not in table] == []


def test_every_broken_variant_is_in_its_table(root: Path) -> None:
    """The simulator's page lists each broken variant in order, and the guarantees name their number."""
    text = (root / "docs/internals/simulation.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE) == [
        variant.name for variant in (*VARIANTS, *CLUSTER_VARIANTS)
    ]
    assert f" {len(VARIANTS)} deliberately broken variants" in (root / "docs/guarantees.md").read_text()


def test_every_kind_of_test_is_named(root: Path) -> None:
    """CONTRIBUTING.md names each folder of tests."""
    said = section((root / "CONTRIBUTING.md").read_text(), "## Tests")
    folders = {path.parent.name for path in root.glob("tests/*/test_*.py")} | {"integration", "unit"}
    assert [folder for folder in sorted(folders) if f"`{folder}`" not in said] == []


def test_every_compose_file_is_in_the_readme(root: Path) -> None:
    """deploy/README.md names exactly the existing compose files."""
    files = {path.name for path in (root / "deploy").glob("compose*.yaml")}
    named = set(re.findall(r"\bcompose[\w.]*\.yaml\b", (root / "deploy/README.md").read_text()))
    assert named == files
