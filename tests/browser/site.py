"""A real server with its dashboard, a worker of the shown app, and plain HTTP to ask it."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.e2e.loaded import LoadedProgram
from tests.e2e.loaded_fleet import loaded_fleet_in
from tests.e2e.waiting import eventually

ROOT = Path(__file__).absolute().parents[2]
APP = "tests.browser.shown_app:app"


class Site:
    """One server, and what a test asks of it beside the browser."""

    def __init__(self, fleet: Fleet, *arguments: str, topology: str = "") -> None:
        """A server alone, or all processes of a topology, with workers of the shown app."""
        self.fleet = fleet
        if topology:
            options = ("--topology", topology, "--port", "0", "--app", APP)
            self.server = fleet.start("up", *options, *arguments, PYTHONPATH=str(ROOT))
            self.wire = fleet.wire(self.server.ready()["grpc"])
        else:
            self.server, self.wire = fleet.server(*arguments)
        self.address = self.server.ready()["http"].removeprefix("http://").rstrip("/")
        self.url = f"http://{self.address}/"

    def worker(self, slots: int = 4, worker_id: str = "press-1") -> Program:
        """A worker of the shown app that is ready."""
        options = ("-A", APP, "-c", str(slots), "--worker-id", worker_id)
        program = self.fleet.start("worker", "--connect", self.wire.target, *options, PYTHONPATH=str(ROOT))
        program.ready()
        return program

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """What the server answers; a refusal fails the test."""
        line = http.client.HTTPConnection(self.address, timeout=30)
        try:
            headers = {} if body is None else {"content-type": "application/json"}
            line.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            answer = line.getresponse()
            data = answer.read()
        finally:
            line.close()
        assert answer.status < http.client.BAD_REQUEST, data
        return json.loads(data) if data else None

    def submit(self, job_type: str, payload: object = None, **more: object) -> str:
        """The id of a new job."""
        body = {"type": job_type, "payload": {} if payload is None else payload, **more}
        return str(self.ask("POST", "/jobs", body)["id"])

    def status(self, job_id: str) -> str:
        """Where a job is now."""
        return str(self.ask("GET", f"/jobs/{job_id}")["status"])

    def until(self, job_id: str, *statuses: str) -> None:
        """Waits for a job to get there."""
        eventually(lambda: self.status(job_id), lambda status: status in statuses, what=f"{job_id} in {statuses}")


@contextmanager
def site_in(folder: Path, *arguments: str, topology: str = "", program: LoadedProgram | None = None) -> Iterator[Site]:
    """A site for the length of a block; forked from the program, if it is loaded."""
    with fleet_in(folder) if program is None else loaded_fleet_in(folder, program) as fleet:
        yield Site(fleet, *arguments, topology=topology)
