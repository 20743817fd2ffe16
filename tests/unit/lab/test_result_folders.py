"""Folders of the results of lab runs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast_lab.cli import lab


def test_runs_that_begin_in_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    """Concurrent runs with the same name share no folder, because one would overwrite the records of the other."""
    parent = tmp_path / "results"
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: lab._new_folder(parent, "20261118-120000"), range(8)))
    assert len(set(folders)) == 8
    assert all(folder.is_dir() for folder in folders)


def test_default_folder_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --out each run gets a new folder in lab-results."""
    monkeypatch.chdir(tmp_path)
    assert lab._folder("").parent == lab._folder("").parent == Path("lab-results")
    assert len(list(Path("lab-results").iterdir())) == 2


def test_folder_with_files_is_refused(tmp_path: Path) -> None:
    """A folder that holds the results of another run is refused by its name."""
    (tmp_path / "report.md").write_text("")
    with pytest.raises(FailedPreconditionError, match="--out must be a new or empty directory"):
        lab._folder(str(tmp_path))
