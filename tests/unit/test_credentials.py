"""The credentials of the compose files: created once, complete, private to their owner, and replaced on request."""

from pathlib import Path

import pytest

from holdfast.server.auth import tokens
from holdfast.server.auth.permissions import Scope
from holdfast.topologies.pipeline.roles.callers import CALLERS, credentials_in, guard_of
from scripts import credentials


def contents(folder: Path) -> dict[str, str]:
    """Returns every file with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.glob("**/*") if path.is_file()}


def made_for_services(folder: Path, *options: str) -> dict[str, str]:
    assert credentials.main(["services", *options, str(folder)]) == 0
    return contents(folder)


def made_for_workers(folder: Path, *options: str) -> str:
    """Returns the workers' token of a server whose directory is beside the credentials."""
    assert credentials.main(["worker", "--data", str(folder / "data"), *options, str(folder / "credentials")]) == 0
    return credentials.token_file(folder / "credentials", "worker").read_text().strip()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """Only the owner may read the files and folders of credentials."""
    made_for_services(tmp_path / "all")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "all").glob("**/*")} == {0}


def test_credentials_that_are_there_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second start keeps the existing credentials, because running services know them."""
    before = made_for_services(tmp_path)
    assert made_for_services(tmp_path) == before
    assert [line.split(" in ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "credentials: made",
        "credentials: kept the existing ones",
    ]


def test_half_of_them_is_none(tmp_path: Path) -> None:
    """If one file is missing, all are created again, so that tokens and hashes match."""
    before = made_for_services(tmp_path)
    credentials.hashes_file(tmp_path).unlink()
    after = made_for_services(tmp_path)
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)


def test_credentials_can_be_replaced(tmp_path: Path) -> None:
    """With --replace all earlier credentials are replaced."""
    before = made_for_services(tmp_path)
    after = made_for_services(tmp_path, "--replace")
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)


def test_replacement_that_is_interrupted_is_made_again(tmp_path: Path) -> None:
    """A replacement that fails before the hashes are written is repeated by the next run."""
    before = made_for_services(tmp_path)
    token = credentials.token_file(tmp_path, "worker")
    aside = token.rename(tmp_path / "aside")
    token.mkdir()  # the second-last file cannot be written
    assert credentials.main(["services", "--replace", str(tmp_path)]) == 1
    token.rmdir()
    aside.rename(token)
    after = made_for_services(tmp_path)
    assert all(after[name] != before[name] for name in before)


def test_workers_token_may_work_and_nothing_else(tmp_path: Path) -> None:
    """The workers' token is registered at the server with only the scope of workers, and a second start keeps it."""
    token = made_for_workers(tmp_path)
    (known,) = tokens.read(tmp_path / "data/tokens.json") or []
    assert (known.name, known.scopes, known.expires_at_ms) == (credentials.WORKERS, (Scope.WORK,), 0)
    assert tokens.TokenTable([known]).find(tokens.hash_of(token)) == known
    assert made_for_workers(tmp_path) == token


@pytest.mark.parametrize("is_lost", [True, False])
def test_workers_token_that_is_replaced_or_lost_is_revoked(tmp_path: Path, *, is_lost: bool) -> None:
    """A new token of the workers revokes the earlier one, and no other tokens."""
    earlier = made_for_workers(tmp_path)
    path = tmp_path / "data/tokens.json"
    other = tokens.create(path, "shop", [Scope.SUBMIT], now_ms=1)
    if is_lost:
        credentials.token_file(tmp_path / "credentials", "worker").unlink()
    new = made_for_workers(tmp_path, *(() if is_lost else ("--replace",)))
    table = tokens.TokenTable(tokens.read(path) or ())
    assert table.find(tokens.hash_of(earlier)) is None
    assert table.find(tokens.hash_of(new)) is not None
    assert table.find(tokens.hash_of(other)) is not None


def test_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a folder cannot be written, the program exits with 1 and names the file."""
    (tmp_path / "gateway").write_text("a file, not a folder")
    assert credentials.main(["services", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"credentials: {tmp_path}/gateway")


def test_credentials_of_the_pipeline_are_those_that_its_roles_know(tmp_path: Path) -> None:
    """The pipeline's credentials have a token for every caller, which the roles accept by the caller matrix."""
    assert credentials.main(["pipeline", str(tmp_path)]) == 0
    assert credentials.CALLERS["pipeline"] == CALLERS
    told = credentials_in({"SERVICE_TOKEN_HASHES": credentials.hashes_file(tmp_path).read_text().strip()})
    guard = guard_of("queue", told.hashes)
    exchange = credentials.token_file(tmp_path, "exchange").read_text().strip()
    assert guard.admit(exchange, "here", Scope.SUBMIT).name == "exchange"
