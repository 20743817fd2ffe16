"""The work queue beanstalkd, raw: its text protocol, and a worker of ours."""

from itertools import count

from holdfast_lab.measure.processes import module
from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.beanstalkd_client import BeanstalkdClient
from holdfast_lab.peers.raw_job import NOTHING, decode_result, nothing_with, pauses
from holdfast_lab.peers.stores import BEANSTALKD, version
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.tasks.beanstalkd_worker import JOBS, RESULTS

_RESULT_S = 60
_KEPT = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried")


class Beanstalkd:
    """Jobs in one tube, results in another, where they stay."""

    about = SystemDescription(
        title="beanstalkd, raw",
        version=version(BEANSTALKD),
        settings="`beanstalkd -b … -f 0`; a minimal worker of ours over one connection, one job at a time: reserve, "
        "put the result into a tube, delete; no call for many: the `put`s of a batch in one write; the caller reserves "
        "its result",
        durability=BEANSTALKD.durability,
        after_a_kill="released by the server as soon as the connection of the killed worker breaks",
    )

    def __init__(self) -> None:
        self._client = BeanstalkdClient(trial_environment.store_address(), puts_into=JOBS, reserves_from=RESULTS)
        self._tickets = count(1)

    def worker_command(self) -> list[str]:
        return module("holdfast_lab.peers.tasks.beanstalkd_worker")

    def enqueue_many(self, count: int) -> None:
        self._client.put([NOTHING] * count)

    def submit_each(self, count: int) -> None:
        for _ in range(count):
            self._client.put([NOTHING])

    def enqueue_pauses(self, indexes: range, seconds: float) -> None:
        self._client.put(pauses(indexes, seconds))

    def submit_and_wait(self) -> None:
        ticket = next(self._tickets)
        self._client.put([nothing_with(ticket)])
        # Results of other jobs are passed over. None is deleted: the other systems keep results too.
        while decode_result(self._client.reserve_within(_RESULT_S)[1]).ticket != ticket:
            pass

    def count_done(self) -> int:
        return self._client.statistics_of(RESULTS).get("total-jobs", 0)

    def count_kept(self) -> int:
        jobs = self._client.statistics_of(JOBS)
        return sum(jobs.get(name, 0) for name in _KEPT)

    def close(self) -> None:
        self._client.close()
