"""Clients of `/api/v1`."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast_lab.history.records import CANCELED, DONE, FAILED, QUEUED, RUNNING, JobSnapshot
from holdfast_lab.torture.jobs import run_of
from holdfast_lab.torture.load.grpc_calls import ALLOWED, UNKNOWN
from holdfast_lab.torture.load.http_connection import HttpConnection, HttpReply
from holdfast_lab.torture.load.interfaces import (
    BACKOFF_MS,
    DEADLINE_S,
    JobOrder,
    LostError,
    Page,
    RefusedError,
    StrangeError,
    SubmitReply,
)

_STATES = {"QUEUED": QUEUED, "RUNNING": RUNNING, "DONE": DONE, "FAILED": FAILED, "CANCELED": CANCELED}
_UNKNOWN = frozenset(code.value for code in UNKNOWN)
_ALLOWED = frozenset(code.value for code in ALLOWED)
_JOBS = "/api/v1/jobs"


class HttpInterface:
    """The connection of one client."""

    via = "http"
    has_ids = False
    has_options = True

    def __init__(self, address: str) -> None:
        self._line = HttpConnection(address)

    async def submit(self, orders: Sequence[JobOrder]) -> SubmitReply:
        """Submits one job, with an Idempotency-Key if it has a key, or several as a batch."""
        if len(orders) == 1:
            key = orders[0].wanted.key
            body = await self._asked("POST", _JOBS, _body(orders[0], ""), {"Idempotency-Key": key} if key else {})
            return SubmitReply([body["id"]], {}, [0] if body["existing"] else [])
        body = await self._asked("POST", _JOBS, {"jobs": [_body(one, one.wanted.key) for one in orders]})
        rows = list(enumerate(body["jobs"]))
        problems = {index: row["problem"] for index, row in rows if row.get("problem")}
        refusals = {index: one["reason"] for index, one in problems.items() if one["code"] not in _UNKNOWN}
        existing = [index for index, row in rows if row.get("existing")]
        return SubmitReply([row.get("id", "") for _, row in rows], refusals, existing)

    async def get(self, job_id: str) -> JobSnapshot:
        """Reads the job without its output."""
        return _seen(await self._asked("GET", f"{_JOBS}/{job_id}"))

    async def result(self, job_id: str, wait_s: float = 0.0) -> JobSnapshot:
        """Reads the result, if the job ends within `wait_s`."""
        path = f"{_JOBS}/{job_id}/result" + (f"?wait_s={wait_s:g}" if wait_s else "")
        body = await self._asked("GET", path, deadline_s=DEADLINE_S + wait_s)
        if not body["ready"]:
            return JobSnapshot(job_id, 0)
        run = run_of(base64.b64decode(body["output_base64"])) if body["output_base64"] else ""
        return JobSnapshot(job_id, _STATES[body["status"]], run=run, reason=body["failure_reason"])

    async def cancel(self, job_id: str) -> JobSnapshot:
        """Cancels the job; returns its state afterwards."""
        body = await self._asked("POST", f"{_JOBS}/{job_id}/cancel", {"reason": "torture"})
        return JobSnapshot(job_id, _STATES[body["status"]])

    async def retry(self, job_id: str, key: str) -> str:
        """Retries the job; returns the id of the new one."""
        body = await self._asked("POST", f"{_JOBS}/{job_id}/retry", None, {"Idempotency-Key": key} if key else {})
        return str(body["id"])

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        """Reads one page, of all nodes."""
        query = f"?queue={quote(queue)}&limit={size}" + (f"&cursor={quote(cursor)}" if cursor else "")
        body = await self._asked("GET", _JOBS + query)
        return Page([_seen(job) for job in body["jobs"]], body["next_cursor"])

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Sets the mode at every node."""
        await self._asked("POST", f"/api/v1/queues/{queue}/{'pause' if is_paused else 'resume'}", {"reason": "torture"})

    async def capabilities(self) -> Mapping[str, str]:
        """Returns the capabilities that the topology lacks, each with its reason."""
        body = await self._asked("GET", "/api/v1/capabilities")
        return {str(name): str(why) for name, why in body["missing"].items()}

    async def _asked(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> Any:  # noqa: ANN401 - JSON of many shapes
        return _read(await self._line.ask(method, path, body, headers, deadline_s))

    async def close(self) -> None:
        """Closes the connection."""
        await self._line.close()


def _read(answer: HttpReply) -> Any:  # noqa: ANN401 - JSON of many shapes
    """Returns the body of a success; `RefusedError` if nothing was done, `LostError` if the outcome is unknown."""
    is_good = 200 <= answer.status < 300  # noqa: PLR2004 - the successes of HTTP
    if is_good and isinstance(answer.body, dict):
        return answer.body
    problem = answer.body if isinstance(answer.body, dict) else {}
    code, reason = str(problem.get("code", "")), str(problem.get("reason", ""))
    if code in _UNKNOWN:
        raise LostError(code, reason, has_hint="retry-after" in answer.headers)
    if code in _ALLOWED:
        raise RefusedError(code, reason, str(problem.get("detail", "")))
    raise StrangeError(code or f"HTTP_{answer.status}", f"{reason} {problem.get('detail', '')}")


def _body(order: JobOrder, key: str) -> dict[str, object]:
    wanted = order.wanted
    body: dict[str, object] = {
        "type": wanted.type,
        "queue": wanted.queue,
        "priority": wanted.priority,
        "max_attempts": wanted.max_attempts,
        "backoff": {"kind": "fixed", "base_s": BACKOFF_MS / 1_000, "max_s": BACKOFF_MS / 1_000},
        "labels": {"name": wanted.name},
        "payload": msgspec.to_builtins(order.task),
    }
    if wanted.delay_ms:
        body["delay_s"] = wanted.delay_ms / 1_000
    if key:
        body["request_id"] = key
    return body


def _seen(job: dict[str, Any]) -> JobSnapshot:
    return JobSnapshot(
        job["id"],
        _STATES[job["status"]],
        job["labels"].get("name", ""),
        job["attempts"],
        reason=job["failure_reason"],
    )
