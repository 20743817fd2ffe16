"""Jobs over HTTP, on a real server inside the test's process."""

import asyncio
import json
import time
from typing import Any

import pytest

from holdfast import limits
from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.ports import JobDraft
from holdfast.server.backend import Backend
from holdfast.server.http.application import Application
from holdfast.server.http.jobs import STATUS_ALIASES
from holdfast.server.http.server import HttpServer
from holdfast.server.ledger_server import LedgerServer
from tests.e2e.wait_until import eventually
from tests.integration.conftest import Start
from tests.integration.http_client import Reply, ask, connected, get, post, request

JOBS = "/api/v1/jobs"


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    """A server without a worker."""
    return await start(no_http=False, http_port=0)


@pytest.fixture
def address(server: LedgerServer) -> str:
    return server.http_address


async def submitted(address: str, **fields: object) -> str:
    """Submits a job and returns its id."""
    reply = await post(address, JOBS, {"type": "echo", **fields})
    assert reply.status == 202, reply
    return str(reply.json["id"])


async def found(address: str, query: str = "") -> list[str]:
    """The ids in a list of jobs."""
    reply = await get(address, f"{JOBS}?{query}")
    assert reply.status == 200, reply
    return [job["id"] for job in reply.json["jobs"]]


def wait_for_another_millisecond() -> None:
    """Waits until the server's clock shows another millisecond."""
    now_ms = time.time_ns() // 1_000_000
    eventually(lambda: time.time_ns() // 1_000_000 != now_ms)


async def test_submitted_job_is_there_at_once(address: str) -> None:
    """A submit returns 202 with the job's location, id and status, and the location has all submitted fields."""
    body = {
        "type": "echo",
        "payload": {"text": "é", "numbers": [1, 2.5, None, True]},
        "queue": "high",
        "priority": 9,
        "max_attempts": 3,
        "max_losses": 1,
        "timeout_s": 1.5,
        "delay_s": 60,
        "unique_key": "one",
        "labels": {"customer": "42"},
        "headers": {"traceparent": "00-0-0-00"},
        "backoff": {"kind": "fixed", "base_s": 2, "max_s": 2},
    }
    reply = await post(address, JOBS, body)
    assert reply.status == 202
    assert reply.headers["location"] == f"{JOBS}/{reply.json['id']}"
    assert (reply.json["status"], reply.json["existing"]) == ("QUEUED", False)
    job = (await get(address, reply.headers["location"])).json
    said = {name: value for name, value in body.items() if name not in {"delay_s", "backoff"}}
    assert {name: job[name] for name in said} == said
    assert 0 <= job["created_at_ms"] + 60_000 - job["not_before_ms"] < 60_000
    assert job["id"] == reply.json["id"]


async def test_payload_is_kept_as_the_sdk_writes_it(server: LedgerServer, address: str) -> None:
    """A payload is stored as compact JSON without escapes, and a missing payload as no bytes."""
    given = await submitted(address, payload={"text": "é", "list": [1, 2]})
    assert await server.jobs.payload(given) == '{"text":"é","list":[1,2]}'.encode()
    assert await server.jobs.payload(await submitted(address)) == b""
    assert await server.jobs.payload(await submitted(address, payload=None)) == b"null"


async def test_many_jobs_are_one_event(server: LedgerServer, address: str) -> None:
    """A batch of jobs is one event, and its response has a row for each job in order."""
    before = server.coordinator.ledger.position
    reply = await post(
        address, JOBS, {"jobs": [{"type": "echo", "payload": [n], "queue": f"q{n % 2}"} for n in range(5)]}
    )
    assert (reply.status, reply.json["accepted"], reply.json["refused"]) == (202, 5, 0)
    assert server.coordinator.ledger.position == before + 1
    payloads = [await server.jobs.payload(row["id"]) for row in reply.json["jobs"]]
    assert payloads == [b"[0]", b"[1]", b"[2]", b"[3]", b"[4]"]


async def test_jobs_of_a_batch_are_refused_one_by_one(address: str) -> None:
    """A batch with refused jobs is 207, with a problem for each refused job, and the others are accepted."""
    await post(address, "/api/v1/queues/closed/drain", {"reason": "repair"})
    jobs = [{"type": "echo"}, {"type": "echo", "queue": "closed"}, {"type": "echo", "payload": "x" * (1 << 20)}]
    reply = await post(address, JOBS, {"jobs": jobs})
    assert (reply.status, reply.json["accepted"], reply.json["refused"]) == (207, 1, 2)
    first, second, third = reply.json["jobs"]
    assert first["status"] == "QUEUED"
    assert (second["problem"]["status"], second["problem"]["reason"]) == (422, "QUEUE_DRAINING")
    assert (third["problem"]["status"], third["problem"]["reason"]) == (400, "PAYLOAD_TOO_LARGE")
    assert await found(address) == [first["id"]]


async def test_malformed_job_refuses_its_whole_batch(address: str) -> None:
    """A malformed job refuses its whole batch, and the problem names the job's place."""
    reply = await post(address, JOBS, {"jobs": [{"type": "echo"}, {"type": "echo", "priority": "high"}]})
    assert (reply.status, reply.reason) == (400, "BODY_INVALID")
    assert "jobs[1].priority" in reply.json["detail"] or "jobs[...].priority" in reply.json["detail"]
    assert await found(address) == []


async def test_repeated_request_finds_its_job(address: str) -> None:
    """A repeated request with the same idempotency key returns the first job, also with other white space."""
    first = await post(address, JOBS, b'{"type":"echo","payload":{"a":1}}', Idempotency_Key="k1")
    again = await post(address, JOBS, b'{ "type": "echo",  "payload": {"a": 1} }', Idempotency_Key="k1")
    assert (first.status, again.status) == (202, 202)
    assert again.json["id"] == first.json["id"]
    assert (first.json["existing"], again.json["existing"]) == (False, True)
    assert len(await found(address)) == 1


async def test_key_with_another_payload_is_422(address: str) -> None:
    """An idempotency key that is reused with another payload is 422, and the first job does not change."""
    first = await post(address, JOBS, {"type": "echo", "payload": 1}, Idempotency_Key="k1")
    other = await post(address, JOBS, {"type": "echo", "payload": 2}, Idempotency_Key="k1")
    assert (other.status, other.reason) == (422, "REQUEST_ID_REUSED")
    assert await found(address) == [first.json["id"]]


@pytest.mark.parametrize("path", [JOBS, "/api/jobs"])
async def test_key_whose_request_is_under_way_is_409(
    server: LedgerServer, address: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A repeated request is 409 while the first one is under way, and returns its job afterwards."""
    goes_on, has_begun = asyncio.Event(), asyncio.Event()
    submit = server.jobs.submit

    async def slow(templates: list[Template], drafts: list[JobDraft]) -> Submitted:
        has_begun.set()
        await goes_on.wait()
        return await submit(templates, drafts)

    monkeypatch.setattr(server.jobs, "submit", slow)
    first = asyncio.create_task(post(address, path, {"type": "echo"}, Idempotency_Key="k1"))
    await has_begun.wait()
    early = await post(address, path, {"type": "echo"}, Idempotency_Key="k1")
    assert (early.status, early.reason) == (409, "REQUEST_UNDER_WAY")
    goes_on.set()
    job_id = (await first).json["id"]
    again = await post(address, path, {"type": "echo"}, Idempotency_Key="k1")
    assert (again.status, again.json["id"]) == (202, job_id)


async def test_repeated_batch_finds_its_jobs(address: str) -> None:
    """A repeated batch with the same idempotency key returns the first jobs."""
    body = {"jobs": [{"type": "echo", "payload": n} for n in range(3)]}
    first, again = [await post(address, JOBS, body, Idempotency_Key="k1") for _ in range(2)]
    assert [row["id"] for row in first.json["jobs"]] == [row["id"] for row in again.json["jobs"]]
    assert all(row["existing"] for row in again.json["jobs"])


@pytest.mark.parametrize("key", ["x" * (limits.REQUEST_ID_CHARS_MAX + 1), "é", "a\tb"])
async def test_key_that_cannot_be_kept_is_refused(address: str, key: str) -> None:
    """An idempotency key that is too long or not printable is refused."""
    reply = await post(address, JOBS, {"type": "echo"}, Idempotency_Key=key)
    assert (reply.status, reply.reason) == (400, "REQUEST_ID_INVALID")


async def test_list_filters_by_queue_type_labels_and_times(address: str) -> None:
    """A list of jobs can be filtered by queue, type, labels and times, each alone and together."""
    one = await submitted(address, queue="a", labels={"k": "1", "x": "y:z"})
    wait_for_another_millisecond()  # within one millisecond, the order is by id
    two = await submitted(address, queue="b", labels={"k": "2"})
    wait_for_another_millisecond()
    three = await submitted(address, type="other", queue="b")
    assert await found(address) == [three, two, one]
    assert await found(address, "oldest_first=true") == [one, two, three]
    assert await found(address, "queue=b") == [three, two]
    assert await found(address, "type=other") == [three]
    assert await found(address, "label=k:1") == [one]
    assert await found(address, "label=k:1&label=x:y:z") == [one]
    assert await found(address, "label=k:1&label=k2:2") == []
    assert await found(address, "created_before=2000-01-01T00:00:00Z") == []
    assert len(await found(address, "created_from=2000-01-01T00:00:00%2B01:00&queue=b&status=queued")) == 2


async def test_every_name_of_a_status_is_understood(address: str) -> None:
    """A status filter accepts every alias in any case, and several of them with commas or repeated."""
    waiting = await submitted(address)
    canceled = await submitted(address)
    await post(address, f"{JOBS}/{canceled}/cancel")
    for name, state in STATUS_ALIASES.items():
        for text in (name, name.upper()):
            ids = await found(address, f"status={text}")
            assert ids == {"QUEUED": [waiting], "CANCELED": [canceled]}.get(state.name, [])
    assert len(await found(address, "status=pending,cancelled")) == 2
    assert len(await found(address, "status=pending&status=cancelled")) == 2
    assert len(await found(address, "status=")) == 2
    reply = await get(address, f"{JOBS}?status=nothing")
    assert (reply.status, reply.reason) == (400, "STATUS_INVALID")


async def test_cursor_goes_on_where_the_page_ended(address: str) -> None:
    """A cursor continues after its page so that every job is listed once, and another search refuses it."""
    made = [await submitted(address) for _ in range(7)]
    seen: list[tuple[int, str]] = []
    cursor = ""
    while True:
        page = (await get(address, f"{JOBS}?limit=3&cursor={cursor}")).json
        seen += [(-job["created_at_ms"], job["id"]) for job in page["jobs"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
        last = cursor
    assert seen == sorted(seen)  # newest first, and by id within a millisecond
    assert sorted(job_id for _, job_id in seen) == sorted(made)
    reply = await get(address, f"{JOBS}?queue=other&cursor={last}")
    assert (reply.status, reply.reason) == (400, "CURSOR_INVALID")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "nothing=1",
        "queue=a&queue=b",
        "label=x",
        "created_from=today",
        "%ff=1",
        "oldest_first=maybe",
    ],
)
async def test_filter_that_makes_no_sense_is_refused(address: str, query: str) -> None:
    """An unknown or malformed filter is refused, because it would otherwise match every job."""
    assert (await get(address, f"{JOBS}?{query}")).reason


async def test_cancel_ends_a_waiting_job(address: str) -> None:
    """A cancel without a body ends a waiting job and may be repeated."""
    job_id = await submitted(address)
    first = await post(address, f"{JOBS}/{job_id}/cancel", {"reason": "not needed"})
    again = await post(address, f"{JOBS}/{job_id}/cancel")
    assert (first.json["status"], first.json["was_terminal"]) == ("CANCELED", False)
    assert (again.json["status"], again.json["was_terminal"]) == ("CANCELED", True)
    history = (await get(address, f"{JOBS}/{job_id}/history")).json["entries"]
    assert [(entry["what"], entry["status"]) for entry in history] == [
        ("submitted", "QUEUED"),
        ("canceled", "CANCELED"),
    ]
    assert history[1]["reason"] == "not needed"


async def test_retry_makes_a_job_like_one_that_has_ended(address: str) -> None:
    """A retry creates a job from a finished one, once per key, and is refused for an unfinished one."""
    job_id = await submitted(address, payload=[1])
    early = await post(address, f"{JOBS}/{job_id}/retry")
    assert (early.status, early.reason) == (422, "JOB_NOT_ENDED")
    await post(address, f"{JOBS}/{job_id}/cancel")
    first = await post(address, f"{JOBS}/{job_id}/retry", Idempotency_Key="k")
    await post(address, f"{JOBS}/{first.json['id']}/cancel")
    again = await post(address, f"{JOBS}/{job_id}/retry", Idempotency_Key="k")
    assert (first.json["status"], again.json["status"]) == ("QUEUED", "CANCELED")
    assert (first.status, first.json["retry_of"]) == (202, job_id)
    assert again.json["id"] == first.json["id"] != job_id
    job = (await get(address, first.headers["location"])).json
    assert (job["payload"], job["retry_of"]) == ([1], job_id)


async def test_explanation_of_a_waiting_job_has_a_reason_and_a_sentence(address: str) -> None:
    """The explanation of a waiting job has a reason for programs and a sentence for people."""
    why = (await get(address, f"{JOBS}/{await submitted(address)}/why")).json
    assert (why["status"], why["reason"]) == ("QUEUED", "NO_WORKER")
    assert "worker" in why["explanation"]


async def test_result_is_not_ready_until_it_is(address: str) -> None:
    """A result that is not ready is 200 with ready: false, and a waiting request is answered when the job ends."""
    job_id = await submitted(address)
    reply = await get(address, f"{JOBS}/{job_id}/result")
    assert (reply.status, reply.json["ready"], reply.json["status"]) == (200, False, "QUEUED")
    assert (await get(address, f"{JOBS}/{job_id}/result?wait_s=0.01")).json["ready"] is False
    waiting = asyncio.create_task(get(address, f"{JOBS}/{job_id}/result?wait_s=30"))
    await post(address, f"{JOBS}/{job_id}/cancel")
    assert (await waiting).json["status"] == "CANCELED"


@pytest.mark.parametrize("path", ["", "/result", "/history", "/attempts", "/why", "/cancel", "/retry"])
async def test_job_that_is_not_there_is_404(address: str, path: str) -> None:
    """Every request for an unknown job is 404."""
    method = "POST" if path in {"/cancel", "/retry"} else "GET"
    for name in ("nothing", "%2e%2e%2f", "%00", "%C3%A9", "%3Cscript%3E"):
        reply = await ask(address, method, f"{JOBS}/{name}{path}")
        assert reply.status == 404, reply
        assert reply.reason


async def test_methods_are_told(address: str) -> None:
    """A wrong method is 405 with the allowed methods, HEAD is GET without a body, and a trailing slash is ignored."""
    refused = await ask(address, "DELETE", JOBS)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    assert refused.reason == "METHOD_NOT_ALLOWED"
    options = await ask(address, "OPTIONS", JOBS)
    assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    listed = await get(address, f"{JOBS}/")
    head = await ask(address, "HEAD", JOBS)
    assert (head.status, head.headers["content-length"]) == (200, str(len(listed.body)))
    assert (await get(address, "/api/v1/nothing")).reason == "PATH_UNKNOWN"


async def test_pipelined_requests_are_answered_in_order(address: str) -> None:
    """Pipelined requests on one connection are answered in order."""
    body = b'{"type":"echo","queue":"q%d"}'
    kind = {"Content-Type": "application/json"}
    async with connected(address) as line:
        line.writer.write(b"".join(request("POST", JOBS, body % n, kind) for n in range(20)))
        replies: list[Reply] = [await line.reply() for _ in range(20)]
    assert [reply.json["queue"] for reply in replies] == [f"q{n}" for n in range(20)]


async def test_missing_capability_is_501(server: LedgerServer) -> None:
    """A request for a capability that the backend lacks is 501 and names the backend."""
    bare = HttpServer(Application(Backend(server.jobs, declared=Capabilities("bare", frozenset()))))
    other = await bare.start("127.0.0.1", 0)
    try:
        for path in (
            "/api/v1/queues",
            "/api/v1/workers",
            "/api/v1/schedules",
            "/api/v1/events",
            "/api/v1/stats",
            "/metrics",
        ):
            reply = await get(other, path)
            assert (reply.status, reply.reason) == (501, "CAPABILITY_MISSING")
            assert "bare" in reply.json["detail"]
        assert (await post(other, JOBS, {"type": "echo"})).status == 202
    finally:
        await bare.stop(1)


async def test_output_that_is_not_json_is_told_in_base64(server: LedgerServer, address: str) -> None:
    """An output that is not JSON is returned in base64."""
    reply = await server.jobs.submit(
        [Template("echo")], [JobDraft(payload=b"\xff\x00"), JobDraft(payload=b'{"a":NaN}')]
    )
    for job_id, text in zip(reply.job_ids, ("/wA=", "eyJhIjpOYU59"), strict=True):
        job: dict[str, Any] = (await get(address, f"{JOBS}/{job_id}")).json
        assert (job["payload"], job["payload_base64"]) == (None, text)


async def test_hostile_text_comes_back_as_it_went_in(address: str) -> None:
    """Text with markup and control characters comes back unchanged as JSON with `nosniff`."""
    text = "<script>alert(1)</script>\r\nX: y\u202e\x00\U0001f600"
    reply = await get(address, f"{JOBS}/{await submitted(address, payload={'t': text}, labels={'l': text[:20]})}")
    assert reply.json["payload"] == {"t": text}
    assert (reply.headers["content-type"], reply.headers["x-content-type-options"]) == ("application/json", "nosniff")
    assert json.loads(reply.body)["labels"]["l"] == text[:20]
