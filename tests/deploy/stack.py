"""One compose file that is up: its containers, their health, and their networks."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.deploy.compose_files import FILES
from tests.deploy.engine import Engine
from tests.deploy.images import BASE
from tests.e2e.waiting import eventually, pause

_COMPOSE = "docker-compose"
#: Ends before the others start.
_ONE_SHOT = "credentials"


class Stack:
    """A project of compose, driven by the commands that the documents name."""

    def __init__(self, engine: Engine, checkout: Path, name: str) -> None:
        self.engine = engine
        self.name = name
        self._checkout = checkout

    def compose(self, *arguments: str) -> str:
        """Runs compose on this file, at the top of the checkout."""
        chosen = ["--project-name", self.name]
        for file in FILES[self.name]:
            chosen += ["--file", f"deploy/{file}"]
        # No image is pulled: the base is the engine's own, and packages come from the wheelhouse.
        return self.engine.run(_COMPOSE, *chosen, *arguments, cwd=self._checkout, BASE_IMAGE=BASE, PIP_NO_INDEX="1")

    def up(self) -> None:
        """Starts everything and waits until all of it is healthy."""
        self.compose("up", "--detach")
        with self._explained():
            self.wait_until_healthy()

    def down(self) -> None:
        """Removes everything, with what is on the volumes."""
        self.compose("down", "--volumes")

    def up_again(self) -> None:
        """Removes the containers and networks, keeps the volumes, and starts everything anew."""
        self.compose("down")
        self.up()

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the engine knows of each service that stays up: `worker`, and `worker-2` of a second container."""
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
        """What the healthcheck of each service said last."""
        containers = self.containers().items()
        return {service: container["State"]["Health"]["Status"] for service, container in containers}

    def wait_until_healthy(self) -> None:
        def read() -> dict[str, str]:
            pause(0.2)  # they have something else to do
            return self.health()

        eventually(read, lambda health: set(health.values()) == {"healthy"}, "the health of all services")

    def run_in(self, service: str, *command: str) -> str:
        """What a command prints in the container of a service."""
        return self.engine.docker("exec", self.container(service)["Id"], *command)

    @contextlib.contextmanager
    def disconnected(self, service: str, network: str) -> Iterator[None]:
        """The container is off this network for a while, and comes back under the same name."""
        container, name = self.container(service)["Id"], f"{self.name}_{network}"
        self.engine.docker("network", "disconnect", name, container)
        try:
            yield
        finally:
            self.engine.docker("network", "connect", "--alias", service, name, container)

    @contextlib.contextmanager
    def moved(self, service: str, network: str) -> Iterator[None]:
        """As `disconnected`, but somebody else has its address when it comes back."""
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
        """What the engine still has of this project."""
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
    """All services of a compose file, healthy; gone afterwards."""
    stack = Stack(engine, checkout, name)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()
