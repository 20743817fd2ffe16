"""Requests of every method, well formed or not, one after the other: each is answered or refused with a known code.

An input is a list of calls, some of them made of bytes that are no message. What is refused leaves the journal as it
was, byte by byte.
"""

import random

from google.protobuf.message import Message

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.fuzz.messages import filled
from tests.fuzz.rpc import Called, Gateway, Refused, methods
from tests.fuzz.source import Source
from tests.fuzz.world import World, run

EXAMPLES = 250
IS_GUIDED = False

_METHODS = methods()
_CALLS_MAX = 6
_ENDED = "0d3f5a5f-9d0e-4f0a-8b51-8d3b1c620c11"
_STREAMS = {"Work": pb.WorkerMessage, "Converse": pb.Call}
_INNER = [called for called in _METHODS if called.path.startswith("/holdfast.v1.") and called.name not in _STREAMS]


def seeds() -> list[bytes]:
    """Each method with a message, and several in a row."""
    rng = random.Random(0)
    single = [bytes([0, number, 1]) + rng.randbytes(80) for number in range(len(_METHODS)) for _ in range(4)]
    return single + [b"\5" + rng.randbytes(300) for _ in range(20)]


def fuzz(data: bytes) -> None:
    """Makes the calls."""
    run(_fuzz(Source(data)))


async def _fuzz(source: Source) -> None:
    world = World()
    await world.begin()
    gateway = Gateway(world)
    ids = await _prepare(gateway)
    for _ in range(1 + source.below(_CALLS_MAX)):
        called = source.pick(_METHODS)
        requests = _requests(source, called, ids)
        before = world.mark
        try:
            answers = await gateway.call(called.path, requests)
        except Refused:
            # In a stream there may have been others before the one that was refused.
            assert world.mark == before or called.name in _STREAMS, f"{called.path} was refused and left a trace"
        else:
            ids += [job_id for answer in answers for job_id in _ids(answer)]
    await world.end()


async def _prepare(gateway: Gateway) -> list[str]:
    """A job that waits, one that runs, one that has ended, and a schedule."""
    submitted = pb.SubmitJobsRequest(
        templates=[pb.JobTemplate(type="echo")], jobs=[pb.NewJob(payload=b"{}"), pb.NewJob(id=_ENDED)]
    )
    simulated = public_pb.SubmitJobRequest(spec=public_pb.JobSpec(job_type="sleep", work_duration_ms=5))
    schedule = pb.ScheduleSpec(name="nightly", template=pb.JobTemplate(type="echo"), cron="0 3 * * *")
    calls: list[tuple[str, Message]] = [
        ("/holdfast.v1.JobService/SubmitJobs", submitted),
        ("/taskqueue.v1.TaskQueuePublicService/SubmitJob", simulated),
        ("/taskqueue.internal.v1.CoordinatorInternalService/FetchWork", internal_pb.FetchWorkRequest(worker_id="w1")),
        ("/holdfast.v1.ScheduleService/SetSchedule", schedule),
        ("/holdfast.v1.JobService/CancelJob", public_pb.CancelJobRequest(job_id=_ENDED)),
    ]
    ids: list[str] = []
    for path, message in calls:
        for answer in await gateway.call(path, [message.SerializeToString()]):
            ids += _ids(answer)
    return ids


def _requests(source: Source, called: Called, ids: list[str]) -> list[bytes]:
    kind = _STREAMS.get(called.name)
    if kind is None:
        return [_request(source, called.request, ids)]
    requests = [_request(source, kind, ids) for _ in range(1 + source.below(4))]
    return requests if kind is pb.WorkerMessage else [_call(source, request, ids) for request in requests]


def _call(source: Source, request: bytes, ids: list[str]) -> bytes:
    """Within a conversation: mostly a call of a method that there is."""
    if source.is_one_in(4):
        return request
    called = source.pick(_INNER)
    name = "/".join(called.path.rpartition(".")[2].split("/"))
    call = pb.Call(id=source.below(4), method=name, body=_request(source, called.request, ids))
    return call.SerializeToString()


def _request(source: Source, kind: type[Message], ids: list[str]) -> bytes:
    if source.below(8) == 0:
        return source.take(source.below(64))
    request = bytearray(filled(source, kind, ids).SerializeToString())
    if request and source.is_one_in(8):
        request[source.below(len(request))] ^= 1 << source.below(8)
    return bytes(request)


def _ids(answer: Message) -> list[str]:
    """The ids of jobs that an answer names."""
    named = [getattr(answer, "job_id", ""), *getattr(answer, "job_ids", ())]
    return [job_id for job_id in named if job_id]
