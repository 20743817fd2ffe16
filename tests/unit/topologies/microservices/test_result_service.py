"""The result service over gRPC, in memory and on disk."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import Code
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.testing.clock import ManualClock
from holdfast.topologies.microservices.services.result_service import ResultService
from holdfast.topologies.microservices.state.envelopes import EnvelopeRetention, Envelopes
from tests.unit.topologies.microservices.owner_server import DEADLINE_S, Owner, served, servers_with

SERVICE = "/taskqueue.internal.v1.ResultInternalService/"
SHA256_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DONE, FAILED, CANCELED = public_pb.DONE, public_pb.FAILED, public_pb.CANCELED


class Results:
    """A client of one result service."""

    def __init__(self, owner: Owner, envelopes: Envelopes) -> None:
        self.owner = owner
        self.envelopes = envelopes
        self.stub = rpc.ResultInternalServiceStub(owner.channel)

    async def store(self, job_id: str, status: int = DONE, **fields: Any) -> pb.StoreResultResponse:  # noqa: ANN401
        request = pb.StoreResultRequest(job_id=job_id, terminal_status=status, **fields)  # type: ignore[arg-type]
        answer: pb.StoreResultResponse = await self.stub.StoreResult(request, timeout=DEADLINE_S)
        return answer

    async def get(self, job_id: str) -> pb.GetResultResponse:
        answer: pb.GetResultResponse = await self.stub.GetResult(pb.GetResultRequest(job_id=job_id), timeout=DEADLINE_S)
        return answer


@asynccontextmanager
async def results_at(
    data: Path | None,
    *,
    retention: EnvelopeRetention | None = None,
    output_bytes_max: int = limits.OUTPUT_BYTES_MAX,
    **options: Any,  # noqa: ANN401 - of `served`
) -> AsyncIterator[Results]:
    envelopes = Envelopes(retention or EnvelopeRetention.beyond())

    def register(state_owner: Any, server: Any) -> None:  # noqa: ANN401
        service = ResultService(state_owner, envelopes, output_bytes_max=output_bytes_max)
        rpc.add_ResultInternalServiceServicer_to_server(service, server)

    async with served(envelopes, register, data, **options) as owner:
        yield Results(owner, envelopes)


@pytest.fixture(params=["memory", "disk"])
async def results(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Results]:
    """An empty result service."""
    async with results_at(tmp_path / "result" if request.param == "disk" else None) as results:
        yield results


@pytest.mark.parametrize("status", [DONE, FAILED, CANCELED])
async def test_stored_result_is_given_back_whole(results: Results, status: int) -> None:
    """A stored result is returned with all fields and the checksum of its output, for every terminal status."""
    answer = await results.store("a", status, runtime_ms=7, output_summary="words", output_bytes=b"\0out")
    assert answer == pb.StoreResultResponse(stored=True, current_terminal_status=status)  # type: ignore[arg-type]
    assert await results.get("a") == pb.GetResultResponse(
        found=True,
        job_id="a",
        terminal_status=status,  # type: ignore[arg-type]
        runtime_ms=7,
        output_summary="words",
        output_bytes=b"\0out",
        checksum=hashlib.sha256(b"\0out").hexdigest(),
    )


async def test_same_envelope_can_be_stored_again(results: Results) -> None:
    """Storing the same envelope again is confirmed as stored and existing."""
    envelope: dict[str, Any] = {"runtime_ms": 7, "output_summary": "words", "output_bytes": b"out"}
    assert not (await results.store("a", FAILED, **envelope)).already_exists
    before = await results.get("a")
    for checksum in ("", hashlib.sha256(b"out").hexdigest()):
        answer = await results.store("a", FAILED, **envelope, checksum=checksum)
        assert answer == pb.StoreResultResponse(stored=True, already_exists=True, current_terminal_status=FAILED)
    assert await results.get("a") == before


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (FAILED, {"output_bytes": b"out"}),
        (CANCELED, {}),
        (DONE, {"output_bytes": b"other"}),
        (DONE, {"output_bytes": b"out", "runtime_ms": 1}),
        (DONE, {"output_bytes": b"out", "output_summary": "words"}),
    ],
)
async def test_refused_envelope_is_told_which_status_stands(
    results: Results, status: int, fields: dict[str, Any]
) -> None:
    """A different second envelope is refused, and the reply holds the status of the first one."""
    await results.store("a", DONE, output_bytes=b"out")
    before = await results.get("a")
    answer = await results.store("a", status, **fields)
    assert answer == pb.StoreResultResponse(stored=False, already_exists=True, current_terminal_status=DONE)
    assert await results.get("a") == before


async def test_one_of_many_that_race_is_stored(results: Results) -> None:
    """Of concurrent stores exactly one is first, and all replies hold its status."""
    statuses = [DONE, FAILED, CANCELED] * 10
    answers = await asyncio.gather(*(results.store("a", s, runtime_ms=n) for n, s in enumerate(statuses)))
    firsts = [answer for answer in answers if not answer.already_exists]
    assert len(firsts) == 1
    assert [answer.stored for answer in answers].count(True) == 1
    standing = (await results.get("a")).terminal_status
    assert {answer.current_terminal_status for answer in answers} == {standing}


@pytest.mark.parametrize("status", [public_pb.JOB_STATUS_UNSPECIFIED, public_pb.QUEUED, public_pb.RUNNING, 6, 77, -1])
async def test_only_terminal_statuses_are_stored(status: int) -> None:
    """A status that is not terminal is INVALID_ARGUMENT, and nothing is stored."""
    async with results_at(None) as results:
        error = await results.owner.refusal(results.store("a", status))
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "STATUS_NOT_TERMINAL")
        assert not (await results.get("a")).found


async def test_checksum_is_always_there(results: Results) -> None:
    """A result without output has a checksum too, whether the caller sent one or not."""
    await results.store("a", CANCELED)
    await results.store("b", DONE, checksum=SHA256_OF_NOTHING)
    assert [(await results.get(job_id)).checksum for job_id in ("a", "b")] == [SHA256_OF_NOTHING] * 2


@pytest.mark.parametrize(
    "checksum",
    [SHA256_OF_NOTHING, hashlib.sha256(b"out").hexdigest().upper(), hashlib.sha256(b"out").hexdigest()[:-1], "x"],
)
async def test_wrong_checksum_is_refused(checksum: str) -> None:
    """A checksum that is not the lower-case SHA-256 of the output is INVALID_ARGUMENT."""
    async with results_at(None) as results:
        error = await results.owner.refusal(results.store("a", output_bytes=b"out", checksum=checksum))
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "CHECKSUM_MISMATCH")


@pytest.mark.parametrize("limit", [limits.OUTPUT_BYTES_MAX, 10])
async def test_output_over_the_limit_is_refused(limit: int) -> None:
    """An output of the limit's size is stored, and one more byte is refused, for any configured limit."""
    async with results_at(None, output_bytes_max=limit) as results:
        error = await results.owner.refusal(results.store("a", output_bytes=bytes(limit + 1)))
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "OUTPUT_TOO_LARGE")
        assert (await results.store("a", output_bytes=bytes(limit))).stored
        assert len((await results.get("a")).output_bytes) == limit


async def test_long_summary_is_cut(results: Results) -> None:
    """A long summary is cut, and storing the same one again still counts as a repeat."""
    words = "é" * (limits.SUMMARY_CHARS_MAX + 1)
    await results.store("a", output_summary=words)
    assert (await results.get("a")).output_summary == words[:-1]
    assert (await results.store("a", output_summary=words)).stored


async def test_reads_can_be_repeated(results: Results) -> None:
    """Reads change nothing, whether the result exists or not."""
    await results.store("a", output_bytes=b"out")
    before = results.owner.state_owner.position, results.envelopes.digest
    found, missing = [await results.get("a") for _ in range(3)], [await results.get("b") for _ in range(3)]
    assert found == [found[0]] * 3
    assert missing == [pb.GetResultResponse(job_id="b")] * 3
    assert (results.owner.state_owner.position, results.envelopes.digest) == before


@pytest.mark.parametrize(
    ("job_id", "reason"),
    [("", "JOB_ID_EMPTY"), ("x" * (limits.JOB_ID_CHARS_MAX + 1), "JOB_ID_TOO_LONG"), ("a\0b", "JOB_ID_INVALID")],
)
async def test_malformed_ids_are_refused(job_id: str, reason: str) -> None:
    """A store under an invalid id is refused, and so is a read of an empty or too long id."""
    async with results_at(None) as results:
        error = await results.owner.refusal(results.store(job_id))
        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, reason)
        if reason == "JOB_ID_INVALID":
            assert not (await results.get(job_id)).found
        else:
            assert (await results.owner.refusal(results.get(job_id))).reason == reason


@pytest.mark.parametrize("method", ["StoreResult", "GetResult"])
async def test_bytes_that_are_no_message_are_refused(method: str) -> None:
    """A truncated message, and text that is not UTF-8, are refused."""
    async with results_at(None) as results:
        for data in (b"\x0a\xff", b"\x0a\x02\xff\xfe"):
            error = await results.owner.refusal(results.owner.raw(SERVICE + method, data))
            assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MESSAGE_MALFORMED")


async def test_results_know_no_other_domain(results: Results) -> None:
    """The result service serves no methods of other services."""
    for method in ("JobInternalService/GetJobRecord", "QueueInternalService/DequeueJob", "ResultInternalService/List"):
        error = await results.owner.refusal(results.owner.raw(f"/taskqueue.internal.v1.{method}", b""))
        assert error.code == Code.UNIMPLEMENTED


@pytest.mark.parametrize("compact_bytes", [64 << 20, 300_000], ids=["journal", "snapshot"])
async def test_envelopes_survive_a_restart(tmp_path: Path, compact_bytes: int) -> None:
    """After several restarts the first envelope of each job is still the stored one."""
    for start in range(3):
        async with results_at(tmp_path / "result", compact_bytes=compact_bytes) as results:
            for number in range(10):
                answer = await results.store(
                    f"job-{number}", DONE if start == 0 else FAILED, output_bytes=bytes(60_000)
                )
                assert answer.already_exists == (start > 0)
                assert answer.current_terminal_status == DONE
            assert (await results.store(f"new-{start}", output_bytes=b"out")).stored
            assert not (await results.store(f"new-{start}", CANCELED)).stored
    assert bool(list((tmp_path / "result").glob("*.snap*"))) == (compact_bytes == 300_000)
    async with results_at(tmp_path / "result", compact_bytes=compact_bytes) as results:
        found = [await results.get(f"job-{number}") for number in range(10)]
        assert {(answer.found, answer.terminal_status, len(answer.output_bytes)) for answer in found} == {
            (True, DONE, 60_000)
        }
        assert [(await results.get(f"new-{start}")).output_bytes for start in range(3)] == [b"out"] * 3
        assert len(results.envelopes) == 13


@pytest.mark.parametrize("storage", ["memory", "disk"])
async def test_envelopes_are_bounded(tmp_path: Path, storage: str) -> None:
    """Envelopes above the limits of number, bytes and age are removed, oldest first, also over a restart."""
    data = tmp_path / "result" if storage == "disk" else None
    clock = ManualClock()
    retention = EnvelopeRetention(age_ms=60_000, envelopes=5, bytes=1_000)
    options: dict[str, Any] = {"retention": retention, "clock": clock}
    async with results_at(data, **options) as results:
        for number in range(20):
            await results.store(f"job-{number}", output_bytes=b"out")
        assert [(await results.get(f"job-{number}")).found for number in range(14, 20)] == [False] + [True] * 5
        await results.store("large", output_bytes=bytes(1_000))
        assert len(results.envelopes) == 1
        before = results.envelopes.digest
    if data is not None:
        async with results_at(data, **options) as results:
            assert results.envelopes.digest == before
            clock.advance(60)
            await results.store("young", output_bytes=b"out")
            assert not (await results.get("large")).found
            assert (await results.get("young")).output_bytes == b"out"


async def test_storing_again_keeps_an_envelope_for_longer(tmp_path: Path) -> None:
    """Storing an envelope again, as is done before a job ends, renews its time over a restart."""
    retention = EnvelopeRetention(age_ms=60_000, envelopes=2, bytes=1_000)
    async with results_at(tmp_path / "result", retention=retention) as results:
        await results.store("a", output_bytes=b"first")
        await results.store("b")
        assert not (await results.store("a", FAILED)).stored
    async with results_at(tmp_path / "result", retention=retention) as results:
        await results.store("c")
        assert [(await results.get(job_id)).found for job_id in "abc"] == [True, False, True]
        assert (await results.get("a")).output_bytes == b"first"


def test_only_the_result_service_changes_envelopes(root: Path) -> None:
    """Only the result service and its role use the state of the envelopes."""
    assert servers_with(root, "topologies.microservices.state.envelopes") == {
        "topologies/microservices/services/result_service.py",
    }
