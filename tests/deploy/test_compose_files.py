"""The compose files say what was locked; nothing is started here."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast.cli.main import app
from holdfast.services.callers import hash_of
from holdfast.services.environment import ROLES, hashes_of, read
from scripts import healthcheck, service_tokens
from tests.deploy.compose_files import instructions, networks_of, services_of, words

DESIGNS = ("microservices", "monolith")
OWNERS = {"JOB_SERVICE_ADDR": "job:50052", "QUEUE_SERVICE_ADDR": "queue:50053", "RESULT_SERVICE_ADDR": "result:50055"}
#: What the document gives each service, beside what all have.
VARIABLES: dict[str, dict[str, str]] = {
    "gateway": {"GATEWAY_PORT": "50051", **OWNERS},
    "job": {"JOB_PORT": "50052", "MAX_DEDUP_KEYS": "10000"},
    "queue": {"QUEUE_PORT": "50053"},
    "coordinator": {
        "COORDINATOR_PORT": "50054",
        **OWNERS,
        "HEARTBEAT_INTERVAL_MS": "1000",
        "WORKER_TIMEOUT_MS": "4000",
    },
    "result": {"RESULT_PORT": "50055", "MAX_OUTPUT_BYTES": "262144"},
    "worker": {"COORDINATOR_ADDR": "coordinator:50054", "HEARTBEAT_INTERVAL_MS": "1000"},
}
SHARED = {"LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1"}
CREDENTIALS = frozenset({"SERVICE_TOKEN", "SERVICE_TOKEN_HASHES"})
PORTS = {"gateway": 50051, "job": 50052, "queue": 50053, "coordinator": 50054, "result": 50055}
NODES = {f"node-{index}": 50061 + index for index in range(6)}
TIMING = {"interval": "5s", "timeout": "2s", "retries": 12, "start_period": "20s"}
EVERY = [(design, name) for design, names in (("microservices", VARIABLES), ("monolith", NODES)) for name in names]

every_service = pytest.mark.parametrize(("design", "name"), EVERY)


def checked_by(service: dict[str, Any]) -> Any:  # noqa: ANN401 - argparse's namespace
    """How its healthcheck reads its arguments."""
    check = words(service["healthcheck"]["test"])
    assert check[:4] == ["CMD", "python", "-m", "scripts.healthcheck"]
    return healthcheck.parse(check[4:])


@pytest.mark.parametrize(("design", "names"), [("microservices", [*VARIABLES]), ("monolith", [*NODES])])
def test_each_design_has_its_six_services(root: Path, design: str, names: list[str]) -> None:
    """The services are six, under the names that others find them by."""
    assert sorted(services_of(root, design)) == sorted(names)


@every_service
def test_each_container_has_one_command(root: Path, design: str, name: str) -> None:
    """A container has one startup command, of this program, and the image adds none of its own."""
    service = services_of(root, design)[name]
    assert "entrypoint" not in service
    assert "ENTRYPOINT" not in dict(instructions(root))
    assert words(service["command"])[0] == "holdfast"
    wanted = ["service", name] if design == "microservices" else ["node", "--index"]
    assert words(service["command"])[1:3] == wanted


@every_service
def test_every_option_exists(root: Path, design: str, name: str) -> None:
    """The program itself can read every command."""
    program, *arguments = words(services_of(root, design)[name]["command"])
    command: Any = typer.main.get_command(app)
    while isinstance(getattr(command, "commands", None), dict):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(program, arguments)


@every_service
def test_services_bind_every_interface_in_plain_sight(root: Path, design: str, name: str) -> None:
    """Inside their network services listen on every interface and say --insecure; a worker listens nowhere."""
    command = words(services_of(root, design)[name]["command"])
    if name == "worker":
        assert not {"--host", "--insecure"} & set(command)
    else:
        assert command[command.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - of its own network
        assert "--insecure" in command


@pytest.mark.parametrize("design", DESIGNS)
def test_ports_are_published_on_loopback_alone(root: Path, design: str) -> None:
    """Clients reach the gateway, or the six nodes, and only from the machine itself."""
    published = {name: service["ports"] for name, service in services_of(root, design).items() if "ports" in service}
    open_ports = {"gateway": PORTS["gateway"]} if design == "microservices" else NODES
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in open_ports.items()}


def test_services_are_on_a_network_of_their_own(root: Path) -> None:
    """Nothing outside reaches the network of the services, and only the gateway is on another one as well."""
    services = services_of(root, "microservices")
    assert networks_of(root, "microservices")["inside"] == {"internal": True}
    assert services["gateway"]["networks"] == ["inside", "outside"]
    assert all(services[name]["networks"] == ["inside"] for name in VARIABLES if name != "gateway")


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_and_defaults_are_those_of_the_document(root: Path, name: str) -> None:
    """A service is given the variables of its role with their defaults, and credentials that are empty unless set."""
    given = services_of(root, "microservices")[name]["environment"]
    said = {key: str(value) for key, value in given.items() if key not in CREDENTIALS}
    assert said == SHARED | VARIABLES[name]
    assert {value for key, value in given.items() if key in CREDENTIALS} <= {""}


@pytest.mark.parametrize("name", VARIABLES)
def test_each_role_understands_its_variables(root: Path, name: str) -> None:
    """What compose gives by default is what the role would take by itself."""
    given = services_of(root, "microservices")[name]["environment"]
    required = {key: value for key, value in VARIABLES[name].items() if key.endswith("_ADDR")}
    assert read(name, given) == read(name, required)


@every_service
def test_output_is_not_held_back(root: Path, design: str, name: str) -> None:
    """PYTHONUNBUFFERED is 1 in every container, and in the image."""
    assert str(services_of(root, design)[name]["environment"]["PYTHONUNBUFFERED"]) == "1"
    assert any(name == "ENV" and "PYTHONUNBUFFERED=1" in rest.split() for name, rest in instructions(root))


@pytest.mark.parametrize(("design", "ports"), [("microservices", PORTS), ("monolith", NODES)])
def test_listeners_are_checked_by_tcp_on_their_own_port(root: Path, design: str, ports: dict[str, int]) -> None:
    """Whoever listens is checked in tcp mode on loopback, under its own name."""
    for name, port in ports.items():
        options = checked_by(services_of(root, design)[name])
        assert (options.mode, str(options.target), options.service) == ("tcp", f"127.0.0.1:{port}", name)


def test_worker_is_checked_against_its_coordinator(root: Path) -> None:
    """The worker is checked in worker mode at the address that it is given."""
    worker = services_of(root, "microservices", COORDINATOR_PORT="6000")["worker"]
    options = checked_by(worker)
    assert (options.mode, options.service) == ("worker", "worker")
    assert str(options.target) == worker["environment"]["COORDINATOR_ADDR"] == "coordinator:6000"


@every_service
def test_healthchecks_keep_the_locked_times(root: Path, design: str, name: str) -> None:
    """Every 5 s, 2 s at most, 12 retries, 20 s to start."""
    check = services_of(root, design)[name]["healthcheck"]
    assert {key: value for key, value in check.items() if key != "test"} == TIMING
    assert checked_by({"healthcheck": check}).timeout_ms < 2_000


def test_a_port_that_is_set_is_set_everywhere(root: Path) -> None:
    """Another port moves the service, those who call it, its healthcheck and what is published."""
    ports = {f"{name.upper()}_PORT": str(port + 1_000) for name, port in PORTS.items()}
    services = services_of(root, "microservices", **ports)
    text = json.dumps(services)
    assert not [port for port in PORTS.values() if str(port) in text]
    assert services["gateway"]["ports"] == ["127.0.0.1:51051:51051"]


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("gateway", {"job", "queue", "result"}),
        ("coordinator", {"job", "queue", "result"}),
        ("worker", {"coordinator"}),
        ("job", set()),
        ("queue", set()),
        ("result", set()),
    ],
)
def test_services_wait_for_the_health_of_those_they_call(root: Path, name: str, needed: set[str]) -> None:
    """A service starts once those that it calls are healthy; owners wait for nobody."""
    after = services_of(root, "microservices")[name].get("depends_on", {})
    assert after == {other: {"condition": "service_healthy"} for other in needed}


@pytest.mark.parametrize("index", range(6))
def test_nodes_know_their_place(root: Path, index: int) -> None:
    """Node i of six has index i, and the port by which the list of nodes knows it."""
    command = words(services_of(root, "monolith")[f"node-{index}"]["command"])
    values = [command[command.index(option) + 1] for option in ("--index", "--nodes", "--port")]
    assert values == [str(index), "6", str(50061 + index)]


@every_service
def test_containers_may_do_little(root: Path, design: str, name: str) -> None:
    """No capabilities, nothing to write to, and a user that is not root."""
    service = services_of(root, design)[name]
    assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
    assert dict(instructions(root))["USER"] == "holdfast"


def test_tokens_fit_the_roles(root: Path, tmp_path: Path) -> None:
    """The file of tokens gives each caller its own, and those who are called the hashes of all."""
    path = tmp_path / ".env"
    assert service_tokens.main([str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    variables = dict(line.split("=", 1) for line in path.read_text().splitlines())
    services = services_of(root, "microservices", **variables)
    told = {name: read(name, services[name]["environment"]) for name in ROLES}
    tokens = {name: environment.token for name, environment in told.items() if environment.token}
    hashes = {role: [hash_of(token)] for role, token in tokens.items()}
    assert {*tokens} == {"gateway", "coordinator", "worker"}
    assert {name: hashes_of(told[name]) for name in ("job", "queue", "coordinator", "result")} == dict.fromkeys(
        ("job", "queue", "coordinator", "result"), hashes
    )


def test_tokens_that_are_there_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of tokens is never written over."""
    path = tmp_path / ".env"
    path.write_text("kept")
    assert service_tokens.main([str(path)]) == 1
    assert path.read_text() == "kept"
    assert "File exists" in capsys.readouterr().err


def test_base_image_is_an_argument(root: Path) -> None:
    """Both stages are built on the image that is asked for, by default a usual one."""
    made = instructions(root)
    assert made[0] == ("ARG", "BASE_IMAGE=python:3.11-slim")
    assert [rest for name, rest in made if name == "FROM"] == ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"]


def test_wheelhouse_is_explained_with_what_builds_the_project(root: Path) -> None:
    """The command that fills a wheelhouse names the pinned builder, which an image without an index needs too."""
    (builder,) = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"pip download --dest deploy/wheelhouse {builder} ." in (root / "deploy/README.md").read_text()
