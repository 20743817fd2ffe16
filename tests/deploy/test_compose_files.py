"""The compose files follow the locked rules; nothing is started here."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast.cli.main import program as holdfast_program
from holdfast.server.auth.service_tokens import hash_of
from holdfast.settings_sources import secret_of
from holdfast.topologies.microservices.services.environment import ROLES, hashes_of, read
from scripts import credentials, healthcheck
from tests.deploy.compose_files import instructions, mounts_of, networks_of, services_of, volumes_of, words

DESIGNS = ("microservices", "monolith")
OWNERS = {"JOB_SERVICE_ADDR": "job:50052", "QUEUE_SERVICE_ADDR": "queue:50053", "RESULT_SERVICE_ADDR": "result:50055"}
#: The variables of each service in the document, beside the shared ones.
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
#: The paths of each role's credentials in its container.
CALLING = {role: {"SERVICE_TOKEN_FILE": f"/credentials/{role}/token"} for role in ("gateway", "coordinator", "worker")}
HASHES = {"SERVICE_TOKEN_HASHES_FILE": "/credentials/callers/hashes"}
CALLED = dict.fromkeys(("job", "queue", "coordinator", "result"), HASHES)
DATA = "/var/lib/holdfast"
OWNING = ("job", "queue", "result")
ONE_SHOT = "credentials"
PORTS = {"gateway": 50051, "job": 50052, "queue": 50053, "coordinator": 50054, "result": 50055}
NODES = {f"node-{index}": 50061 + index for index in range(6)}
TIMING = {"interval": "5s", "timeout": "2s", "retries": 12, "start_period": "20s"}
EVERY = [
    (design, name)
    for design, names in (("microservices", VARIABLES), ("monolith", NODES), ("server", ("server", "worker")))
    for name in names
]

every_service = pytest.mark.parametrize(("design", "name"), EVERY)


def checked_by(service: dict[str, Any]) -> Any:  # noqa: ANN401 - argparse's namespace
    """Returns the parsed arguments of the healthcheck."""
    check = words(service["healthcheck"]["test"])
    assert check[:4] == ["CMD", "python", "-m", "scripts.healthcheck"]
    return healthcheck.parse(check[4:])


@pytest.mark.parametrize(("design", "names"), [("microservices", [*VARIABLES]), ("monolith", [*NODES])])
def test_each_design_has_its_six_services(root: Path, design: str, names: list[str]) -> None:
    """Each design has exactly its six services, beside the one-shot container that creates credentials."""
    assert sorted(services_of(root, design).keys() - {ONE_SHOT}) == sorted(names)


@every_service
def test_each_container_has_one_command(root: Path, design: str, name: str) -> None:
    """A container has one startup command, of this program, and the image has no entrypoint."""
    service = services_of(root, design)[name]
    assert "entrypoint" not in service
    assert "ENTRYPOINT" not in dict(instructions(root))
    assert words(service["command"])[0] == "holdfast"
    wanted = {"microservices": ["service", name], "monolith": ["node", "--index"], "server": [name]}[design]
    assert words(service["command"])[1 : len(wanted) + 1] == wanted


@every_service
def test_every_option_exists(root: Path, design: str, name: str) -> None:
    """The program can parse every command of the compose files."""
    program, *arguments = words(services_of(root, design)[name]["command"])
    command: Any = typer.main.get_command(holdfast_program())
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(program, arguments)


@every_service
def test_services_bind_every_interface_in_plain_sight(root: Path, design: str, name: str) -> None:
    """Services listen on all interfaces of their network with --insecure, and a worker listens on none."""
    command = words(services_of(root, design)[name]["command"])
    if name == "worker":
        assert not {"--host", "--insecure"} & set(command)
    else:
        assert command[command.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - inside the network of the stack
        assert "--insecure" in command


@pytest.mark.parametrize("design", DESIGNS)
def test_ports_are_published_on_loopback_alone(root: Path, design: str) -> None:
    """Only the gateway, or the six nodes, are published, and only on loopback."""
    published = {name: service["ports"] for name, service in services_of(root, design).items() if "ports" in service}
    open_ports = {"gateway": PORTS["gateway"]} if design == "microservices" else NODES
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in open_ports.items()}


def test_services_are_on_a_network_of_their_own(root: Path) -> None:
    """The network of the services is internal, and only the gateway is also on another one."""
    services = services_of(root, "microservices")
    assert networks_of(root, "microservices")["inside"] == {"internal": True}
    assert services["gateway"]["networks"] == ["inside", "outside"]
    assert all(services[name]["networks"] == ["inside"] for name in VARIABLES if name != "gateway")


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_and_defaults_are_those_of_the_document(root: Path, name: str) -> None:
    """A service has the variables of its role with their defaults, and the paths of its credentials."""
    given = services_of(root, "microservices")[name]["environment"]
    said = {key: str(value) for key, value in given.items()}
    assert said == SHARED | VARIABLES[name] | CALLING.get(name, {}) | CALLED.get(name, {})


@pytest.mark.parametrize("name", VARIABLES)
def test_each_role_understands_its_variables(root: Path, name: str) -> None:
    """The defaults in compose equal the defaults of the role."""
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
    """A listening service is checked in tcp mode on loopback, under its own name."""
    for name, port in ports.items():
        options = checked_by(services_of(root, design)[name])
        assert (options.mode, str(options.target), options.service) == ("tcp", f"127.0.0.1:{port}", name)


def test_worker_is_checked_against_its_coordinator(root: Path) -> None:
    """The worker is checked in worker mode at its coordinator's address."""
    worker = services_of(root, "microservices", COORDINATOR_PORT="6000")["worker"]
    options = checked_by(worker)
    assert (options.mode, options.service) == ("worker", "worker")
    assert str(options.target) == worker["environment"]["COORDINATOR_ADDR"] == "coordinator:6000"


@every_service
def test_healthchecks_keep_the_locked_times(root: Path, design: str, name: str) -> None:
    """A healthcheck has an interval of 5 s, a timeout of 2 s, 12 retries and a start period of 20 s."""
    check = services_of(root, design)[name]["healthcheck"]
    assert {key: value for key, value in check.items() if key != "test"} == TIMING
    assert checked_by({"healthcheck": check}).timeout_ms < 2_000


def test_a_port_that_is_set_is_set_everywhere(root: Path) -> None:
    """A changed port changes the service, its callers, its healthcheck and the published port."""
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
    """A service starts once the services that it calls are healthy, and owners wait for their credentials."""
    after = dict(services_of(root, "microservices")[name]["depends_on"])
    credentials_first = after.pop(ONE_SHOT, None)
    assert after == {other: {"condition": "service_healthy"} for other in needed}
    assert needed or credentials_first == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("index", range(6))
def test_nodes_know_their_place(root: Path, index: int) -> None:
    """Node i of six has index i, and the matching port."""
    command = words(services_of(root, "monolith")[f"node-{index}"]["command"])
    values = [command[command.index(option) + 1] for option in ("--index", "--nodes", "--port")]
    assert values == [str(index), "6", str(50061 + index)]


@every_service
def test_containers_may_do_little(root: Path, design: str, name: str) -> None:
    """A container has no capabilities, a read-only root and a user that is not root."""
    service = services_of(root, design)[name]
    assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
    assert dict(instructions(root))["USER"] == "holdfast"


@pytest.mark.parametrize(
    ("design", "owners"), [("server", ["server"]), ("microservices", OWNING), ("monolith", [*NODES])]
)
def test_jobs_are_kept_on_volumes(root: Path, design: str, owners: list[str]) -> None:
    """Each service that owns data stores it in a directory on a named volume of its own."""
    services, kept = services_of(root, design), set[str]()
    for name in owners:
        service = services[name]
        told = words(service["command"])
        data = told[told.index("--data") + 1] if "--data" in told else service["environment"].get("HOLDFAST_DATA")
        (volume,) = [volume for volume, path in mounts_of(service).items() if path == data]
        assert data == DATA
        kept.add(volume)
    assert len(kept) == len(owners)
    assert kept <= volumes_of(root, design)


@pytest.mark.parametrize(("design", "owners"), [("microservices", OWNING), ("monolith", [*NODES])])
def test_memory_is_for_the_comparison_alone(root: Path, design: str, owners: list[str]) -> None:
    """The comparison's file removes the directory from each command, and changes nothing else."""
    durable, compared = services_of(root, design), services_of(root, f"{design}-memory")
    for name in owners:
        durable[name]["command"] = words(durable[name]["command"])[:-2]
    assert compared == durable


@pytest.mark.parametrize("design", ["server", "microservices"])
def test_credentials_are_made_by_a_container_that_ends(root: Path, design: str, tmp_path: Path) -> None:
    """Before the first service starts, one container without a network writes the credentials to volumes."""
    services = services_of(root, design)
    making = services[ONE_SHOT]
    program, module, name, *arguments = words(making["command"])
    assert (program, module, name) == ("python", "-m", "scripts.credentials")
    assert making["network_mode"] == "none"
    here = [str(tmp_path / argument.lstrip("/")) if argument.startswith("/") else argument for argument in arguments]
    assert credentials.main(here) == 0
    written = {f"/{path.relative_to(tmp_path)}" for path in tmp_path.glob("**/*") if path.is_file()}
    named = {
        str(value)
        for service in services.values()
        for key, value in service.get("environment", {}).items()
        if key.endswith("_FILE")
    }
    assert named == {path for path in written if not path.startswith(DATA)}
    assert {str(Path(path).parent) for path in written} == {*mounts_of(making).values()}


@pytest.mark.parametrize("design", ["server", "microservices"])
def test_containers_see_their_own_credentials_alone(root: Path, design: str) -> None:
    """A service mounts only its own credentials, read-only."""
    for name, service in services_of(root, design).items():
        files = [value for key, value in service.get("environment", {}).items() if key.endswith("_FILE")]
        mounted = [path for path in mounts_of(service).values() if path.startswith("/credentials/")]
        if name != ONE_SHOT:
            assert sorted(mounted) == sorted(f"{Path(file).parent}:ro" for file in files)


def test_tokens_fit_the_roles(root: Path, tmp_path: Path) -> None:
    """Each calling role reads a token of its own, and each called role reads the hashes of all."""
    assert credentials.main(["services", str(tmp_path)]) == 0
    told = {name: read(name, _at(tmp_path, environment)) for name, environment in _environments(root).items()}
    tokens = {name: environment.token for name, environment in told.items() if environment.token}
    assert tokens.keys() == CALLING.keys()
    assert len({*tokens.values()}) == len(tokens)
    hashes = {role: [hash_of(token)] for role, token in tokens.items()}
    assert {name: hashes_of(told[name]) for name in CALLED} == dict.fromkeys(CALLED, hashes)


def _environments(root: Path) -> dict[str, dict[str, str]]:
    return {name: services_of(root, "microservices")[name]["environment"] for name in ROLES}


def _at(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a service whose credentials are in this folder."""
    files = {
        key: str(folder / Path(value).relative_to("/credentials")) if key.endswith("_FILE") else str(value)
        for key, value in environment.items()
    }
    return {**files, **{name: secret_of(name, files) for name in ("SERVICE_TOKEN", "SERVICE_TOKEN_HASHES")}}


def test_base_image_is_an_argument(root: Path) -> None:
    """Both stages are built on the base image of the argument, by default a common one."""
    made = instructions(root)
    assert made[0] == ("ARG", "BASE_IMAGE=python:3.11-slim")
    assert [rest for name, rest in made if name == "FROM"] == ["${BASE_IMAGE} AS build", "${BASE_IMAGE}"]


def test_wheelhouse_instructions_name_the_build_backend(root: Path) -> None:
    """The command that fills a wheelhouse names the pinned build backend, which an image without an index needs too."""
    (builder,) = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"pip download --dest deploy/wheelhouse {builder} '.[server]'" in (root / "deploy/README.md").read_text()
