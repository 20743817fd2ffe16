"""The error of a command if no server answers."""

from pathlib import Path

import pytest

from holdfast.cli import connection
from holdfast.cli.connection import ask
from holdfast.errors import UnavailableError
from holdfast.settings import ClientSettings
from holdfast.settings_sources import LoadedSettings


@pytest.mark.parametrize(("origin", "is_hinted"), [("default", True), ("flag --connect", False)])
def test_error_without_connect_suggests_a_data_directory_nearby(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, origin: str, is_hinted: bool
) -> None:
    """Without --connect, the error suggests a data directory in the working directory, and no backup."""
    for name in ("backup", "shop-data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "MANIFEST").touch()
    (tmp_path / "backup" / "BACKUP").touch()
    monkeypatch.chdir(tmp_path)
    loaded = LoadedSettings(ClientSettings(connect="127.0.0.1:1"), {"connect": origin})
    monkeypatch.setattr(connection, "load", lambda *_, **__: loaded)  # no server listens at port 1
    with pytest.raises(UnavailableError) as refused:
        ask(None, lambda client: client.stats())
    assert ("for example --connect shop-data" in refused.value.message) is is_hinted
    assert "holdfast up" in refused.value.message
