"""The microservices in containers: six services on a real engine, reached through the published port."""

import json
from collections.abc import Iterator

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.deploy.clients import SLOTS, check_all_end, check_the_five_methods, state_of
from tests.deploy.stack import Stack
from tests.e2e.grpc_client import TERMINAL, Wire
from tests.e2e.wait_until import eventually

# The first test also waits for the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LISTENING = {"gateway": 50051, "job": 50052, "queue": 50053, "coordinator": 50054, "result": 50055}
#: Calls a method of a service without a token, with an invented one, and with that of its container.
ASKING = """
import grpc, os, pathlib, sys
call = grpc.insecure_channel(sys.argv[1]).unary_unary(sys.argv[2])
own = pathlib.Path(os.environ["SERVICE_TOKEN_FILE"]).read_text().strip()
for metadata in ([], [("authorization", "Bearer " + "x" * 43)], [("authorization", "Bearer " + own)]):
    try:
        call(b"", timeout=30, wait_for_ready=True, metadata=metadata)
        print("OK")
    except grpc.RpcError as error:
        print(error.code().name)
"""
#: For each service a method, and the roles that may call it.
METHODS = {
    "job:50052": ("JobInternalService/ListJobRecords", {"gateway", "coordinator"}),
    "queue:50053": ("QueueInternalService/DequeueJob", {"coordinator"}),
    "coordinator:50054": ("CoordinatorInternalService/WorkerHeartbeat", {"worker"}),
    "result:50055": ("ResultInternalService/GetResult", {"gateway"}),
}


@pytest.fixture(scope="module")
def wire(microservices: Stack) -> Iterator[Wire]:
    """A client of the gateway."""
    wire = Wire(microservices.engine.target(LISTENING["gateway"]))
    yield wire
    wire.close()


def test_all_services_become_healthy(microservices: Stack) -> None:
    """Each service is healthy by its own healthcheck, and the worker by that of its coordinator."""
    assert microservices.health() == dict.fromkeys([*LISTENING, "worker"], "healthy")
    for service, container in microservices.containers().items():
        # On a slow machine one of the checks may time out.
        *_, healthy = [check for check in container["State"]["Health"]["Log"] if check["ExitCode"] == 0]
        said = json.loads(healthy["Output"])
        target = f"127.0.0.1:{LISTENING[service]}" if service in LISTENING else "coordinator:50054"
        mode = "tcp" if service in LISTENING else "worker"
        assert (said["event"], said["mode"], said["target"]) == ("healthy", mode, target)


def test_contract_holds_through_the_gateway(wire: Wire) -> None:
    """Submit, status, result, cancel and list follow the frozen contract through the gateway."""
    check_the_five_methods(wire)


@pytest.mark.parametrize("service", [*LISTENING, "worker"])
def test_services_run_unbuffered_and_not_as_root(microservices: Stack, service: str) -> None:
    """The command runs as the image's user, with PYTHONUNBUFFERED=1."""
    asked = "import os; print(os.getuid(), os.environ['PYTHONUNBUFFERED'])"
    assert microservices.run_in(service, "python", "-c", asked).split() == ["10001", "1"]


def test_only_the_gateway_can_be_reached_from_outside(microservices: Stack) -> None:
    """Only the gateway's port is published, and only on loopback."""
    bound = {
        service: [binding for bindings in ports.values() for binding in bindings or ()]
        for service, container in microservices.containers().items()
        if (ports := container["NetworkSettings"]["Ports"])
    }
    assert bound == {"gateway": [{"HostIp": "127.0.0.1", "HostPort": "50051"}]}


@pytest.mark.parametrize("caller", ["gateway", "coordinator", "worker"])
@pytest.mark.parametrize("target", METHODS)
def test_services_check_the_token_and_role_of_a_caller(microservices: Stack, caller: str, target: str) -> None:
    """Without any set-up, no token or an unknown one is UNAUTHENTICATED, and one of a wrong role PERMISSION_DENIED."""
    method, allowed = METHODS[target]
    said = microservices.run_in(caller, "python", "-c", ASKING, target, f"/taskqueue.internal.v1.{method}").split()
    assert said[:2] == [grpc.StatusCode.UNAUTHENTICATED.name] * 2
    assert (said[2] == grpc.StatusCode.PERMISSION_DENIED.name) is (caller not in allowed)
    assert said[2] != grpc.StatusCode.UNAUTHENTICATED.name


@pytest.mark.parametrize("caller", ["gateway", "coordinator", "worker"])
def test_callers_have_their_own_token_alone(microservices: Stack, caller: str) -> None:
    """A container can read only its own token, and cannot change it."""
    asked = "import pathlib; print(*(p for p in pathlib.Path('/credentials').glob('*/token')))"
    assert microservices.run_in(caller, "python", "-c", asked).split() == [f"/credentials/{caller}/token"]
    mounts = {mount["Destination"]: mount["RW"] for mount in microservices.container(caller)["Mounts"]}
    assert mounts[f"/credentials/{caller}"] is False


def test_jobs_outlive_a_disconnected_worker(microservices: Stack, wire: Wire) -> None:
    """A disconnected worker loses its jobs, which return to the queue and end once it is connected again."""
    # Long enough that the worker is disconnected before they have ended.
    running = [wire.new(ms=8_000) for _ in range(SLOTS)]
    for job_id in running:
        wire.wait_for(job_id, public.RUNNING)
    accepted = [*running, wire.new(ms=1), wire.new(ms=1)]
    with microservices.disconnected("worker", "inside"):
        for job_id in running:
            wire.wait_for(job_id, public.QUEUED)
        accepted.append(wire.new(ms=1))
    check_all_end(wire, accepted)


def test_jobs_outlive_a_disconnected_queue(microservices: Stack, wire: Wire) -> None:
    """Without the queue service submits are UNAVAILABLE, and accepted jobs end once it is connected again."""
    accepted = [wire.new(ms=1_000) for _ in range(2 * SLOTS)]
    with microservices.disconnected("queue", "inside"):
        eventually(lambda: refused_submit(wire, accepted), grpc.StatusCode.UNAVAILABLE.__eq__)
    check_all_end(wire, accepted)
    eventually(lambda: refused_submit(wire, accepted), lambda code: code is None)
    check_all_end(wire, accepted)


def test_jobs_outlive_an_owner_that_moves(microservices: Stack, wire: Wire) -> None:
    """If the job service comes back at another address, it is found by its name, and accepted jobs end."""
    accepted = [wire.new(ms=1_000) for _ in range(2 * SLOTS)]
    with microservices.moved("job", "inside"):
        eventually(lambda: refused_submit(wire, accepted), grpc.StatusCode.UNAVAILABLE.__eq__)
    check_all_end(wire, accepted)


def refused_submit(wire: Wire, accepted: list[str]) -> grpc.StatusCode | None:
    """Returns the code of a refused submit; a job that is accepted is added to `accepted`."""
    try:
        accepted.append(wire.new(ms=1))
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def test_gateway_answers_while_it_is_cut_off(microservices: Stack, wire: Wire) -> None:
    """A gateway without its owners is UNAVAILABLE, and serves its jobs again once they are connected."""
    job_id = wire.new(ms=1)
    with microservices.disconnected("gateway", "inside"):
        eventually(lambda: state_of(wire, job_id), grpc.StatusCode.UNAVAILABLE.__eq__)
    check_all_end(wire, [job_id])


def test_credentials_can_be_replaced(microservices: Stack, wire: Wire) -> None:
    """After new tokens and a restart the services accept only the new tokens, and jobs run."""
    target, (method, _) = "job:50052", METHODS["job:50052"]
    before = microservices.run_in("worker", "cat", "/credentials/worker/token")
    replace = ("python", "-m", "scripts.credentials", "services", "--replace", "/credentials")
    microservices.compose("run", "--rm", "credentials", *replace)
    microservices.compose("restart")
    microservices.wait_until_healthy()
    assert microservices.run_in("worker", "cat", "/credentials/worker/token") != before
    accepted: list[str] = []
    eventually(lambda: refused_submit(wire, accepted), lambda code: code is None)
    check_all_end(wire, accepted)
    said = microservices.run_in("worker", "python", "-c", ASKING, target, f"/taskqueue.internal.v1.{method}").split()
    assert said[2] == grpc.StatusCode.PERMISSION_DENIED.name


def test_jobs_outlive_all_containers(microservices: Stack, wire: Wire) -> None:
    """After `down` and `up` jobs have their results, waiting jobs run, and the roles authenticate each other."""
    waiting: list[str] = []
    eventually(lambda: refused_submit(wire, waiting), lambda code: code is None)
    done = wire.new(ms=1, size=10)
    wire.wait_for(done)
    waiting += [wire.new(ms=2_000) for _ in range(3 * SLOTS)]
    microservices.up_again()
    eventually(lambda: state_of(wire, done), TERMINAL.__contains__)
    assert wire.result(done).output_bytes == b"." * 10
    check_all_end(wire, waiting)


def test_it_goes_down_and_leaves_nothing(microservices: Stack) -> None:
    """After `down --volumes` no container, network or volume of the project is left."""
    assert microservices.leftovers()
    microservices.down()
    assert microservices.leftovers() == []
