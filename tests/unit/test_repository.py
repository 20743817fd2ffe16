"""The rules of the repository."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import testing
from scripts import generate_docs, generate_proto

README_LINES_MAX = 60
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked(root: Path, *patterns: str) -> list[Path]:
    """Returns the files of the repository; without git, all files on disk."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        found = [path.relative_to(root) for pattern in patterns for path in root.rglob(pattern)]
        return [root / path for path in found if not any(part.startswith(".") for part in path.parts)]
    return [path for name in listed.stdout.splitlines() if (path := root / name).exists()]


def functions_in(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node


def test_every_test_states_its_behaviour(root: Path) -> None:
    """Every test has a docstring of one sentence."""
    silent = [
        f"{path.relative_to(root)}::{test.name}"
        for path in tracked(root, "tests/**/test_*.py", "tests/test_*.py")
        for test in functions_in(path)
        if not is_one_sentence(ast.get_docstring(test))
    ]
    assert silent == []


def is_one_sentence(text: str | None) -> bool:
    return bool(text) and str(text).strip().endswith(".") and not re.search(r"\.\s+[A-Z]", str(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("A fact.", True), (None, False), ("", False), ("No end", False), ("One. Two.", False)],
)
def test_one_sentence_is_recognised(text: str | None, expected: bool) -> None:  # noqa: FBT001
    """A docstring is one sentence if it ends in a full stop and no other sentence follows."""
    assert is_one_sentence(text) is expected


def test_bare_make_lists_every_target(root: Path) -> None:
    """`make` without a target explains each target on a line of its own."""
    makefile = (root / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    command = ["make", "--no-print-directory"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make ([\w-]+) +\S", listing, re.MULTILINE) == targets


def test_missing_python_is_explained(root: Path, tmp_path: Path) -> None:
    """If no suitable Python is found, setup names the packages to install."""
    (tmp_path / "bash").symlink_to("/bin/bash")
    (tmp_path / "cat").symlink_to("/bin/cat")
    done = find_python(root, tmp_path)
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr


def test_missing_python_is_installed_by_root(root: Path, tmp_path: Path) -> None:
    """As root with apt, setup installs Debian's Python and its venv and prints one line, unless APT=no forbids it."""
    for tool in ("bash", "tail", "cat", "ln"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}")
    for name, line in (
        ("id", "echo 0"),
        ("apt-get", f'[[ "$*" == *"python3 python3-venv" ]] && ln -s {sys.executable} {tmp_path}/python3'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    assert find_python(root, tmp_path, APT="no").returncode == 1
    done = find_python(root, tmp_path)
    assert done.stdout.strip() == str(tmp_path / "python3")
    assert done.stderr == "setup: installing python3 and python3-venv\n"


def find_python(root: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with only this folder in its PATH."""
    scripts = folder / "scripts"
    shutil.copytree(root / "scripts", scripts, dirs_exist_ok=True)
    script = scripts / "find_python"
    script.write_text(script.read_text().replace("/usr/bin/python3", ""))
    return subprocess.run(
        ["/bin/bash", script], env={"PATH": str(folder), **variables}, capture_output=True, text=True, check=False
    )


def test_ci_runs_make_test(root: Path) -> None:
    """The CI entry is executable and runs only `make test`."""
    entry = root / ".ci/run"
    assert entry.stat().st_mode & 0o111
    commands = [line for line in entry.read_text().splitlines() if not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', 'export CI="${CI:-1}"', "make test"]


def test_readme_fits_on_a_screen(root: Path) -> None:
    """The README stays short."""
    assert len((root / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_links_between_documents_lead_somewhere(root: Path) -> None:
    """Every relative link in a document names an existing file."""
    broken = [
        f"{path.relative_to(root)} -> {link}"
        for path in tracked(root, "*.md")
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert broken == []


def test_decisions_are_numbered_and_complete(root: Path) -> None:
    """Each decision has a number of its own, and the sections Context, Choice and Consequence."""
    decisions = sorted((root / "docs/decisions").glob("*.md"))
    numbers = [path.name[:5] for path in decisions]
    assert all(re.fullmatch(r"\d{4}-", number) for number in numbers)
    assert len(set(numbers)) == len(numbers)
    for path in decisions:
        parts = re.findall(r"^## (\w+)", path.read_text(), re.MULTILINE)
        assert {"Context", "Choice", "Consequence"} <= set(parts), path.name


def test_stale_generated_code_is_found(tmp_path: Path) -> None:
    """Missing, changed and left-over generated files are all named, and writing fixes them."""
    expected = {"a_pb2.py": "a", "b_pb2.py": "b"}
    (tmp_path / "b_pb2.py").write_text("changed")
    (tmp_path / "c_pb2.py").write_text("left over")
    assert generate_proto.stale_files(expected, tmp_path) == ["a_pb2.py", "b_pb2.py", "c_pb2.py"]
    generate_proto.write(expected, tmp_path)
    assert generate_proto.stale_files(expected, tmp_path) == []


def test_document_of_an_absent_module_is_left_out() -> None:
    """No document is generated for a missing module or for a module without one."""
    assert generate_docs.render("holdfast.no_such_module") is None
    assert generate_docs.render("holdfast.limits") is None


def test_reference_has_every_public_name(root: Path) -> None:
    """Every public name is in the reference."""
    text = (root / "docs/reference.md").read_text()
    names = [name for name in (*holdfast.__all__, *testing.__all__) if not name.startswith("__")]
    assert [name for name in names if name not in text] == []
