"""Tokens, TLS and refusals of real processes, from the command line."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc
import pytest

from holdfast import Holdfast
from holdfast.errors import PermissionDeniedError, UnauthenticatedError
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Wire
from tests.e2e.shell import Done
from tests.e2e.wait_until import eventually
from tests.integration.made_certificates import Authority


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def run(fleet: Fleet, *arguments: str, **environment: str) -> Done:
    """Runs one command to its end."""
    program = fleet.start(*arguments, **environment)
    return Done(arguments, program.wait(), program.output, program.log)


def token_of(fleet: Fleet, scopes: str, name: str, *more: str, data: str = "data") -> str:
    """Creates a token and returns it."""
    done = run(fleet, "token", "create", "--scopes", scopes, "--name", name, "--data", data, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused_with(code: grpc.StatusCode, wire: Wire) -> Callable[[], bool]:
    """Returns a function that tells whether a submit is refused with this code."""

    def is_refused() -> bool:
        try:
            wire.submit()
        except grpc.RpcError as error:
            return bool(error.code() is code)
        return False

    return is_refused


def test_server_closes_while_it_runs_and_its_own_worker_goes_on(fleet: Fleet) -> None:
    """After the first token is created, a running server refuses calls without a token, and its worker continues."""
    program, wire = fleet.up()
    first = wire.submit()
    wire.wait_for(first.job_id)
    token = token_of(fleet, "submit,read", "app")
    eventually(refused_with(grpc.StatusCode.UNAUTHENTICATED, wire), what="a server that requires a token")
    with Holdfast(f"holdfast://{program.ready()['grpc']}", token=token) as app:
        assert app.submit("echo", {"text": "hello"}).result(timeout_s=30) is not None
        assert token not in repr(app)
    assert program.is_running()
    assert token not in program.log
    assert program.stop() == 0


def test_scopes_expiry_and_revocation_count_for_every_client(fleet: Fleet) -> None:
    """SDK, commands and workers are refused beyond the scopes of their tokens, with a reason."""
    reader, submitter = token_of(fleet, "read", "reader"), token_of(fleet, "submit", "submitter")
    program, _ = fleet.server()
    address = program.ready()["grpc"]
    with Holdfast(f"holdfast://{reader}@{address}") as app:
        assert app.url == f"holdfast://********@{address}"
        with pytest.raises(PermissionDeniedError, match="needs the scope submit"):
            app.submit("echo", {})
    with Holdfast(f"holdfast://{address}") as app, pytest.raises(UnauthenticatedError, match="expected a token"):
        app.submit("echo", {})
    connect = ("--connect", address)
    assert run(fleet, "job", "submit", "echo", *connect, HOLDFAST_TOKEN=submitter).returncode == 0
    denied = run(fleet, "job", "list", *connect, HOLDFAST_TOKEN=submitter)
    assert (denied.returncode, "needs the scope read" in denied.stderr) == (4, True)
    listed = run(fleet, "job", "list", "--json", "--connect", f"holdfast://{reader}@{address}")
    assert listed.returncode == 0
    bare = run(fleet, "worker", *connect)
    assert (bare.returncode, "expected a token" in bare.stderr) == (4, True)
    known = token_of(fleet, "work", "worker")
    eventually(
        lambda: run(fleet, "job", "list", *connect, HOLDFAST_TOKEN=known).stderr,
        lambda said: "needs the scope read" in said,
        what="a server that knows the new token",
    )
    worker = fleet.start("worker", *connect, HOLDFAST_TOKEN=known)
    worker.ready()
    assert run(fleet, "token", "revoke", "worker", "--data", "data").returncode == 0
    assert worker.wait() == 4
    assert "the token is unknown to this server" in worker.log
    names = [row["name"] for row in json.loads(run(fleet, "token", "list", "--data", "data", "--json").stdout)]
    assert names == ["reader", "submitter"]


def test_token_in_a_file_is_shown_to_the_server(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, workers and the SDK read the token from the file in HOLDFAST_TOKEN_FILE."""
    path = fleet.folder / "token"
    path.write_text(token_of(fleet, "admin", "operator") + "\n")
    address = fleet.server()[0].ready()["grpc"]
    with_file = {"HOLDFAST_TOKEN_FILE": str(path)}
    assert run(fleet, "job", "list", "--connect", address, **with_file).returncode == 0
    fleet.start("worker", "--connect", address, **with_file).ready()
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(path))
    with Holdfast(f"holdfast://{address}") as app:
        assert app.submit("echo", {"text": "hello"}).result(timeout_s=30) is not None


def test_secrets_are_masked(fleet: Fleet) -> None:
    """Neither `config show` nor error messages print a token."""
    secret = "hf_very-secret"
    shown = run(
        fleet, "config", "show", "--origin", HOLDFAST_TOKEN=secret, HOLDFAST_CONNECT=f"holdfast://{secret}@127.0.0.1:1"
    )
    assert shown.returncode == 0
    assert "********@127.0.0.1:1" in shown.stdout
    wrong = run(fleet, "job", "list", "--connect", f"holdfast://{secret}@nowhere")
    assert wrong.returncode == 2
    away = run(fleet, "job", "list", "--connect", f"holdfast://{secret}@127.0.0.1:1")
    assert away.returncode == 3
    assert secret not in shown.stdout + shown.stderr + wrong.stderr + away.stderr


def test_damaged_tokens_stop_the_start(fleet: Fleet) -> None:
    """A server with a damaged tokens.json does not start and changes nothing."""
    token_of(fleet, "admin", "one")
    path = fleet.folder / "data" / "tokens.json"
    path.write_text(path.read_text()[:-5])
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    server = fleet.start("server", "--data", "data", "--port", "0")
    assert server.wait() == 4
    assert "tokens.json' is damaged" in server.log
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before


def test_beyond_loopback_a_server_wants_tls_and_tokens(fleet: Fleet, tmp_path: Path) -> None:
    """On a non-loopback address a server requires TLS and tokens and names what is missing, and runs jobs with both."""
    ours = Authority(tmp_path / "papers", "ours")
    certificate, key = ours.sign("server")
    everywhere = ("--host", "0.0.0.0", "--port", "0", "--data", "data")  # noqa: S104 - the address under test
    tls = ("--tls-cert", certificate, "--tls-key", key)
    bare = run(fleet, "server", *everywhere)
    assert (bare.returncode, "set --tls-cert and --tls-key" in bare.stderr) == (2, True)
    open_to_all = run(fleet, "server", *everywhere, *tls)
    assert (open_to_all.returncode, "holdfast token create" in open_to_all.stderr) == (4, True)
    token = token_of(fleet, "submit,read", "app")
    measured = run(fleet, "server", *everywhere, *tls, "--metrics-port", "9")
    assert (measured.returncode, "--metrics-port" in measured.stderr) == (2, True)
    up = fleet.start("up", *everywhere, *tls)
    port = up.ready()["grpc"].rpartition(":")[2]
    with Holdfast(f"holdfasts://{token}@localhost:{port}?ca={ours.path}") as app:
        assert app.submit("echo", {"n": 1}).result(timeout_s=30) is not None
    listed = run(fleet, "job", "list", "--connect", f"holdfasts://{token}@127.0.0.1:{port}?ca={ours.path}")
    assert (listed.returncode, "DONE" in listed.stdout) == (0, True)
    assert up.stop() == 0


def test_nodes_share_the_tokens_of_their_directory(fleet: Fleet) -> None:
    """All nodes accept the tokens in the file of their directory, also one with the submit scope only."""
    submitter, both = token_of(fleet, "submit", "submitter"), token_of(fleet, "submit,read", "both")
    up = fleet.start("up", "--topology", "monolith", "--nodes", "2", "--port", "0", "--data", "data")
    addresses = up.ready()["grpc"]
    with Holdfast(f"holdfast://{addresses}", token=submitter) as app:
        made = [app.submit("echo", {"n": number}) for number in range(4)]
    with Holdfast(f"holdfast://{addresses}", token=both) as app:
        assert all(app.job_handle(job.id).result(timeout_s=30) is not None for job in made)
    with Holdfast(f"holdfast://{addresses}") as app, pytest.raises(UnauthenticatedError):
        app.submit("echo", {})


def test_gateway_of_services_asks_for_the_tokens_of_the_directory(fleet: Fleet) -> None:
    """The gateway of microservices requires the tokens of the directory, and the topology's worker needs none."""
    submitter, both = token_of(fleet, "submit", "submitter"), token_of(fleet, "submit,read", "both")
    up = fleet.start("up", "--topology", "microservices", "--port", "0", "--data", "data")
    address = up.ready()["grpc"]
    with Holdfast(f"holdfast://{address}", token=submitter) as app:
        made = app.submit("echo", {"n": 1})
    with Holdfast(f"holdfast://{address}", token=both) as app:
        assert app.job_handle(made.id).result(timeout_s=30) is not None
    with Holdfast(f"holdfast://{address}") as app, pytest.raises(UnauthenticatedError):
        app.submit("echo", {})
    assert submitter not in up.log
    assert both not in up.log


def test_flood_of_submits_expires_no_lease(fleet: Fleet) -> None:
    """A worker keeps its lease while submits from the same address exceed the rate limit."""
    program, wire = fleet.server("--rate-limit", "50", "--lease-ms", "2000", "--heartbeat-ms", "150")
    address = program.ready()["grpc"]
    fleet.worker(address, "--slots", "1")
    job_id = wire.submit(ms=5_000).job_id
    over = Event()
    with ThreadPoolExecutor(4) as pool:
        floods = [pool.submit(flood, fleet.wire(address), over) for _ in range(4)]
        eventually(lambda: "DONE" in run(fleet, "job", "get", job_id, "--connect", "data").stdout)
        over.set()
        codes = {code for one in floods for code in one.result()}
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    history = json.loads(run(fleet, "job", "history", job_id, "--connect", "data", "--json").stdout)
    assert [entry["what"] for entry in history].count("granted") == 1, history


def flood(wire: Wire, over: Event) -> set[grpc.StatusCode]:
    """Submits as fast as possible until stopped, and returns the status codes."""
    codes: set[grpc.StatusCode] = set()
    while not over.is_set():
        try:
            wire.submit("nobody-runs-this")
            codes.add(grpc.StatusCode.OK)
        except grpc.RpcError as error:
            codes.add(error.code())
    return codes
