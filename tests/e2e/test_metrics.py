"""Metrics and probes of a real server."""

import signal
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def page(address: str, path: str) -> tuple[int, str]:
    """Returns status and body; status 0 without a connection."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def sample(address: str, name: str, **labels: str) -> Any:  # noqa: ANN401 - a number or None
    _, text = page(address, "/metrics")
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == name and one.labels == labels:
                return one.value
    return None


def test_work_shows_in_the_metrics(fleet: Fleet) -> None:
    """The metrics count a job by queue, type and outcome, and the journal's syncs and bytes."""
    program, wire = fleet.up("--metrics-port", str(stable_port()))
    address = program.ready()["metrics"]
    wire.wait_for(wire.new(job_type="echo"), public.DONE)
    pair = {"queue": "default", "type": "echo"}
    assert sample(address, "holdfast_jobs_submitted_total", **pair) == 1
    assert sample(address, "holdfast_jobs_finished_total", outcome="done", **pair) == 1
    assert sample(address, "holdfast_job_wait_seconds_count", **pair) == 1
    assert sample(address, "holdfast_job_run_seconds_count", **pair) == 1
    assert sample(address, "holdfast_journal_sync_seconds_count") >= 3
    assert sample(address, "holdfast_journal_bytes_total") > 100
    assert sample(address, "holdfast_leader") == 1


def test_waiting_jobs_show_by_queue_and_state(fleet: Fleet) -> None:
    """The metrics of a server without a worker show the waiting jobs and the age of the oldest."""
    program, wire = fleet.server("--metrics-port", str(stable_port()))
    address = program.ready()["metrics"]
    wire.new()
    wire.new()
    assert sample(address, "holdfast_queue_jobs", queue="default", state="ready") == 2
    assert sample(address, "holdfast_queue_jobs", queue="default", state="running") == 0
    eventually(lambda: sample(address, "holdfast_queue_oldest_job_age_seconds", queue="default"))


def test_draining_server_is_alive_and_not_ready(fleet: Fleet) -> None:
    """A draining server answers 503 on /readyz and 200 on /livez."""
    program, wire = fleet.up("--metrics-port", str(stable_port()))
    address = program.ready()["metrics"]
    assert page(address, "/readyz") == (200, "ready\n")
    wire.wait_for(wire.new(ms=600_000), public.RUNNING)
    program.signal(signal.SIGTERM)
    eventually(lambda: page(address, "/readyz")[0], lambda status: status == 503)
    assert page(address, "/livez") == (200, "alive\n")
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


def test_port_that_is_taken_stops_the_start(fleet: Fleet) -> None:
    """A server whose metrics port is taken names the option and exits."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = fleet.start("server", "--data", "data", "--port", "0", "--metrics-port", str(port))
        assert program.wait() == 3
    assert f"cannot serve metrics on 127.0.0.1:{port}" in program.log
    assert "--metrics-port" in program.log
