"""Health by service name, and reflection behind its flag."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from holdfast.server.grpc.server import SERVICES
from tests.integration.conftest import Start

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def check(address: str, service: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
        return int(answer.status)


async def listed(address: str) -> set[str]:
    """The services that reflection lists."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        async for answer in stub.ServerReflectionInfo(iter([request])):
            return {service.name for service in answer.list_services_response.service}
    raise AssertionError("expected a reflection response, got none")


async def test_every_service_is_healthy_by_its_name(start: Start) -> None:
    """The server as a whole and each of its services are SERVING."""
    server = await start()
    assert {await check(server.address, name) for name in ("", *SERVICES)} == {SERVING}
    assert {"taskqueue.v1.TaskQueuePublicService", "holdfast.v1.WorkService"} <= set(SERVICES)


async def test_service_that_is_not_there_is_not_found(start: Start) -> None:
    """The health of a service that this topology does not have is NOT_FOUND."""
    server = await start()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(server.address, "taskqueue.internal.v1.JobInternalService")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("service", ["", *SERVICES])
async def test_watchers_hear_of_the_drain_before_the_end(start: Start, service: str) -> None:
    """A health watch of any service sees SERVING, and then NOT_SERVING while the server stops."""
    server = await start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        watch = health_pb2_grpc.HealthStub(channel).Watch(request)
        assert (await watch.read()).status == SERVING
        stopping = asyncio.create_task(server.stop())
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await stopping


async def test_reflection_is_there_only_when_asked_for(start: Start) -> None:
    """With the flag, reflection lists every service; without it the method is UNIMPLEMENTED."""
    plain = await start(data="memory://")
    async with grpc.aio.insecure_channel(plain.address) as channel:
        # A unary call sends its message with the call: gRPC turns a refusal into INTERNAL if a message is written after
        # it.
        ask: Any = channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")  # type: ignore[call-arg]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    open_one = await start(data="memory://", reflection=True)
    assert {*SERVICES, "grpc.health.v1.Health"} <= await listed(open_one.address)
