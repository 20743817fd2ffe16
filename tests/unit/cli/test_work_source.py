"""The source of the jobs of `holdfast worker`."""

from pathlib import Path

import pytest

from holdfast.cli.work_source import source_of
from holdfast.client.wire_work import WireWork
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction, WorkApi
from holdfast.settings import WorkerSettings
from holdfast.settings_sources import LoadedSettings


def test_worker_beside_a_server_never_serves_its_directory(tmp_path: Path) -> None:
    """The worker of `holdfast up` only connects, so that a restarting server finds its directory unlocked."""
    loaded = LoadedSettings(WorkerSettings(connect=str(tmp_path)), {"connect": "flag --connect"})
    beside = source_of(loaded, None, may_serve=False)
    alone = source_of(loaded, None, may_serve=True)
    assert (type(beside.api), type(alone.api) is WireWork) == (WireWork, False)
    alone.close()


@pytest.mark.parametrize(("origin", "is_advised"), [("default", True), ("flag --connect", False)])
async def test_worker_that_was_told_no_place_names_the_options_that_do(*, origin: str, is_advised: bool) -> None:
    """If no server answers, the error says so, and suggests -A and --connect if neither was given."""
    loaded = LoadedSettings(WorkerSettings(connect="127.0.0.1:1"), {"connect": origin})  # no process listens at port 1
    source = source_of(loaded, None, may_serve=True)
    with pytest.raises(UnavailableError, match=r"^no server answers at 127\.0\.0\.1:1: ") as refused:
        await _first_directive(source.api)
    assert ("--connect DIRECTORY" in refused.value.message) is is_advised
    assert ("-A module:app" in refused.value.message) is is_advised
    assert "holdfast up" in refused.value.message


async def _first_directive(api: WorkApi) -> None:
    session = await api.open(Introduction("w", frozenset({"echo"})))
    try:
        await session.next()
    finally:
        await session.close()
