"""One running compose project: its containers, their health, and their networks."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.deploy.compose_files import FILES
from tests.deploy.engine import Engine
from tests.deploy.images import BASE
from tests.e2e.wait_until import eventually, pause

_COMPOSE = "docker-compose"
#: Ends before the other services start.
_ONE_SHOT = "credentials"


class Stack:
    """A compose project, controlled by the commands of the documents."""

    def __init__(self, engine: Engine, checkout: Path, name: str) -> None:
        self.engine = engine
        self.name = name
        self._checkout = checkout

    def compose(self, *arguments: str) -> str:
        """Runs compose on this stack's files, at the root of the checkout."""
        chosen = ["--project-name", self.name]
        for file in FILES[self.name]:
            chosen += ["--file", f"deploy/{file}"]
        # No image is pulled: the base is already in the engine, and packages come from the wheelhouse.
        return self.engine.run(_COMPOSE, *chosen, *arguments, cwd=self._checkout, BASE_IMAGE=BASE, PIP_NO_INDEX="1")

    def up(self) -> None:
        """Starts all services and waits until they are healthy."""
        self.compose("up", "--detach")
        with self._explained():
            self.wait_until_healthy()

    def down(self) -> None:
        """Removes everything, including the volumes."""
        self.compose("down", "--volumes")

    def up_again(self) -> None:
        """Removes the containers and networks, keeps the volumes, and starts everything again."""
        self.compose("down")
        self.up()

    def containers(self) -> dict[str, dict[str, Any]]:
        """Returns the engine's data of each service that stays up: `worker`, and `worker-2` for a second container."""
        mine = json.dumps({"label": [f"com.docker.compose.project={self.name}"]})
        found = [row["Id"] for row in self.engine.ask(f"/containers/json?all=1&filters={quote(mine)}")]
        known = {_name(container): container for container in (self._known(id_) for id_ in found)}
        assert len(known) == len(found), f"expected containers of different names, got {[*known]}"
        return {name: container for name, container in known.items() if name != _ONE_SHOT}

    def _known(self, container: str) -> dict[str, Any]:
        known: dict[str, Any] = self.engine.ask(f"/containers/{container}/json")
        return known

    def container(self, service: str) -> dict[str, Any]:
        return self.containers()[service]

    def health(self) -> dict[str, str]:
        """Returns the last healthcheck status of each service."""
        containers = self.containers().items()
        return {service: container["State"]["Health"]["Status"] for service, container in containers}

    def wait_until_healthy(self) -> None:
        def read() -> dict[str, str]:
            pause(0.2)  # leaves the CPU to the containers
            return self.health()

        eventually(read, lambda health: set(health.values()) == {"healthy"}, "the health of all services")

    def run_in(self, service: str, *command: str) -> str:
        """Returns the output of a command in the container of a service."""
        return self.engine.docker("exec", self.container(service)["Id"], *command)

    @contextlib.contextmanager
    def disconnected(self, service: str, network: str) -> Iterator[None]:
        """Disconnects the container from this network for a block, and reconnects it under the same name."""
        container, name = self.container(service)["Id"], f"{self.name}_{network}"
        self.engine.docker("network", "disconnect", name, container)
        try:
            yield
        finally:
            self.engine.docker("network", "connect", "--alias", service, name, container)

    @contextlib.contextmanager
    def moved(self, service: str, network: str) -> Iterator[None]:
        """Like `disconnected`, but another container takes its address meanwhile."""
        before = self.address(service, network)
        with contextlib.ExitStack() as afterwards:
            with self.disconnected(service, network):
                name, image = f"{self.name}_{network}", self.container(service)["Image"]
                squatter = self.engine.docker("run", "--detach", "--network", name, image, "sleep", "infinity").strip()
                afterwards.callback(self.engine.docker, "rm", "--force", squatter)
                yield
            assert self.address(service, network) != before

    def address(self, service: str, network: str) -> str:
        networks = self.container(service)["NetworkSettings"]["Networks"]
        return str(networks[f"{self.name}_{network}"]["IPAddress"])

    def leftovers(self) -> list[str]:
        """Returns the containers, networks and volumes of this project."""
        return [*self._own("ps", "--all"), *self._own("network", "ls"), *self._own("volume", "ls")]

    def _own(self, *kind: str) -> list[str]:
        mine = f"label=com.docker.compose.project={self.name}"
        return self.engine.docker(*kind, "--quiet", "--filter", mine).split()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.compose('logs', '--no-color', '--tail', '50')}") from error


def _name(container: Mapping[str, Any]) -> str:
    labels = container["Config"]["Labels"]
    service, number = (str(labels[f"com.docker.compose.{label}"]) for label in ("service", "container-number"))
    return service if number == "1" else f"{service}-{number}"


@contextlib.contextmanager
def stack_up(engine: Engine, checkout: Path, name: str) -> Iterator[Stack]:
    """Runs all services of a stack, healthy, for a block."""
    stack = Stack(engine, checkout, name)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
