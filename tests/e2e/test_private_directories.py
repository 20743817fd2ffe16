"""Every topology refuses a data directory that another user could change, before it starts anything."""

import os
from pathlib import Path

import pytest

from holdfast.topologies.table import NAMES
from tests.e2e.fleet import Fleet


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("topology", NAMES)
def test_directory_open_to_others_is_not_served(topology: str, fleet: Fleet, tmp_path: Path) -> None:
    """`holdfast up` refuses a directory with mode 0777, so that a planted tokens.json has no effect."""
    data = tmp_path / "open"
    data.mkdir()
    (data / "tokens.json").write_text("{}")
    data.chmod(0o777)
    program = fleet.start("up", "--topology", topology, "--data", str(data), "--port", "0", "--http-port", "0")
    assert program.wait() != 0
    assert "to belong to" in program.log
    assert "0700" in program.log
    assert "mode 0777" in program.log
    assert "Traceback" not in program.log
    assert program.output == ""
    assert names(data) == ["tokens.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
@pytest.mark.parametrize("topology", NAMES)
def test_directory_of_another_user_is_not_served(topology: str, fleet: Fleet, tmp_path: Path) -> None:
    """Root's `holdfast up` refuses a directory of another user and creates nothing in it."""
    data = tmp_path / "theirs"
    data.mkdir(mode=0o700)
    os.chown(data, 65_534, 65_534)
    program = fleet.start("up", "--topology", topology, "--data", str(data), "--port", "0", "--http-port", "0")
    assert program.wait() != 0
    assert "to belong to root" in program.log
    assert names(data) == []


@pytest.mark.parametrize("owner", ["job", "queue", "result"])
def test_directory_of_a_service_open_to_others_is_not_served(owner: str, fleet: Fleet, tmp_path: Path) -> None:
    """An owner service refuses a directory that other users can change."""
    data = tmp_path / "open"
    (data / owner).mkdir(parents=True)
    (data / owner / "left").touch()
    for folder in (data, data / owner):
        folder.chmod(0o777)
    program = fleet.start("service", owner, "--data", str(data), **{f"{owner.upper()}_PORT": "0"})
    assert program.wait() != 0
    assert "mode 0700 or 0750" in program.log
    assert names(data) == sorted([owner, "left"])


def test_empty_directory_of_the_user_is_closed_to_others(fleet: Fleet, tmp_path: Path) -> None:
    """A server changes the mode of an empty directory of its user to 0700."""
    data = tmp_path / "empty"
    data.mkdir()
    data.chmod(0o775)
    fleet.start("server", "--data", str(data), "--port", "0").ready()
    assert data.stat().st_mode & 0o777 == 0o700
