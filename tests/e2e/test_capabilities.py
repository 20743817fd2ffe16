"""Every interface lists the capabilities of a topology, and a worker reports at its start what its app lacks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.core.capabilities import LEDGER, MONOLITH, Capabilities, Capability
from holdfast.errors import ExitCode, UnimplementedError
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.zookeeper import ZOOKEEPER
from tests.e2e.fleet import Fleet
from tests.e2e.http_requests import ask
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually
from tests.zookeeper import Place

APP = """
from holdfast import Holdfast, current

app = Holdfast({url!r})

@app.job
def step() -> None:
    current().progress(0.5, "half")
"""
SCHEDULE = """
@app.schedule("0 3 * * *", name="nightly")
def tidy() -> None: ...
"""
UP: dict[str, tuple[tuple[str, ...], Capabilities]] = {
    "server": (("server", "--data", "memory://", "--port", "0"), LEDGER),
    "microservices": (("up", "--topology", "microservices", "--port", "0"), MICROSERVICES),
    "monolith": (("up", "--topology", "monolith", "--port", "0", "--nodes", "2"), MONOLITH),
}


class Site:
    """One topology that is ready."""

    def __init__(self, fleet: Fleet, loaded: LoadedProgram, name: str) -> None:
        arguments, self.declared = UP[name]
        ready = fleet.start(*arguments).ready()
        self.target: str = ready["grpc"]
        self.http: str = ready["http"]
        self.shell = LoadedShell(loaded, fleet.folder, self.target)


@pytest.fixture(scope="module", params=[*UP])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram
) -> Iterator[Site]:
    """Each topology in memory, on free ports."""
    with loaded_fleet_in(tmp_path_factory.mktemp(request.param), loaded) as fleet:
        yield Site(fleet, loaded, request.param)


def names(capabilities: Capabilities) -> list[str]:
    """Returns the names of the capabilities as they are on the wire."""
    return sorted(one.value for one in capabilities.present)


def test_every_interface_says_the_same(site: Site) -> None:
    """HTTP, `holdfast stats --json` and the SDK list the declared capabilities, and HTTP explains each missing one."""
    over_http = ask(site.http, "/api/v1/capabilities").json
    assert (over_http["backend"], over_http["capabilities"]) == (site.declared.backend, names(site.declared))
    assert over_http["missing"] == {one.value: text for one, text in site.declared.missing.items()}
    printed = json.loads(site.shell.run("stats", "--json").stdout)
    assert {key: printed[key] for key in over_http} == over_http
    with Holdfast(f"holdfast://{site.target}") as app:
        told = app.capabilities()
        assert (told.backend, names(told), told.version) == (
            over_http["backend"], over_http["capabilities"], over_http["version"],
        )  # fmt: skip


def test_stats_work_without_administration(site: Site) -> None:
    """`holdfast stats` prints the backend and its missing capabilities, and counts only with ADMINISTRATION."""
    shown = site.shell.run("stats")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert any(line.startswith("backend ") and site.declared.backend in line for line in lines)
    assert any(line.startswith("queued ") for line in lines) == site.declared.has(Capability.ADMINISTRATION)
    for missing in site.declared.missing:
        assert any(line.startswith(f"no {missing.value} ") for line in lines)


@pytest.fixture
def url(zookeeper: Place) -> str:
    """The URL of an app and its workers over ZooKeeper."""
    return f"zk://{zookeeper.hosts}{zookeeper.root}?lease_ms=2000"


def test_missing_capabilities_of_an_ensemble_are_listed_without_a_server(
    url: str, loaded: LoadedProgram, tmp_path: Path
) -> None:
    """Commands and apps list ZooKeeper's capabilities without a Holdfast server."""
    printed = json.loads(LoadedShell(loaded, tmp_path, url).run("stats", "--json").stdout)
    assert (printed["backend"], printed["capabilities"]) == ("zookeeper", names(ZOOKEEPER))
    with Holdfast(url) as app:
        assert names(app.capabilities()) == names(ZOOKEEPER)


def test_worker_of_an_app_with_schedules_does_not_start_over_zookeeper(
    url: str, loaded: LoadedProgram, tmp_path: Path
) -> None:
    """`holdfast worker -A` exits with code 4 and names the schedules and the backend that lacks them."""
    (tmp_path / "shop.py").write_text(APP.format(url=url) + SCHEDULE)
    ended = LoadedShell(loaded, tmp_path).run("worker", "-A", "shop:app")
    assert (ended.returncode, ended.stdout) == (ExitCode.REFUSED, "")
    assert "1 schedules (nightly), and the zookeeper backend has no schedules" in ended.stderr


def test_worker_in_a_program_with_schedules_does_not_start_over_zookeeper(url: str) -> None:
    """`app.worker()` raises in the background and in the foreground, and the app can still submit."""
    with Holdfast(url) as app:

        @app.schedule("0 3 * * *", name="nightly")
        def tidy() -> None: ...

        with pytest.raises(UnimplementedError, match="nightly"), app.worker():
            pass
        with pytest.raises(HoldfastError, match="nightly"):
            app.worker().run()
        assert tidy.submit().status().name == "QUEUED"


def test_worker_says_at_its_start_that_notes_are_dropped(fleet: Fleet, url: str) -> None:
    """A worker logs one warning that names progress() and log(), and runs its jobs."""
    (fleet.folder / "shop.py").write_text(APP.format(url=url))
    worker = fleet.start("worker", "-A", "shop:app")
    worker.ready()
    (warning,) = eventually(lambda: worker.lines("capability_missing"))
    assert (warning["level"], "progress() and log()" in warning["message"]) == ("warning", True)
    with Holdfast(url) as app:
        assert app.submit("step").result(timeout_s=60) is None
    assert worker.stop() == 0


def test_services_do_not_start_with_an_app_that_has_schedules(loaded_fleet: Fleet) -> None:
    """`holdfast up --topology microservices -A` exits with code 4, and the log names the schedules."""
    (loaded_fleet.folder / "shop.py").write_text(APP.format(url="memory://") + SCHEDULE)
    program = loaded_fleet.start("up", "--topology", "microservices", "--port", "0", "-A", "shop:app")
    assert program.wait() == ExitCode.REFUSED
    assert "1 schedules (nightly), and the microservices backend has no schedules" in program.log
