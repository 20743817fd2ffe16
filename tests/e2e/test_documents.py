"""Runs every example in the user documents and checks its output."""

from codeop import CommandCompiler
from pathlib import Path

import pytest

from scripts.engines import CURL
from tests.e2e.documents import FILE, ExampleError, blocks_of, reader_of
from tests.engines import require

DOCUMENTS = (
    "README.md",
    "docs/tutorial.md",
    "docs/guide.md",
    "docs/http.md",
    "docs/cookbook.md",
    "docs/operations/when-things-go-wrong.md",
    "docs/operations/upgrade.md",
    "docs/operations/monitor.md",
    "docs/operations/install.md",
    "docs/operations/back-up.md",
    "docs/operations/security.md",
    "docs/operations/tracing.md",
    "docs/coming-from/celery.md",
    "docs/coming-from/rq.md",
    "docs/coming-from/dramatiq.md",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_of_a_document_work(name: str, root: Path, tmp_path: Path) -> None:
    """The examples of a document work when they are run one after the other."""
    if "\n$ curl " in (root / name).read_text():
        require(CURL)
    with reader_of(root / name, tmp_path) as reader:
        assert reader.run() > 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\nprint(1 + 1)  # 3\n```", "line 2: expected a line '3'"),
        ("```python\nimport no_such_module\n```", "No module named 'no_such_module'"),
        ("```python\n# shop.py\ndef broken(:\n```", "invalid syntax"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```", "line 6: Traceback"),
        ("```python\nraise SystemExit\n```", "SystemExit"),
        ("```console\n$ false\n```", "`false` ended with 1"),
        ("```console\n$ true  # exit 1\n```", "ended with 0"),
        ("```console\n$ echo one\ntwo\n```", "expected a line 'two'"),
        ("```console\n$ echo no server &\n```", "does not get ready"),
    ],
)
def test_wrong_example_is_found(text: str, problem: str, tmp_path: Path) -> None:
    """A wrong example fails with its line number and the reason."""
    document = tmp_path / "wrong.md"
    document.write_text(text)
    with reader_of(document, tmp_path) as reader, pytest.raises(ExampleError) as error:
        reader.run()
    assert problem in str(error.value)


def test_right_examples_pass(tmp_path: Path) -> None:
    """Names persist from block to block, a block with a file name is saved, and dots match any text."""
    document = tmp_path / "right.md"
    document.write_text(
        "```python\n# shop/jobs.py\nNAME = 'shop'\n```\n"
        "```python\nfrom shop.jobs import NAME\n```\n"
        "```python\nprint(NAME, id(NAME))  # shop ...\n```\n"
        "```console\n$ echo a number $RANDOM\na number ...\n$ exit 3  # exit 3\n```\n"
        "```text\nnot run\n```\n"
    )
    with reader_of(document, tmp_path) as reader:
        assert reader.run() == 4


def typed_at_a_prompt(source: str) -> None:
    """Compiles the lines one by one like Python's prompt; raises SyntaxError as the prompt would."""
    compiler = CommandCompiler()
    waiting: list[str] = []
    for line in [*source.splitlines(), ""]:
        waiting.append(line)
        if compiler("\n".join(waiting), "<prompt>", "single") is not None:
            waiting.clear()
    assert not waiting


@pytest.mark.parametrize("block", ["for x in (1, 2):\n    x\nprint(x)\n", "def f():\n    pass\n\n    pass\n"])
def test_prompt_wants_an_empty_line_behind_a_block(block: str) -> None:
    """Python's prompt requires an empty line after a block and rejects one inside it."""
    with pytest.raises(SyntaxError):
        typed_at_a_prompt(block)


def test_examples_of_the_tutorial_can_be_pasted_into_a_prompt(root: Path) -> None:
    """The Python examples of the tutorial, except saved files, can be pasted into a prompt."""
    for block in blocks_of((root / "docs/tutorial.md").read_text()):
        if block.language == "python" and not FILE.match(block.source):
            typed_at_a_prompt(block.source)


def test_every_example_is_in_a_language_that_is_run(root: Path) -> None:
    """User documents have only examples that the tests run: all fences are python, console or text."""
    for name in DOCUMENTS:
        text = (root / name).read_text()
        fences = [line for line in text.splitlines() if line.startswith("```") and line != "```"]
        assert len([fence for fence in fences if fence != "```text"]) == len(blocks_of(text)), name
