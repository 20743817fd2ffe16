"""What is counted, how it is told, and what the small HTTP server puts up with."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.core import commands, events
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import FIXED, BackoffRule, QueueMode, ScheduleSpec, Template
from holdfast.core.overview import QueueView
from holdfast.observe import metrics_endpoint as endpoint_module
from holdfast.observe.exposition import MeterCollector, ProcessVitals, of_queues, render
from holdfast.observe.metrics import OTHER, SERIES_MAX, Meter
from holdfast.observe.metrics_endpoint import Endpoint
from holdfast.server.http.host_names import HostNames
from tests.unit.core.desk import Desk

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class MeteredDesk(Desk):
    """A desk with a meter looking on."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def take(self, event: events.AnyEvent) -> None:
        super().take(event)
        self.meter.applied(self.ledger.position, event, self.ledger)


def told(meter: Meter, *queues: QueueView) -> Samples:
    """What a scrape would read."""
    text = render(
        [*MeterCollector(meter, lambda: ProcessVitals(0, 0), {"version": "1"}).collect(), *of_queues(queues)]
    ).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def queue(name: str, ready: int, delayed: int = 0, oldest_age_ms: int = 0) -> QueueView:
    return QueueView(name, QueueMode.OPEN, "", ready, delayed, 0, oldest_age_ms)


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.fixture
def desk() -> MeteredDesk:
    """A ledger without a loop, metered."""
    return MeteredDesk()


def test_submitted_jobs_are_counted_by_queue_and_type(desk: MeteredDesk) -> None:
    """A batch counts each of its jobs, and pairs are kept apart."""
    desk.submit("a", "b")
    desk.submit("c", template=Template("mail", queue="slow"))
    samples = told(desk.meter)
    assert of(samples, "holdfast_jobs_submitted_total", queue="default", type="echo") == 2
    assert of(samples, "holdfast_jobs_submitted_total", queue="slow", type="mail") == 1


def test_ticks_are_counted_by_what_became_of_them(desk: MeteredDesk) -> None:
    """Fired, skipped, triggered and each that was missed; a job that a schedule makes is one that was accepted."""
    spec = ScheduleSpec("s", Template("echo"), every_ms=10_000, overlap="skip", catch_up="latest")
    desk.do(commands.SetSchedule(spec))
    for job_id, wait_ms in (("first", 11_000), ("second", 10_000), ("third", 100_000)):
        desk.pass_ms(wait_ms)
        desk.do(commands.Tick(job_id))
    desk.do(commands.TriggerSchedule("s", "by-hand"))
    samples = told(desk.meter)
    ticks = {name: of(samples, "holdfast_schedule_ticks_total", outcome=name) for name in desk.meter.ticks}
    assert ticks == {"fired": 1, "skipped": 2, "missed": 9, "triggered": 1}
    assert of(samples, "holdfast_jobs_submitted_total", queue="default", type="echo") == 2


def test_every_way_to_end_is_an_outcome(desk: MeteredDesk) -> None:
    """Done, failed, canceled while queued, canceled while running and lost too often are each counted once."""
    desk.submit("done", "failed", "stopped", "never")
    desk.submit("lost", template=Template("echo", max_losses=0))
    leases = {lease.job_id: lease.token for lease in desk.lease(3)}
    desk.report("done", leases["done"], DONE)
    desk.report("failed", leases["failed"], FAILED)
    desk.cancel("stopped")
    desk.report("stopped", leases["stopped"], CANCELED)
    desk.cancel("never")
    desk.cancel("never")
    desk.run_one()
    desk.revoke()
    samples = told(desk.meter)
    counts = {
        outcome: of(samples, "holdfast_jobs_finished_total", queue="default", type="echo", outcome=outcome)
        for outcome in ("done", "failed", "canceled")
    }
    assert counts == {"done": 1, "failed": 2, "canceled": 2}


def test_wait_begins_when_a_job_could_be_granted(desk: MeteredDesk) -> None:
    """A delay or a backoff that was asked for is no wait, and each attempt waits anew."""
    desk.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 0)), not_before_ms=5_000)
    desk.pass_ms(4_000 + 70)
    lease = desk.run_one()
    desk.report("a", lease.token, FAILED, is_retryable=True, runtime_ms=30)
    desk.pass_ms(700)
    desk.run_one()
    samples = told(desk.meter)
    labels = {"queue": "default", "type": "echo"}
    assert of(samples, "holdfast_job_wait_seconds_count", **labels) == 2
    assert of(samples, "holdfast_job_wait_seconds_sum", **labels) == pytest.approx(0.77)
    assert of(samples, "holdfast_job_wait_seconds_bucket", le="0.1", **labels) == 1
    assert of(samples, "holdfast_job_wait_seconds_bucket", le="1.0", **labels) == 2
    assert of(samples, "holdfast_job_run_seconds_sum", **labels) == pytest.approx(0.03)


def test_expired_leases_and_fenced_reports_are_counted(desk: MeteredDesk) -> None:
    """A lease that ran out counts once, one handed back does not, and a report that came too late is fenced."""
    desk.submit("a", "b")
    first = desk.run_one(lease_ms=100)
    desk.run_one(worker="w2")
    desk.revoke("w2", "released")
    desk.pass_ms(100)
    desk.expire()
    desk.report("a", first.token)
    samples = told(desk.meter)
    assert of(samples, "holdfast_leases_expired_total") == 1
    assert of(samples, "holdfast_reports_fenced_total") == 1


def test_made_up_names_cannot_fill_the_memory(desk: MeteredDesk) -> None:
    """Beyond the limit, jobs are counted together."""
    for number in range(SERIES_MAX + 7):
        desk.submit(f"job-{number}", template=Template(f"type-{number}"))
    samples = told(desk.meter)
    assert of(samples, "holdfast_jobs_submitted_total", queue=OTHER, type=OTHER) == 7
    assert sum(name == "holdfast_jobs_submitted_total" for name, _ in samples) == SERIES_MAX + 1


def test_the_longest_queues_are_told_one_by_one() -> None:
    """Beyond the limit, the shortest queues are told together."""
    queues = [queue(f"q{number}", number, 1, number * 1_000) for number in range(SERIES_MAX + 2)]
    samples = told(Meter(), *queues)
    assert of(samples, "holdfast_queue_jobs", queue="q2", state="ready") == 2
    assert of(samples, "holdfast_queue_jobs", queue=OTHER, state="ready") == 1
    assert of(samples, "holdfast_queue_jobs", queue=OTHER, state="delayed") == 2
    assert of(samples, "holdfast_queue_oldest_job_age_seconds", queue=OTHER) == 1


def test_hostile_names_stay_within_their_label() -> None:
    """Quotes, line ends and backslashes in a name make no second sample."""
    name = 'a"} 1\nholdfast_leader 7\n\\'
    samples = told(Meter(), queue(name, 3))
    assert of(samples, "holdfast_queue_jobs", queue=name, state="ready") == 3
    assert of(samples, "holdfast_leader") == 1


def test_syncs_are_told_in_seconds() -> None:
    """The time and the bytes of each frame add up, and the last bucket holds all."""
    meter = Meter()
    meter.synced(200, 1_000)
    meter.synced(3_000_000, 24)
    samples = told(meter)
    assert of(samples, "holdfast_journal_sync_seconds_sum") == pytest.approx(3.0002)
    assert of(samples, "holdfast_journal_sync_seconds_bucket", le="0.00025") == 1
    assert of(samples, "holdfast_journal_sync_seconds_bucket", le="1.0") == 1
    assert of(samples, "holdfast_journal_sync_seconds_bucket", le="+Inf") == 2
    assert of(samples, "holdfast_journal_bytes_total") == 1_024


# -- the HTTP server


async def numbers() -> bytes:
    return b"some 1\n"


@pytest.fixture
async def address(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, int]]:
    """An endpoint that has little patience and takes two connections."""
    monkeypatch.setattr(endpoint_module, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(endpoint_module, "_CONNECTIONS_MAX", 2)
    endpoint = Endpoint(numbers, HostNames("127.0.0.1", ["x"]).check)
    host, port = (await endpoint.start("127.0.0.1", 0)).split(":")
    yield host, int(port)
    await endpoint.stop()


async def said(address: tuple[str, int], request: bytes) -> bytes:
    """Everything that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", b"200 OK"),
        ("GET /metrics?x=1 HTTP/1.0", b"200 OK"),
        ("HEAD /metrics HTTP/1.1", b"200 OK"),
        ("GET /livez HTTP/1.1", b"200 OK"),
        ("GET /readyz HTTP/1.1", b"503 Service Unavailable"),
        ("GET / HTTP/1.1", b"404 Not Found"),
        ("GET /metrics/../etc/passwd HTTP/1.1", b"404 Not Found"),
        ("POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
    ],
)
async def test_each_page_has_its_status(address: tuple[str, int], request_line: str, status: bytes) -> None:
    """Three pages are there, before it is ready too, and nothing else is."""
    answer = await said(address, f"{request_line}\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert answer.endswith(b"\r\n\r\n") is request_line.startswith("HEAD")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Host: 127.0.0.1:9090\r\n", b"200 OK"),
        (b"host: localhost\r\n", b"200 OK"),
        (b"Host: evil.example\r\n", b"403 Forbidden"),
        (b"Host: x\r\nHost: evil.example\r\n", b"403 Forbidden"),
        (b"", b"403 Forbidden"),
    ],
)
async def test_numbers_are_for_those_who_know_the_name(address: tuple[str, int], headers: bytes, status: bytes) -> None:
    """A page that points a name of its own at this address reads nothing; probes know no name, and are answered."""
    answer = await said(address, b"GET /metrics HTTP/1.1\r\n" + headers + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (await said(address, b"GET /livez HTTP/1.1\r\n" + headers + b"\r\n")).endswith(b"alive\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + bytes(600),
        b"GET /" + b"a" * 20_000,
        b"",
        b"GET ",
    ],
)
async def test_garbage_is_cut_off(address: tuple[str, int], garbage: bytes) -> None:
    """What is no request, is too long or never ends gets no answer, and the next one is served."""
    assert await said(address, garbage) == b""
    assert (await said(address, b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"alive\n")


async def test_a_crowd_of_silent_connections_passes(address: tuple[str, int]) -> None:
    """Those above the limit are refused at once, and once the silent ones are cut off others are served."""
    silent = [await asyncio.open_connection(*address) for _ in range(2)]
    assert await said(address, b"GET /livez HTTP/1.1\r\n\r\n") == b""
    for reader, writer in silent:
        assert await reader.read() == b""
        writer.close()
    assert (await said(address, b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"alive\n")
