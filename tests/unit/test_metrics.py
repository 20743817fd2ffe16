"""Metrics, their text format, and the port that serves them."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.core import commands, events
from holdfast.core.capabilities import Capabilities
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import FIXED, BackoffRule, QueueMode, ScheduleSpec, Template
from holdfast.core.overview import QueueView
from holdfast.observe.exposition import MeterCollector, ProcessVitals, of_queues, render
from holdfast.observe.metrics import OTHER, SERIES_MAX, Meter
from holdfast.ports import JobApi
from holdfast.server.backend import Backend
from holdfast.server.early_ports import metrics_server
from holdfast.server.http.browser_security import BrowserShield
from holdfast.server.http.metrics_application import MetricsApplication
from holdfast.server.http.system import Probes
from tests.unit.core.ledger_driver import LedgerDriver

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class MeteredDesk(LedgerDriver):
    """A desk whose events a meter observes."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def take(self, event: events.AnyEvent) -> None:
        super().take(event)
        self.meter.applied(self.ledger.position, event, self.ledger)


def told(meter: Meter, *queues: QueueView) -> Samples:
    """Returns the samples of a scrape."""
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
def driver() -> MeteredDesk:
    """A ledger without an event loop, with a meter."""
    return MeteredDesk()


def test_submitted_jobs_are_counted_by_queue_and_type(driver: MeteredDesk) -> None:
    """Each job of a batch counts, separately for each pair of queue and type."""
    driver.submit("a", "b")
    driver.submit("c", template=Template("mail", queue="slow"))
    samples = told(driver.meter)
    assert of(samples, "holdfast_jobs_submitted_total", queue="default", type="echo") == 2
    assert of(samples, "holdfast_jobs_submitted_total", queue="slow", type="mail") == 1


def test_ticks_are_counted_by_outcome(driver: MeteredDesk) -> None:
    """Fired, skipped, missed and triggered ticks are counted, and a job of a schedule counts as submitted."""
    spec = ScheduleSpec("s", Template("echo"), every_ms=10_000, overlap="skip", catch_up="latest")
    driver.do(commands.SetSchedule(spec))
    for job_id, wait_ms in (("first", 11_000), ("second", 10_000), ("third", 100_000)):
        driver.pass_ms(wait_ms)
        driver.do(commands.Tick(job_id))
    driver.do(commands.TriggerSchedule("s", "by-hand"))
    samples = told(driver.meter)
    ticks = {name: of(samples, "holdfast_schedule_ticks_total", outcome=name) for name in driver.meter.ticks}
    assert ticks == {"fired": 1, "skipped": 2, "missed": 9, "triggered": 1}
    assert of(samples, "holdfast_jobs_submitted_total", queue="default", type="echo") == 2


def test_every_way_to_end_is_an_outcome(driver: MeteredDesk) -> None:
    """Jobs that are done, failed, canceled while queued or running, or lost too often are counted once each."""
    driver.submit("done", "failed", "stopped", "never")
    driver.submit("lost", template=Template("echo", max_losses=0))
    leases = {lease.job_id: lease.token for lease in driver.lease(3)}
    driver.report("done", leases["done"], DONE)
    driver.report("failed", leases["failed"], FAILED)
    driver.cancel("stopped")
    driver.report("stopped", leases["stopped"], CANCELED)
    driver.cancel("never")
    driver.cancel("never")
    driver.run_one()
    driver.revoke()
    samples = told(driver.meter)
    counts = {
        outcome: of(samples, "holdfast_jobs_finished_total", queue="default", type="echo", outcome=outcome)
        for outcome in ("done", "failed", "canceled")
    }
    assert counts == {"done": 1, "failed": 2, "canceled": 2}


def test_wait_begins_when_a_job_could_be_granted(driver: MeteredDesk) -> None:
    """A requested delay or back-off does not count as wait, and each attempt has a wait of its own."""
    driver.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 0)), not_before_ms=5_000)
    driver.pass_ms(4_000 + 70)
    lease = driver.run_one()
    driver.report("a", lease.token, FAILED, is_retryable=True, runtime_ms=30)
    driver.pass_ms(700)
    driver.run_one()
    samples = told(driver.meter)
    labels = {"queue": "default", "type": "echo"}
    assert of(samples, "holdfast_job_wait_seconds_count", **labels) == 2
    assert of(samples, "holdfast_job_wait_seconds_sum", **labels) == pytest.approx(0.77)
    assert of(samples, "holdfast_job_wait_seconds_bucket", le="0.1", **labels) == 1
    assert of(samples, "holdfast_job_wait_seconds_bucket", le="1.0", **labels) == 2
    assert of(samples, "holdfast_job_run_seconds_sum", **labels) == pytest.approx(0.03)


def test_expired_leases_and_fenced_reports_are_counted(driver: MeteredDesk) -> None:
    """An expired lease counts once, a released one does not, and a late report counts as fenced."""
    driver.submit("a", "b")
    first = driver.run_one(lease_ms=100)
    driver.run_one(worker="w2")
    driver.revoke("w2", "released")
    driver.pass_ms(100)
    driver.expire()
    driver.report("a", first.token)
    samples = told(driver.meter)
    assert of(samples, "holdfast_leases_expired_total") == 1
    assert of(samples, "holdfast_reports_fenced_total") == 1


def test_made_up_names_cannot_fill_the_memory(driver: MeteredDesk) -> None:
    """Above the limit of series, jobs are counted together."""
    for number in range(SERIES_MAX + 7):
        driver.submit(f"job-{number}", template=Template(f"type-{number}"))
    samples = told(driver.meter)
    assert of(samples, "holdfast_jobs_submitted_total", queue=OTHER, type=OTHER) == 7
    assert sum(name == "holdfast_jobs_submitted_total" for name, _ in samples) == SERIES_MAX + 1


def test_the_longest_queues_are_told_one_by_one() -> None:
    """Above the limit of series, the shortest queues are counted together."""
    queues = [queue(f"q{number}", number, 1, number * 1_000) for number in range(SERIES_MAX + 2)]
    samples = told(Meter(), *queues)
    assert of(samples, "holdfast_queue_jobs", queue="q2", state="ready") == 2
    assert of(samples, "holdfast_queue_jobs", queue=OTHER, state="ready") == 1
    assert of(samples, "holdfast_queue_jobs", queue=OTHER, state="delayed") == 2
    assert of(samples, "holdfast_queue_oldest_job_age_seconds", queue=OTHER) == 1


def test_hostile_names_stay_within_their_label() -> None:
    """Quotes, line ends and backslashes in a name cannot create a second sample."""
    name = 'a"} 1\nholdfast_leader 7\n\\'
    samples = told(Meter(), queue(name, 3))
    assert of(samples, "holdfast_queue_jobs", queue=name, state="ready") == 3
    assert of(samples, "holdfast_leader") == 1


def test_syncs_are_told_in_seconds() -> None:
    """The time and the bytes of each sync are summed, and the last bucket holds all syncs."""
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
async def address() -> AsyncIterator[tuple[str, int]]:
    """The metrics port of a server that is not ready yet."""
    probes = Probes(is_ready=lambda: False, metrics=numbers)
    backend = Backend(cast("JobApi", None), declared=Capabilities("bare", frozenset()))
    server = metrics_server(MetricsApplication(backend, BrowserShield("127.0.0.1", ["x"]), probes))
    host, port = (await server.start("127.0.0.1", 0)).split(":")
    yield host, int(port)
    await server.stop(0)


async def said(address: tuple[str, int], request: bytes) -> bytes:
    """Returns everything that is received until the connection ends."""
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
    """The endpoint serves three pages, also before it is ready, and nothing else."""
    answer = await said(address, f"{request_line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert answer.endswith(b"\r\n\r\n") is request_line.startswith("HEAD")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Host: 127.0.0.1:9090\r\n", b"200 OK"),
        (b"host: localhost\r\n", b"200 OK"),
        (b"Host: evil.example\r\n", b"403 Forbidden"),
        (b"", b"403 Forbidden"),
    ],
)
async def test_metrics_are_served_only_under_a_known_host_name(
    address: tuple[str, int], headers: bytes, status: bytes
) -> None:
    """Metrics are served only under a known host name, and probes under any name."""
    answer = await said(address, b"GET /metrics HTTP/1.1\r\nConnection: close\r\n" + headers + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert (await said(address, b"GET /livez HTTP/1.1\r\nConnection: close\r\n" + headers + b"\r\n")).endswith(
        b"alive\n"
    )


async def test_two_host_names_are_refused(address: tuple[str, int]) -> None:
    """A request with two Host headers is refused, because it is ambiguous."""
    request = b"GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: x\r\nHost: evil.example\r\n\r\n"
    assert (await said(address, request)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
