"""Problems of the processes that store the jobs, as a front, a dashboard and a gateway show them over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.client.access import NO_CREDENTIALS
from holdfast.core.condition import Condition, parsed
from holdfast.core.owner import Ownership
from holdfast.server.conditions import RemoteConditions
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.settings import Settings
from holdfast.topologies import dashboard
from holdfast.topologies.monolith.front import Front, NodeAddresses
from tests.integration.http_client import get
from tests.integration.services_on_disk import services_on_disk

GROWS = "the journal grows, because making a snapshot failed once"
PROBLEM = "'/secret/0001.seg' is damaged"


def served(data: Path, ownership: Ownership | None = None) -> LedgerServer:
    """A ledger server on free ports, or a node."""
    settings = Settings(data=str(data), port=0, http_port=0, log_level="error")
    return LedgerServer(settings, log_stream=BytesIO(), ownership=ownership)


async def shown(address: str) -> tuple[str, str]:
    """Returns the readiness page, and the metric that counts warnings."""
    ready, page = await get(address, "/readyz"), (await get(address, "/metrics")).body.decode()
    assert ready.status == 200
    return ready.body.decode(), next(line for line in page.splitlines() if line.startswith("holdfast_warnings"))


@asynccontextmanager
async def fronted(folder: Path, *, started: int = 2) -> AsyncIterator[tuple[list[LedgerServer], str]]:
    """The nodes of two that are started, and the address of a front over both."""
    async with AsyncExitStack() as closing:
        nodes = [served(folder / f"node-{index}", Ownership(index=index, nodes=2)) for index in range(started)]
        for node in nodes:
            await node.start()
            closing.push_async_callback(node.stop)
        settings = Settings(data="memory://", http_port=0, log_level="error")
        front = Front(settings, NodeAddresses(sockets=[folder / f"node-{index}" / SOCKET_NAME for index in range(2)]))
        address = (await front.start())["http"]
        closing.push_async_callback(front.stop)
        yield nodes, address


async def test_front_shows_the_warnings_of_its_nodes(tmp_path: Path) -> None:
    """/readyz and the metrics of a front have the warnings of all nodes, and only the statistics have the cause."""
    async with fronted(tmp_path) as (nodes, address):
        nodes[1]._core.snapshots.ended(PROBLEM)
        assert await shown(address) == (f"ready\nwarning: node 1: {GROWS}\n", "holdfast_warnings 1")
        warnings = (await get(address, "/api/v1/stats")).json["warnings"]
        assert warnings == [f"node 1: {GROWS}: {PROBLEM}"]


async def test_front_says_that_a_node_does_not_answer(tmp_path: Path) -> None:
    """Without an answer from every node /readyz stays 200 and says that warnings are unknown."""
    async with fronted(tmp_path, started=1) as (_, address):
        text, metric = await shown(address)
        assert text.startswith("ready\nwarning: warnings of the processes that store the jobs are unknown")
        assert (metric, str(tmp_path) in text) == ("holdfast_warnings 1", False)


async def test_dashboard_command_shows_the_warnings_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`holdfast dashboard DIRECTORY` has the warnings of the process that serves the directory."""
    server = served(tmp_path / "data")
    await server.start()
    server._core.snapshots.ended(PROBLEM)
    announced: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(dashboard, "announce", lambda line, _: announced.set_result(line))
    settings = Settings(data=str(tmp_path / "data"), http_port=0, log_level="error")
    serving = asyncio.create_task(dashboard.serve(settings, tmp_path / "data", NO_CREDENTIALS))
    address = str((await announced)["http"])
    assert await shown(address) == (f"ready\nwarning: {GROWS}\n", "holdfast_warnings 1")
    serving.cancel()
    await asyncio.wait([serving])
    await server.stop()


async def test_server_counts_its_warnings(tmp_path: Path) -> None:
    """A server shows its warnings in /readyz, the metrics and the statistics."""
    server = served(tmp_path / "data")
    await server.start()
    assert await shown(server.http_address) == ("ready\n", "holdfast_warnings 0")
    server._core.snapshots.ended(PROBLEM)
    assert await shown(server.http_address) == (f"ready\nwarning: {GROWS}\n", "holdfast_warnings 1")
    assert (await get(server.http_address, "/api/v1/stats")).json["warnings"] == [f"{GROWS}: {PROBLEM}"]
    await server.stop()


async def test_gateway_shows_failing_snapshots_of_an_owner(tmp_path: Path) -> None:
    """/readyz and the metrics of a gateway name the owner whose snapshots fail, until one succeeds."""
    async with services_on_disk(tmp_path) as services:
        address = services.gateway.addresses["http"]
        assert await shown(address) == ("ready\n", "holdfast_warnings 0")
        health = services.owners["job"]._state_owner.snapshots
        health.ended(PROBLEM)
        grows = "ready\nwarning: the journal of the job service grows, because making a snapshot failed\n"
        await becomes(address, (grows, "holdfast_warnings 1"))
        health.ended("")
        await becomes(address, ("ready\n", "holdfast_warnings 0"))
        await services.owners["queue"].stop()
        away = "ready\nwarning: the queue service does not answer\n"
        await becomes(address, (away, "holdfast_warnings 1"))


async def becomes(address: str, expected: tuple[str, str]) -> None:
    """Waits until the page and the metric are as expected: an answer is kept for a second."""
    async with asyncio.timeout(30):
        while await shown(address) != expected:  # noqa: ASYNC110 - what changes is in other tasks of this loop
            await asyncio.sleep(0.05)


async def test_remote_conditions_are_read_once_for_many_callers() -> None:
    """A flood of probes costs the processes behind a gateway one request."""
    count = 0

    async def read() -> list[Condition]:
        nonlocal count
        count += 1
        return [Condition("full")]

    conditions = RemoteConditions(read)
    answers: list[Any] = await asyncio.gather(*(conditions() for _ in range(50)))
    assert (count, answers[0], answers[-1]) == (1, [Condition("full")], [Condition("full")])


async def test_probe_does_not_wait_for_a_process_that_hangs() -> None:
    """Without an answer in time, the conditions are unknown."""
    never = asyncio.Event()

    async def read() -> list[Condition]:
        await never.wait()
        return []

    assert [one.summary.partition(",")[0] for one in await RemoteConditions(read)()] == [
        "warnings of the processes that store the jobs are unknown"
    ]
    never.set()


async def test_probe_answers_after_an_error_of_any_kind() -> None:
    """An error that was not foreseen makes the conditions unknown, and is logged."""

    async def read() -> list[Condition]:
        raise OSError("descriptors")

    with capture_logs() as lines:
        (one,) = await RemoteConditions(read)()
    assert [(line["event"], str(line["exc_info"])) for line in lines] == [("bug", "descriptors")]
    assert one.summary.startswith("warnings of the processes that store the jobs are unknown")


@pytest.mark.parametrize("summary", ["new jobs are refused", "node 3: the journal grows"])
@pytest.mark.parametrize("detail", ["", "'/a/b' is full: 1 of 2"])
def test_condition_is_read_from_its_sentence(summary: str, detail: str) -> None:
    """The summary of a warning in statistics can be told from its detail, which few clients may read."""
    assert parsed(str(Condition(summary, detail))) == Condition(summary, detail)


@pytest.mark.parametrize(
    "text",
    [
        "cannot write /data/secret/0001.seg",
        "0001.seg is damaged: 3 of 4",
        "'secret' is full: 1 of 2",
        "node 3: no answer from 10.0.0.7:50051",
        "",
    ],
)
def test_warning_of_another_form_is_a_detail_as_a_whole(text: str) -> None:
    """A text that is not that of a condition is not shown to every client."""
    assert parsed(text) == Condition("a server has a warning", text)


def test_summary_with_a_file_name_is_a_bug() -> None:
    """A condition whose summary is not for every client cannot be made."""
    with pytest.raises(AssertionError, match="0001"):
        Condition("cannot write 0001.seg")
