"""A whole run of a cluster: made from the seed, stepped to the number of events, then healed and drained."""

import random
from dataclasses import dataclass, field

from holdfast_lab.simulation.clients import SimulatedClient
from holdfast_lab.simulation.cluster_faults import ClusterFaults
from holdfast_lab.simulation.cluster_node import ClusterParts, ShardParts, SimulatedNode
from holdfast_lab.simulation.cluster_settings import ClusterSettings, draw_cluster
from holdfast_lab.simulation.cluster_snapshots import SimulatedSnapshots
from holdfast_lab.simulation.database_rows import Change, FrameInserted, InboxDeleted, InboxInserted, LeaderSet
from holdfast_lab.simulation.jobs import draw_templates
from holdfast_lab.simulation.model import ModelViolation
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.probes import ShardProbe
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.shard_front import ShardFront
from holdfast_lab.simulation.shard_log import ShardLog
from holdfast_lab.simulation.simulated_database import SimulatedDatabase, Statements, Transaction
from holdfast_lab.simulation.unary_workers import UnaryWorker
from holdfast_lab.simulation.violation import Violation, require
from holdfast_lab.simulation.workers import StreamingWorker

#: Once the faults are over, everything must be in order within this simulated time.
DRAIN_MS_MAX = 120_000
_DRAIN_STEPS_MAX = 400_000
_QUIET_STEPS = 64
_NOTIFIED = 0.4
_WAKES = 0.5
_WAKE_US = (0, 4_000)
_NOTIFY_US = (20, 2_000)
_INBOX_MS_MEAN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOutcome:
    """The outcome of a run; `failure` is empty if every guarantee held."""

    settings: ClusterSettings
    failure: str
    steps: int
    simulated_ms: int
    digest: str
    fired: dict[str, int]
    done: dict[str, int]
    tail: list[str] = field(default_factory=list)


class ClusterWorld:
    """One run."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.clock = SimulatedScheduler()
        self.database = SimulatedDatabase(self.clock, _stream(settings, "database"), settings.shards)
        self.database.on_confirmed = self._on_confirmed
        self._minted = self._inserted = 0
        #: The rows of the inbox that can not be lost any more.
        self._inbox_rows = set[int]()
        self._rng = _stream(settings, "world")
        self.shards = {shard: self._shard(shard) for shard in range(settings.shards)}
        parts = ClusterParts(self.clock, settings, self.database, self.shards, self._mint)
        self.nodes = [SimulatedNode(f"node-{number}", parts) for number in range(settings.nodes)]
        self.checks = {shard: ResponseChecks(part.log.witness) for shard, part in self.shards.items()}
        self.clients: list[SimulatedClient] = []
        self._nets = {shard: self._actors(shard) for shard in self.shards}
        self._probes = [
            ShardProbe(self.clock, part.front, self.checks[shard], _stream(settings, f"probe {shard}"), self._mint)
            for shard, part in self.shards.items()
        ]
        self.faults = ClusterFaults(self.clock, settings, self.database, self.nodes)

    def _shard(self, shard: int) -> ShardParts:
        actors = self.settings.actors(shard)
        front = ShardFront(_stream(self.settings, f"front {shard}"), self.database.fired)
        return ShardParts(ShardLog(actors), SimulatedSnapshots(), front, actors)

    def _actors(self, shard: int) -> Network:
        part, checks = self.shards[shard], self.checks[shard]
        settings = part.settings
        net = Network(self.clock, part.front, settings, _stream(self.settings, f"network {shard}"))
        part.front.net = net
        templates = draw_templates(settings)
        self.clients += [
            SimulatedClient(f"client-{shard}-{number}", net, checks, settings, templates)
            for number in range(settings.clients)
        ]
        for number, name in enumerate(settings.lasting_workers):
            StreamingWorker(name, net, checks, settings, knows_all=number == 0)
        for number in range(settings.unary):
            UnaryWorker(f"poller-{number}", net, checks, settings)
        return net

    def _mint(self) -> str:
        self._minted += 1
        return f"made-{self._minted}"

    # -- the database

    def _on_confirmed(self, change: Change) -> None:
        """Takes in what can not be lost any more, and notifies the nodes, most of the time."""
        if isinstance(change, FrameInserted):
            self.shards[change.shard].log.take(change.frame)
            self._notify(change.shard)
        elif isinstance(change, InboxInserted):
            self._inbox_rows.add(change.row)
        elif isinstance(change, InboxDeleted):
            for part in self.shards.values():
                if change.row in part.log.moved:
                    part.log.delete(change.row)
        elif isinstance(change, LeaderSet):
            self._on_leader(change)
            if change.row.successor:
                self._notify(None)

    def _on_leader(self, change: LeaderSet) -> None:
        """Notes the epoch; after a takeover, sometimes wakes up the old leader at once."""
        log = self.shards[change.shard].log
        is_new = change.row.epoch != log.epoch
        log.lead(change.row.epoch)
        for node in self.nodes if is_new else ():
            if self._rng.random() < _WAKES:
                node.wake_if_leading(change.shard, self._rng.randint(*_WAKE_US))

    def _notify(self, shard: int | None) -> None:
        for node in self.nodes:
            process = node.process
            if process is not None and self._rng.random() < _NOTIFIED:
                wake = node.member.wake if shard is None else node.followers[shard].wake
                process.enter(self._rng.randint(*_NOTIFY_US), "notify", wake)

    def _insert_inbox(self) -> None:
        """Commits a row of the inbox, as a user's own transaction does."""
        if self._inserted >= self.settings.inbox_rows:
            return
        if self.database.is_up:
            self._inserted += 1
            row, shard = self._inserted, self._rng.randrange(self.settings.shards)
            self.database.begin(lambda tx: self._inserting(tx, InboxInserted(row, shard, b"")), lambda _: None)
        self.clock.after(int(self._rng.expovariate(1) * _INBOX_MS_MEAN * 1_000), "inbox", self._insert_inbox)

    def _inserting(self, transaction: Transaction, row: InboxInserted) -> Statements:
        return (yield from self.database.commit(transaction, [row]))

    # -- stepping

    def run(self) -> ClusterOutcome:
        """Runs to the end, or to the first violation."""
        failure = ""
        try:
            for node in self.nodes:
                node.boot()
            self._insert_inbox()
            self._steps_with_faults()
            self._drain()
        except (Violation, ModelViolation) as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - any exception of the program is a finding
            failure = f"{type(error).__name__}: {error} ({_where(error)})"
        finally:
            for node in self.nodes:
                node.end()
        return self._outcome(failure)

    def _steps_with_faults(self) -> None:
        clock = self.clock
        while clock.steps < self.settings.events and clock.step():
            if clock.steps % _QUIET_STEPS == 0:
                clock.mark = sum(part.log.witness.position for part in self.shards.values())
            if clock.steps % self.settings.check_steps == 0:
                self._check()

    def _check(self) -> None:
        """Compares everything that is at the end of its log."""
        for shard, part in self.shards.items():
            part.log.check_inbox()
            server = part.front.newest
            if server is not None and server.epoch == self.database.rows.leaders[shard].epoch:
                ledger = server.coordinator.ledger
                require(ledger.position >= part.log.witness.position, "the leader is behind the log of its shard")
                if ledger.position == part.log.witness.position and server.coordinator.is_serving:
                    part.log.witness.compare(ledger)
        for node in self.nodes:
            node.check_followers()

    # -- the end

    def _drain(self) -> None:
        """Ends all faults; within the bound, every shard has a leader and no unfinished job, and all nodes follow."""
        self.faults.stop()
        for net in self._nets.values():
            net.is_healed = True
        for client in self.clients:
            client.is_stopped = True
        for probe in self._probes:
            probe.is_stopped = True
        self._set_clocks()
        clock = self.clock
        until_us, until_steps = clock.now_us + DRAIN_MS_MAX * 1_000, clock.steps + _DRAIN_STEPS_MAX
        while not (clock.steps % _QUIET_STEPS == 0 and not self._left_over()):
            if clock.now_us >= until_us or clock.steps >= until_steps or not clock.step():
                raise Violation(f"not drained after {clock.steady_ms()} ms: {self._left_over()}")
        self._check()
        for checks in self.checks.values():
            checks.check_kept()

    def _set_clocks(self) -> None:
        """Sets all wall clocks to a time at which no log time is ahead, and every delayed job is due."""
        models = [part.log.witness.model for part in self.shards.values()]
        times = [job.not_before_ms for model in models for job in model.jobs.values()]
        self.clock.set_wall(max([self.clock.wall_ms(), *times, *(model.last_ms for model in models)]))

    def _left_over(self) -> str:
        """Returns what is not in order yet; empty if everything is."""
        for shard, part in self.shards.items():
            server, log = part.front.newest, part.log
            if server is None or server.epoch != self.database.rows.leaders[shard].epoch:
                return f"shard {shard} has no leader"
            coordinator = server.coordinator
            if log.witness.backlog or coordinator.commit.synced != log.witness.position:
                return f"{log.witness.backlog} jobs of shard {shard}: {log.witness.model.unfinished[:3]}"
            if not coordinator.commit.is_idle:
                return f"shard {shard} is writing"
            if any(place == shard for place, _ in self.database.rows.inbox.values()):
                return f"rows are in the inbox of shard {shard}"
        return self._left_over_of_nodes()

    def _left_over_of_nodes(self) -> str:
        led = list[int]()
        for node in self.nodes:
            if node.process is None:
                return f"{node.name} is down"
            led.append(len(node.servers))
            for shard, follower in node.followers.items():
                is_behind = follower.position != self.shards[shard].log.witness.position
                if shard not in node.servers and (is_behind or not follower.can_lead):
                    return f"{node.name} is at position {follower.position} of shard {shard}"
        moved = set[int]().union(*(part.log.moved for part in self.shards.values()))
        if moved != self._inbox_rows:
            return f"the rows {sorted(self._inbox_rows - moved)} of the inbox are no jobs"
        return f"the nodes lead {led} shards" if max(led) - min(led) > 1 else ""

    def _outcome(self, failure: str) -> ClusterOutcome:
        done: dict[str, int] = {}
        for checks, part in zip(self.checks.values(), self.shards.values(), strict=True):
            for name, count in {**checks.answers, **part.log.witness.kinds}.items():
                done[name] = done.get(name, 0) + count
        done["moved from the inbox"] = sum(len(part.log.moved) for part in self.shards.values())
        return ClusterOutcome(
            settings=self.settings,
            failure=failure,
            steps=self.clock.steps,
            simulated_ms=self.clock.steady_ms(),
            digest=self.clock.digest(),
            fired=dict(sorted(self.database.counts.items())),
            done=dict(sorted(done.items())),
            tail=[f"{at_us / 1_000:12.3f} ms  {kind}" for at_us, kind in self.clock.tail],
        )


def run_cluster(settings: ClusterSettings) -> ClusterOutcome:
    """Runs one simulation of a cluster."""
    return ClusterWorld(settings).run()


def run_cluster_seed(seed: int, events: int) -> ClusterOutcome:
    """Runs the cluster of a seed."""
    return run_cluster(draw_cluster(seed, events))


def _stream(settings: ClusterSettings, name: str) -> random.Random:
    return random.Random(f"cluster {name}/{settings.seed}")


def _where(error: BaseException) -> str:
    """Returns the innermost line of the program that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
