"""The command of the long run: its error messages, its replay, and its stored findings."""

from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import run
from tests.fuzz.target import Target


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--target", "nonsense"], "invalid choice: 'nonsense'"),
        (["--minutes", "0"], "expected some minutes, more than 0, got '0'"),
        (["--minutes", "nan"], "expected some minutes, more than 0, got 'nan'"),
        (["--minutes", "soon"], "expected some minutes, more than 0, got 'soon'"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--replay", "x"], "--replay needs --target"),
        (["--target", "urls", "--replay", "no/such/file"], "there is no file 'no/such/file' to replay"),
    ],
)
def test_nonsense_is_explained(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error message names the argument and the expected value."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_input_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay of an input that finds nothing exits with 0 and prints that it is fine."""
    path = tmp_path / "input"
    path.write_bytes(b"zk://a:2181/path")
    assert main(["--target", "urls", "--replay", str(path)]) == 0
    assert "is fine" in capsys.readouterr().out


def test_failing_input_is_minimised_and_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs that fail on the same line are stored as one file, with only the bytes that the failure needs."""
    monkeypatch.setattr(corpus, "INPUTS", tmp_path)

    def fuzz(data: bytes) -> None:
        assert b"x" not in data

    report = run(Target("urls", fuzz, [b"a text", b"max", b"box"]), 0.0, 1).report()
    assert [path.read_bytes() for path in corpus.kept("urls")] == [b"x"]
    assert f"found {corpus.kept('urls')[0]}\n" in report


def test_finding_is_kept_once_under_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal findings have one file."""
    monkeypatch.setattr(corpus, "INPUTS", tmp_path)
    first, again = corpus.keep("urls", b"found"), corpus.keep("urls", b"found")
    assert first == again
    assert corpus.kept("urls") == [first]
    assert first.read_bytes() == b"found"
