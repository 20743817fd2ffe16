"""`holdfast journal backup` of a running server, and `holdfast journal restore`."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.core.events import Granted
from holdfast.journal.backup import Progress
from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.topologies.backup import take_backup
from holdfast.topologies.backup_restore import restore_backup
from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.history import events_in, of_kind, refused_reports
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Done, Shell
from tests.e2e.wait_until import eventually

SMALL = ("--segment-bytes", "65536", "--snapshot-bytes", "65536")


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def shell(loaded: LoadedProgram, tmp_path: Path) -> Shell:
    return LoadedShell(loaded, tmp_path)


def told(done: Done) -> dict[str, Any]:
    """Returns the JSON output of a command; fails if the command failed."""
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def back_up(shell: Shell, target: str = "backup", data: str = "data") -> dict[str, Any]:
    """Makes a backup from this process while the server runs in another."""
    made = take_backup(shell.folder / data, shell.folder / target, now_ms=SystemClock().wall_ms(), watch=quiet)
    answer: dict[str, Any] = msgspec.to_builtins(made)
    return answer


def restore(shell: Shell, backup: str = "backup", data: str = "restored", later_ms: int = 0) -> dict[str, Any]:
    """Restores a backup from this process, with the clock ahead by `later_ms`."""
    folder, now_ms = shell.folder, SystemClock().wall_ms() + later_ms
    made = restore_backup(folder / backup, folder / data, None, now_ms=now_ms, watch=quiet)
    answer: dict[str, Any] = msgspec.to_builtins(made)
    return answer


def quiet(_stage: str) -> Progress:
    return lambda _done, _total: None


def batch(wire: Wire, name: str, count: int = 20, size: int = 500) -> list[str]:
    jobs = [own.NewJob(payload=bytes(size), request_id=f"{name}-{n}") for n in range(count)]
    return list(wire.batch(own.SubmitJobsRequest(templates=[own.JobTemplate(type="sim")], jobs=jobs)).job_ids)


class Load:
    """Submits, finishes and cancels jobs on its own connection until it is stopped."""

    def __init__(self, fleet: Fleet, target: str) -> None:
        self._wire = fleet.wire(target)
        self._is_over = threading.Event()
        self.accepted: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while not self._is_over.is_set():
            ids = batch(self._wire, f"load-{count}")
            self.accepted += ids
            self._wire.cancel(ids[0])
            work = self._wire.fetch("loaded")
            self._wire.report("loaded", work.job_id, token=work.token, output_bytes=bytes(100))
            count += 1

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_backup_under_load_holds_everything_accepted_before_it_began(fleet: Fleet, shell: Shell) -> None:
    """A backup under load has all jobs accepted before it began, and its digest is the journal's at its position."""
    _, wire = fleet.server(*SMALL, "--log-level", "warning")
    data = shell.folder / "data"
    load = Load(fleet, wire.target)
    try:
        eventually(lambda: list(data.glob("snapshot-*.snap")) and len(list(data.glob("*.seg"))) > 2)
        before = list(load.accepted)
        made = told(shell.run("journal", "backup", "data", "backup", "--json"))
        eventually(lambda: len(load.accepted) > len(before))
    finally:
        load.end()
    position = made["copied"]["position"]
    then = told(shell.run("journal", "digest", "data", "--at", str(position), "--json"))
    assert then == {"digest": made["digest"], "position": position}
    assert not list(shell.folder.glob("*.partial-*"))
    restored = told(shell.run("journal", "restore", "backup", "restored", "--json"))
    assert (restored["position"], restored["digest"]) == (position, made["digest"])
    assert shell.run("journal", "verify", "restored").returncode == 0
    _, again = fleet.server(data="restored")
    kept = {job.job_id for job in again.all_jobs()}
    assert kept >= set(before)
    assert sum(restored["jobs"].values()) == len(kept)


def test_report_under_a_token_from_after_the_backup_is_refused(fleet: Fleet, shell: Shell) -> None:
    """A restored server refuses reports with old tokens, even from the worker that holds the new lease of the job."""
    port = stable_port()
    server, wire = fleet.server(port=port)
    running, waiting = wire.new(), wire.new()
    held = wire.fetch("w")
    assert held.job_id == running
    back_up(shell)
    lost = wire.fetch("w")
    unknown = wire.new()
    later = wire.fetch("v")
    assert (lost.job_id, later.job_id) == (waiting, unknown)
    server.kill()
    shutil.move(shell.folder / "data", shell.folder / "lost")
    assert restore(shell, data="data")["leases_ended"] == 1
    server, wire = fleet.server(port=port)
    again = {work.job_id: work.token for work in (wire.fetch("w"), wire.fetch("w"))}
    assert set(again) == {running, waiting}
    assert min(again.values()) > max(held.token, lost.token, later.token)
    for worker, old in (("w", held), ("w", lost), ("v", later)):
        assert not wire.report(worker, old.job_id, token=old.token, output_bytes=b"of the past")
    assert wire.status(waiting).status == public.RUNNING
    for job_id, token in again.items():
        assert wire.report("w", job_id, token=token, output_bytes=b"of today")
        assert wire.result(job_id).output_bytes == b"of today"
    server.stop()
    found = events_in(shell.folder / "data")
    assert sorted(refused_reports(found)) == sorted(
        [(running, "STALE_TOKEN"), (waiting, "STALE_TOKEN"), (unknown, "UNKNOWN_JOB")]
    )


def test_second_restore_of_one_backup_repeats_nothing_of_the_first(fleet: Fleet, shell: Shell) -> None:
    """A second restore of one backup starts above all tokens, positions and epochs that the first restore has used."""
    server, wire = fleet.server()
    job_id = wire.new()
    server.stop()
    back_up(shell)
    lines = []
    for data, later_ms in (("first", 0), ("second", 2_000)):  # a restore and an opening use up one epoch each
        restore(shell, data=data, later_ms=later_ms)
        server, wire = fleet.server(data=data)
        token = wire.fetch("w").token
        stats = told(shell.run("stats", "--connect", wire.target, "--json"))
        lines.append((token, stats["position"], stats["epoch"], stats["cluster_id"]))
        assert wire.status(job_id).status == public.RUNNING
        server.stop()
    first, second = lines
    assert all(late > early for early, late in zip(first[:3], second[:3], strict=True))
    assert first[3] != second[3]


def test_worker_that_outlives_a_restore_gives_its_work_up_and_begins_anew(fleet: Fleet, shell: Shell) -> None:
    """A worker that outlives a restore drops its running attempt, and the restored server grants the job again."""
    port = stable_port()
    server, wire = fleet.server(port=port)
    job_id = wire.new(ms=1_500)
    back_up(shell)
    fleet.worker(wire.target, "--worker-id", "survivor")
    wire.wait_for(job_id, public.RUNNING, public.DONE)  # DONE on a slow machine; the restore loses it too
    server.kill()
    shutil.move(shell.folder / "data", shell.folder / "lost")
    (shell.folder / "lost" / "holdfast.sock").unlink()
    old = [event.first_token for event in of_kind(events_in(shell.folder / "lost"), Granted)]
    restore(shell, data="data")
    server, wire = fleet.server(port=port)
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    grants = list(of_kind(events_in(shell.folder / "data"), Granted))
    assert [event.job_ids for event in grants] == [[job_id]]
    assert grants[0].first_token > max(old)


def test_reader_of_events_from_before_is_told_so(fleet: Fleet, shell: Shell) -> None:
    """A reader with a position from after the backup gets an error, even once the restored journal is longer."""
    server, wire = fleet.server()
    batch(wire, "kept", 3)
    back_up(shell)
    for number in range(5):
        batch(wire, f"lost-{number}", 1)
    lost = told(shell.run("stats", "--connect", wire.target, "--json"))["position"]
    server.kill()
    begins = restore(shell)
    assert begins["position"] < lost
    _, wire = fleet.server(data="restored")
    for number in range(lost + 5):
        batch(wire, f"new-{number}", 1)
    asked = shell.run("events", "--after", str(lost), "--limit", "1", "--connect", wire.target)
    assert (asked.returncode, asked.stdout) == (4, "")
    assert "no longer kept" in asked.stderr


def test_past_moment_is_restored(fleet: Fleet, shell: Shell) -> None:
    """Restore with --at keeps the jobs up to that position, drops later ones and refuses a position past the end."""
    server, wire = fleet.server()
    early = batch(wire, "early", 2)
    server.stop()
    position = told(shell.run("journal", "digest", "data", "--json"))["position"]
    server, wire = fleet.server()
    batch(wire, "late", 2)
    server.stop()
    end = told(shell.run("journal", "backup", "data", "backup.tar", "--json"))["copied"]["position"]
    beyond = shell.run("journal", "restore", "backup.tar", "beyond", "--at", str(end + 1))
    assert (beyond.returncode, (shell.folder / "beyond").exists()) == (4, False)
    restored = told(shell.run("journal", "restore", "backup.tar", "then", "--at", str(position), "--json"))
    assert (restored["position"], restored["jobs"]) == (position, {"QUEUED": 2})
    _, wire = fleet.server(data="then")
    assert {job.job_id for job in wire.all_jobs()} == set(early)


def test_tokens_of_a_server_come_back_and_a_backup_is_not_served(fleet: Fleet, shell: Shell) -> None:
    """A restore warns that tokens revoked since the backup work again, and a server refuses to serve a backup."""
    assert shell.run("token", "create", "--name", "ci", "--scopes", "admin", "--data", "data").returncode == 0
    fleet.start("server", "--data", "data", "--port", "0").ready()
    back_up(shell)
    before = {path.name: path.read_bytes() for path in (shell.folder / "backup").iterdir()}
    served = shell.run("server", "--data", "backup", "--port", "0")
    assert (served.returncode, "holdfast journal restore" in served.stderr) == (4, True)
    assert {path.name: path.read_bytes() for path in (shell.folder / "backup").iterdir()} == before
    done = shell.run("journal", "restore", "backup", "restored")
    assert (done.returncode, "revoked since" in done.stderr) == (0, True)
    assert (shell.folder / "restored" / "tokens.json").read_bytes() == before["tokens.json"]


def test_services_are_backed_up_one_by_one(fleet: Fleet, shell: Shell) -> None:
    """Backup of a microservices directory names one command per owner, and a job that ran at that time runs again."""
    up = ("up", "--topology", "microservices", "--port", "0", "--data")
    program = fleet.start(*up, "data")
    wire = fleet.wire(program.ready()["grpc"])
    done, running = wire.new(), wire.new(ms=60_000)
    wire.wait_for(done)
    wire.wait_for(running, public.RUNNING)
    refused = shell.run("journal", "backup", "data", "all")
    lines = [line.split()[-2:] for line in refused.stderr.splitlines() if "journal backup data/" in line]
    assert (refused.returncode, [Path(source).name for source, _ in lines]) == (4, ["job", "queue", "result"])
    (shell.folder / "all").mkdir()
    for source, target in lines:
        assert back_up(shell, target, source)["kind"] == Path(source).name
    program.kill()
    (shell.folder / "again").mkdir()
    ended = [restore(shell, target, f"again/{Path(target).name}")["leases_ended"] for _, target in lines]
    assert ended == [1, 0, 0]
    wire = fleet.wire(fleet.start(*up, "again").ready()["grpc"])
    assert wire.status(done).status == public.DONE
    wire.wait_for(running, public.RUNNING)
