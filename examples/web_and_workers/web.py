"""A web process that submits a job for a request and reports its state. It needs no running server.

python web.py            # http://127.0.0.1:8000/resize?path=a.png&width=200 , then the address in its response
holdfast worker -A jobs:app    # as many as you like, before or after
"""

import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from jobs import app, resize

from holdfast import NotFoundError


class Requests(BaseHTTPRequestHandler):
    """`/resize?path=...&width=...` submits a job; `/jobs/ID` returns its state and, if it is DONE, its result."""

    def do_GET(self) -> None:
        """Answers with JSON."""
        url = urlsplit(self.path)
        if url.path == "/resize":
            query = parse_qs(url.query)
            job = resize.submit(query["path"][0], width=int(query["width"][0]))
            self._answer(HTTPStatus.ACCEPTED, {"job": f"/jobs/{job.id}"})
        elif url.path.startswith("/jobs/"):
            self._tell(url.path.removeprefix("/jobs/"))
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "try /resize?path=a.png&width=200"})

    def _tell(self, job_id: str) -> None:
        try:
            state = app.get(job_id).status()
        except NotFoundError as error:
            self._answer(HTTPStatus.NOT_FOUND, {"error": error.message})
            return
        answer = {"state": state.name}
        if state.name == "DONE":
            answer["result"] = app.job_handle(job_id).result()
        self._answer(HTTPStatus.OK, answer)

    def _answer(self, status: HTTPStatus, body: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Discards the access log."""


def main() -> None:
    """Serves until interrupted."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Requests)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with app:
        server.serve_forever()


if __name__ == "__main__":
    main()
