"""Queues, workers, schedules, probes and short forms over HTTP."""

import asyncio
import re
from typing import Any

import pytest

from holdfast.server.ledger_server import LedgerServer
from tests.integration.conftest import Start
from tests.integration.http_client import ask, get, post

API = "/api/v1"


@pytest.fixture
async def server(start: Start) -> LedgerServer:
    """A server without a worker."""
    return await start(no_http=False, http_port=0)


@pytest.fixture
def address(server: LedgerServer) -> str:
    return server.http_address


async def queues(address: str) -> dict[str, Any]:
    return {queue["name"]: queue for queue in (await get(address, f"{API}/queues")).json["queues"]}


async def test_queue_is_paused_resumed_and_drained(address: str) -> None:
    """The list of queues shows each pause, resume and drain with its reason."""
    await post(address, f"{API}/jobs", {"type": "echo", "queue": "q"})
    assert (await queues(address))["q"]["mode"] == "OPEN"
    assert (await queues(address))["q"]["ready"] == 1
    for verb, mode in (("pause", "PAUSED"), ("drain", "DRAINING"), ("resume", "OPEN")):
        reply = await post(address, f"{API}/queues/q/{verb}", {"reason": verb})
        assert reply.json == {"name": "q", "mode": mode, "reason": verb}
        assert (await queues(address))["q"]["mode"] == mode
    bad = await post(address, f"{API}/queues/a%20b/pause")
    assert (bad.status, bad.reason) == (400, "NAME_INVALID")


async def test_purge_cancels_waiting_jobs_of_its_queue(address: str) -> None:
    """A purge over HTTP cancels the waiting jobs of that queue only."""
    for queue in ("a", "a", "b"):
        await post(address, f"{API}/jobs", {"type": "echo", "queue": queue})
    assert (await post(address, f"{API}/queues/a/purge")).json == {"name": "a", "canceled": 2}
    assert set(await queues(address)) == {"b"}


async def test_worker_that_is_not_there_cannot_be_drained(address: str) -> None:
    """A drain of an unknown worker is 404, and the list of workers is empty."""
    assert (await get(address, f"{API}/workers")).json == {"workers": []}
    assert (await post(address, f"{API}/workers/w1/drain")).reason == "WORKER_NOT_FOUND"


async def test_schedule_lives_its_life(address: str) -> None:
    """A schedule can be created, read, paused, resumed, triggered, replaced and deleted over HTTP."""
    plan = {"name": "daily", "type": "echo", "payload": {"a": 1}, "cron": "0 9 * * *", "timezone": "Europe/Paris"}
    made = await post(address, f"{API}/schedules", plan)
    assert (made.status, made.headers["location"]) == (201, f"{API}/schedules/daily")
    assert {name: made.json[name] for name in plan} == plan
    assert (made.json["status"], made.json["next_at_ms"] > 0) == ("active", True)
    assert (await post(address, f"{API}/schedules/daily/pause")).json["status"] == "paused"
    for status, count in (("paused", 1), ("active", 0), ("ended", 0), ("", 1)):
        listed = (await get(address, f"{API}/schedules?status={status}")).json["schedules"]
        assert len(listed) == count
    assert (await post(address, f"{API}/schedules/daily/resume")).json["status"] == "active"
    triggered = await post(address, f"{API}/schedules/daily/trigger")
    assert triggered.status == 202
    job = (await get(address, triggered.headers["location"])).json
    assert (job["payload"], job["headers"]["holdfast-schedule"]) == ({"a": 1}, "daily")
    replaced = await ask(address, "PUT", f"{API}/schedules/daily", {"type": "echo", "every_s": 10})
    assert (replaced.status, replaced.json["every_s"], replaced.json["cron"]) == (200, 10.0, "")
    assert (await get(address, f"{API}/schedules/daily")).json["last_job_id"] == job["id"]
    assert (await ask(address, "DELETE", f"{API}/schedules/daily")).status == 204
    assert (await get(address, f"{API}/schedules/daily")).reason == "SCHEDULE_NOT_FOUND"
    anew = await ask(address, "PUT", f"{API}/schedules/daily", {"type": "echo", "every_s": 10})
    assert (anew.status, anew.headers["location"]) == (201, f"{API}/schedules/daily")


async def test_preview_tells_the_next_ticks(address: str) -> None:
    """The preview returns the next ticks of a stored or a given schedule, also across a change to summer time."""
    body = {"cron": "30 2 * * *", "timezone": "Europe/Paris", "after": "2026-03-27T12:00:00Z", "count": 3}
    ticks = (await post(address, f"{API}/schedule-preview", body)).json["ticks_ms"]
    assert ticks == [1_774_661_400_000, 1_774_746_000_000, 1_774_830_600_000]
    await post(address, f"{API}/schedules", {"name": "preview", "type": "echo", "every_s": 60})
    found = (await get(address, f"{API}/schedules/preview/preview?count=2")).json["ticks_ms"]
    assert found[1] - found[0] == 60_000


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "SCHEDULE_TIME_INVALID"),
        ({"cron": "* * * * *", "every_s": 1}, "SCHEDULE_TIME_INVALID"),
        ({"cron": "61 * * * *"}, "CRON_INVALID"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "TIMEZONE_INVALID"),
        ({"every_s": 0.5}, "EVERY_INVALID"),
        ({"cron": "* * * * *", "overlap": "maybe"}, "BODY_INVALID"),
        ({"cron": "* * * * *", "name": "a b"}, "BODY_INVALID"),
    ],
)
async def test_schedule_that_makes_no_sense_is_refused(address: str, fields: dict[str, Any], reason: str) -> None:
    """An invalid schedule is refused with its reason."""
    reply = await post(address, f"{API}/schedules", {"name": "x", "type": "echo", **fields})
    assert (reply.status, reply.reason) == (400, reason)


async def test_short_form_submits_once(address: str) -> None:
    """The short form maps the type `once` and named priorities, and calls the id also job_id."""
    reply = await post(address, "/api/jobs", {"type": "once", "payload": "high priority one time", "priority": "high"})
    assert (reply.status, reply.json["job_id"]) == (202, reply.json["id"])
    job = (await get(address, f"/job?job_id={reply.json['job_id']}")).json
    assert (job["type"], job["payload"], job["priority"]) == ("echo", "high priority one time", 8)
    assert [one["id"] for one in (await get(address, "/jobs")).json["jobs"]] == [job["id"]]
    assert [one["id"] for one in (await get(address, "/jobs?status=pending")).json["jobs"]] == [job["id"]]
    assert (await get(address, "/jobs?status=completed")).json["jobs"] == []
    assert (await get(address, "/job?job_id=nothing")).status == 404
    assert (await get(address, "/job")).status == 400


async def test_short_form_makes_a_cron_job(address: str) -> None:
    """The short form of a cron job creates one schedule, also when repeated, and lists it as active among the jobs."""
    body = {"type": "cron", "cron_expr": "30 2", "payload": "run every night"}
    first, again = [await post(address, "/api/jobs", body) for _ in range(2)]
    assert (first.status, again.json["job_id"]) == (201, first.json["job_id"])
    for query in ("", "?status=", "?status=active"):
        (one,) = (await get(address, f"/jobs{query}")).json["jobs"]
        assert (one["type"], one["cron_expr"], one["status"]) == ("cron", "30 2", "active")
    assert (await get(address, f"/job?job_id={one['id']}")).json["payload"] == "run every night"
    assert (await post(address, "/api/jobs", {"type": "cron", "payload": 1})).reason == "CRON_INVALID"


async def test_short_form_keeps_the_plan_of_a_key(address: str) -> None:
    """A repeated short form with an idempotency key returns the first cron job, and another plan under it is 422."""
    await post(address, f"{API}/schedules", {"name": "k1", "type": "echo", "every_s": 60})
    body = {"type": "cron", "cron_expr": "*/2 *", "payload": 1}
    first, again = [await post(address, "/api/jobs", body, Idempotency_Key="k1") for _ in range(2)]
    assert (first.status, again.status, again.json["job_id"]) == (201, 201, first.json["job_id"])
    other = await post(address, "/api/jobs", {**body, "cron_expr": "0 9"}, Idempotency_Key="k1")
    assert (other.status, other.reason) == (422, "REQUEST_ID_REUSED")
    assert (await get(address, f"/job?job_id={first.json['job_id']}")).json["cron_expr"] == "*/2 *"
    assert (await get(address, f"{API}/schedules/k1")).json["every_s"] == 60
    assert (await post(address, "/api/jobs", body, Idempotency_Key="any text")).status == 201


async def test_instant_within_a_second_is_the_second_after_it(address: str) -> None:
    """A schedule's instant is rounded up to the next whole second."""
    for at in ("2040-01-31T09:00:00.250Z", 2211613200250):
        reply = await post(address, f"{API}/schedules", {"name": "once", "type": "echo", "at": at})
        assert (reply.status, reply.json["at_ms"]) == (201, 2211613201000)


async def test_probes_and_metrics_are_beside_the_api(server: LedgerServer, address: str) -> None:
    """The HTTP port also serves metrics and probes, and /readyz is 503 while the server drains."""
    await post(address, f"{API}/jobs", {"type": "echo"})
    metrics = await get(address, "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'holdfast_jobs_submitted_total{queue="default",type="echo"} 1.0' in metrics.body
    stats = (await get(address, f"{API}/stats")).json
    assert (stats["states"]["QUEUED"], stats["totals"]["submitted"]) == (1, 1)
    assert (await get(address, "/readyz")).status == 200
    await server.drain()
    reply = await get(address, "/readyz")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert (await get(address, "/livez")).status == 200


async def test_dashboard_is_served_with_its_types(address: str) -> None:
    """The dashboard's files have their content types and etags, and other paths are 404."""
    page = await get(address, "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (await ask(address, "GET", "/", None, {"If-None-Match": page.headers["etag"]})).status == 304
    found = set(re.findall(r'"(/assets/[^"]+)"', page.body.decode()))
    assert found
    types = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    for path in found:
        file = await get(address, path)
        assert (file.status, file.headers["content-type"]) == (200, types[path.rpartition(".")[2]]), path
        assert file.headers["x-content-type-options"] == "nosniff"
    for path in ("/assets/", "/assets/../../../settings.py", "/assets/%2e%2e/app.py", "/index.html", "/assets/x.js"):
        assert (await get(address, path)).status == 404, path


async def test_parsing_a_large_body_does_not_hold_up_other_requests(address: str) -> None:
    """Other requests are answered while the server parses a JSON body of megabytes."""
    payload = b"[" + b",".join([b'{"\\u0061":1,"b":"\\u00e9"}'] * 30_000) + b"]"
    large = asyncio.create_task(post(address, f"{API}/jobs", b'{"type":"echo","payload":' + payload + b"}"))
    while not large.done():
        assert (await get(address, "/livez")).status == 200
    assert (await large).status == 202
    twice = payload[:-1] + b',{"a":1,"\\u0061":2}]'
    reply = await post(address, f"{API}/jobs", b'{"type":"echo","payload":' + twice + b"}")
    assert reply.reason == "JSON_DUPLICATE_NAME"
