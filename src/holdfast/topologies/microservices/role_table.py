"""The service of each role; a process imports only the service that it runs."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.settings import MEMORY, Settings
from holdfast.topologies.microservices.services.environment import (
    CoordinatorEnvironment,
    Environment,
    GatewayEnvironment,
    JobEnvironment,
    QueueEnvironment,
    ResultEnvironment,
)
from holdfast.topologies.microservices.services.roles import Fatal, Host, Service
from holdfast.topologies.microservices.snapshot_process import snapshot_command

# ruff: noqa: PLC0415


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a service, in addition to its environment."""

    role: str
    host: str = "127.0.0.1"
    #: The data directory of owners; None: in memory.
    data: Path | None = None
    is_insecure: bool = False
    #: Whether a gateway or an owner listens before jobs can be submitted; an owner then says so with `listening`.
    is_early: bool = False
    #: The settings of the gateway, which stores nothing.
    gateway: Settings = Settings(data=MEMORY)


def open_service(
    options: ServiceOptions, environment: Environment, fatal: Fatal, listening: Callable[[str], None]
) -> Service:
    """Returns the service of this environment, not started yet; it calls `fatal` with an error that ends it.

    `listening` is called with the address of an owner that listens before it has recovered.
    """
    host = Host(fatal, snapshot_command, listening if options.is_early else None)
    if isinstance(environment, JobEnvironment):
        from holdfast.topologies.microservices.services.job_service import open_job

        return open_job(environment, options.data, host)
    if isinstance(environment, QueueEnvironment):
        from holdfast.topologies.microservices.services.queue_service import open_queue

        return open_queue(environment, options.data, host)
    if isinstance(environment, ResultEnvironment):
        from holdfast.topologies.microservices.services.result_service import open_result

        return open_result(environment, options.data, host)
    if isinstance(environment, CoordinatorEnvironment):
        from holdfast.topologies.microservices.services.coordinator_service import CoordinatorRole

        return CoordinatorRole(environment, fatal)
    assert isinstance(environment, GatewayEnvironment)
    from holdfast.topologies.microservices.gateway import Gateway

    return Gateway(environment, options.gateway, is_early=options.is_early)
