"""A real server with its dashboard, workers of the test app, and requests over plain HTTP."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.wait_until import eventually

ROOT = Path(__file__).absolute().parents[2]
APP = "tests.browser.shown_app:app"


class Site:
    """One server, with requests that a test sends without the browser."""

    def __init__(self, fleet: Fleet, *arguments: str, topology: str = "") -> None:
        """Starts a server, or all processes of a topology with workers of the test app."""
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
        """Starts a worker of the test app and waits until it is ready."""
        options = ("-A", APP, "-c", str(slots), "--worker-id", worker_id)
        program = self.fleet.start("worker", "--connect", self.wire.target, *options, PYTHONPATH=str(ROOT))
        program.ready()
        return program

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """Sends a request and returns the response; an error response fails the test."""
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
        """Submits a job and returns its id."""
        body = {"type": job_type, "payload": {} if payload is None else payload, **more}
        return str(self.ask("POST", "/jobs", body)["id"])

    def status(self, job_id: str) -> str:
        """Returns the state of a job."""
        return str(self.ask("GET", f"/jobs/{job_id}")["status"])

    def until(self, job_id: str, *statuses: str) -> None:
        """Waits until a job is in one of the states."""
        eventually(lambda: self.status(job_id), lambda status: status in statuses, what=f"{job_id} in {statuses}")


@contextmanager
def site_in(folder: Path, *arguments: str, topology: str = "", program: LoadedProgram | None = None) -> Iterator[Site]:
    """Yields a site; its processes are forked from the program if it is loaded."""
    with fleet_in(folder) if program is None else loaded_fleet_in(folder, program) as fleet:
        yield Site(fleet, *arguments, topology=topology)
