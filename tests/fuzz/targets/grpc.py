"""Requests of every method, valid or not, one after the other: each is answered, or refused with a known code.

An input is a list of calls, some of them with bytes that are no message. A refused call does not change a byte of the
journal.
"""

import random

from google.protobuf.message import Message

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from tests.fuzz.rpc import Gateway, Refused
from tests.fuzz.rpc_requests import METHODS, STREAMS, requests_of
from tests.fuzz.source import Source
from tests.fuzz.world import World, run

EXAMPLES = 250
IS_GUIDED = False

_CALLS_MAX = 6
_ENDED = "0d3f5a5f-9d0e-4f0a-8b51-8d3b1c620c11"


def seeds() -> list[bytes]:
    """Each method with a message, and several in a row."""
    rng = random.Random(0)
    single = [bytes([0, number, 1]) + rng.randbytes(80) for number in range(len(METHODS)) for _ in range(4)]
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
        called = source.pick(METHODS)
        requests = requests_of(source, called, ids)
        await world.settle()  # until the effects of a canceled call are over
        before = world.mark
        try:
            answers = await gateway.call(called.path, requests)
        except Refused:
            # In a stream, messages before the refused one may have been accepted.
            assert world.mark == before or called.name in STREAMS, f"{called.path} was refused and left a trace"
        else:
            ids += [job_id for answer in answers for job_id in _ids(answer)]
    await world.end()


async def _prepare(gateway: Gateway) -> list[str]:
    """Makes a waiting, a running and a finished job, and a schedule; returns the ids of the jobs."""
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


def _ids(answer: Message) -> list[str]:
    """The job ids in a response."""
    named = [getattr(answer, "job_id", ""), *getattr(answer, "job_ids", ())]
    return [job_id for job_id in named if job_id]
