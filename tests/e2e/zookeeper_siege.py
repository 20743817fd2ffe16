"""An ensemble of three servers, a gateway and two workers around it, and the one who breaks them."""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.waiting import eventually, pause
from tests.zookeeper import differences

#: As short as sessions may be: whoever is killed is missed soon.
SESSION_MS = 2_000
WORKERS = 2
#: Where the nodes of jobs are; nobody changes them once all jobs have ended.
OF_JOBS = ("jobs", "waiting", "delayed", "held", "keys", "unique", "index", "ended", "failed")


class Siege:
    """Breaks one thing at a time, and mends it again."""

    def __init__(self, fleet: Fleet, ensemble: PrivateZooKeeper, root: str, draw: random.Random) -> None:
        self._fleet = fleet
        self._ensemble = ensemble
        self._root = root
        self._draw = draw
        self._url = f"zk://{ensemble.hosts}{root}?lease_ms={SESSION_MS}"
        self.faults: Counter[str] = Counter()
        #: Of the one who looks at the nodes.
        self.client = KazooClient(ensemble.hosts, timeout=10)
        self.client.start(timeout=30)
        port = str(stable_port())
        self.gateway = fleet.start(
            *("zookeeper", "gateway", "--ensemble", f"{ensemble.hosts}{root}"),
            *("--port", port, "--no-http", "--rate-limit", "0"),
        )
        self.target: str = self.gateway.ready()["grpc"]
        self._started = 0
        self.workers: list[Program] = []
        self._names: dict[int, str] = {}
        for _ in range(WORKERS):
            self._new_worker()
        for worker in self.workers:
            worker.ready()

    def _new_worker(self) -> None:
        self._started += 1
        name = f"w-{self._started}"
        self.workers.append(self._fleet.start("worker", "--connect", self._url, "--worker-id", name, "--slots", "4"))
        self._names[self.workers[-1].pid] = f"w:{name}"  # as its node is called

    def children(self, path: str) -> list[str]:
        """The names of the nodes below one of the root's, as a server knows them that is up to date."""
        self.client.retry(self.client.sync, self._root)
        names: list[str] = self.client.retry(self.client.get_children, f"{self._root}/{path}")
        return names

    def held(self) -> dict[str, int]:
        """How many jobs each worker has, as the nodes say."""
        found = {}
        for worker in self.children("held"):
            with contextlib.suppress(Exception):  # its last one went meanwhile, and the node with it
                found[worker] = len(self.children(f"held/{worker}"))
        return found

    # -- what is broken

    def kill_follower(self, go_on: Callable[[], None]) -> None:
        """One of those who follow dies, and comes back."""
        self._kill_server(lambda leader: (leader + self._draw.choice((1, 2))) % 3, go_on)

    def kill_leader(self, go_on: Callable[[], None]) -> None:
        """Who leads dies, and comes back as a follower."""
        self._kill_server(lambda leader: leader, go_on)

    def _kill_server(self, choose: Callable[[int], int], go_on: Callable[[], None]) -> None:
        victim = choose(self._leader())
        self._ensemble.kill(victim)
        go_on()
        self._ensemble.start_server(victim)
        self._ensemble.serving(victim)

    def stop_server(self, go_on: Callable[[], None]) -> None:
        """One of them stands still while its connections stay open, and goes on."""
        victim = self._draw.choice((self._leader(), self._draw.randrange(3)))
        self._ensemble.pause(victim)
        try:
            go_on()
        finally:
            self._ensemble.resume(victim)
        self._ensemble.serving(victim)

    def expire_sessions(self, go_on: Callable[[], None]) -> None:
        """Everybody stands still until the ensemble has given all of them up, and then goes on."""
        for worker in self.workers:
            worker.ready()
        programs, before = [self.gateway, *self.workers], self._attached()
        eventually(lambda: any(self.held().values()), what="a job that runs")
        for program in programs:
            program.signal(signal.SIGSTOP)
        try:
            eventually(lambda: self.children("workers") + self.children("stewards"), lambda names: names == [])
        finally:
            for program in programs:
                program.signal(signal.SIGCONT)
        go_on()
        eventually(
            self._attached,
            lambda now: all(count > before[name] for name, count in now.items()),
            what="another session of every worker",
        )

    def _attached(self) -> dict[int, int]:
        """How many sessions each worker has had."""
        return {worker.pid: len(worker.lines("attached")) for worker in self.workers}

    def kill_worker_at_work(self, go_on: Callable[[], None]) -> None:
        """A worker that has jobs dies, and another one comes."""
        at_work = eventually(lambda: [self._living()[name] for name in self._holding()], what="a job that runs")
        self._kill_worker(self._draw.choice(at_work))
        go_on()

    def kill_worker_that_bids(self, go_on: Callable[[], None]) -> None:
        """A worker dies in the instant in which it takes a job."""
        before = self.held()
        took = eventually(
            lambda: [name for name, count in self._holding().items() if count != before.get(name)], what="a bid"
        )
        pause(self._draw.uniform(0, 0.02))
        self._kill_worker(self._living()[self._draw.choice(took)])
        go_on()

    def _living(self) -> dict[str, Program]:
        """The workers by their names; what those before them held may still be there."""
        return {self._names[worker.pid]: worker for worker in self.workers}

    def _holding(self) -> dict[str, int]:
        living = self._living()
        return {name: count for name, count in self.held().items() if count and name in living}

    def _kill_worker(self, victim: Program) -> None:
        self.workers.remove(victim)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        self._new_worker()

    def _leader(self) -> int:
        leader = eventually(self._ensemble.leader, lambda found: found is not None, what="a leader")
        assert leader is not None
        return leader

    # -- the end

    def left(self) -> dict[str, list[str]]:
        """Nodes of jobs that wait or run, once none should."""
        waiting = [
            f"{lane}/{bucket}/{name}"
            for lane in self.children("waiting")
            for bucket in self._children_if_any(f"waiting/{lane}")
            for name in self._children_if_any(f"waiting/{lane}/{bucket}")
        ]
        delayed = [name for minute in self.children("delayed") for name in self._children_if_any(f"delayed/{minute}")]
        return {"waiting": waiting, "delayed": delayed, "held": [name for name, jobs in self.held().items() if jobs]}

    def _children_if_any(self, path: str) -> list[str]:
        """None of a node that was empty, and was dropped since it was seen."""
        with contextlib.suppress(NoNodeError):
            return self.children(path)
        return []

    def differences(self) -> list[str]:
        """Nodes of jobs that are not the same on every server, whatever their clients are told."""
        return differences(self._ensemble, [f"{self._root}/{top}" for top in OF_JOBS])

    def nodes_of(self, job_id: str) -> set[str]:
        """The names below a job's record."""
        return set(self.children(f"jobs/{job_id[:2]}/{job_id}"))

    def end(self) -> None:
        """Ends the one who looks; the fleet ends the others."""
        self.client.stop()
        self.client.close()


FAULTS: dict[str, Callable[[Siege, Callable[[], None]], None]] = {
    "follower killed": Siege.kill_follower,
    "leader killed": Siege.kill_leader,
    "server stopped": Siege.stop_server,
    "sessions expired": Siege.expire_sessions,
    "worker killed at work": Siege.kill_worker_at_work,
    "worker killed bidding": Siege.kill_worker_that_bids,
}
