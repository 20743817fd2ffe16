"""The client of beanstalkd's protocol that the comparison uses, against a real server."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import DeadlineExceededError, UnavailableError
from holdfast_lab.peers import stores, trial_environment
from holdfast_lab.peers.beanstalkd_client import BeanstalkdClient
from holdfast_lab.peers.stores import ONLY_SYNCED
from holdfast_lab.peers.workers import running_workers
from scripts.engines import BEANSTALKD
from tests.engines import require


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that syncs every write, in the test's folder."""
    require(BEANSTALKD)
    monkeypatch.setenv(trial_environment.FOLDER, str(tmp_path))
    with stores.running(stores.BEANSTALKD, tmp_path, ONLY_SYNCED) as found:
        monkeypatch.setenv(trial_environment.STORE, found)
        yield found


@pytest.fixture
def client(address: str) -> Iterator[BeanstalkdClient]:
    """A client that reserves what it puts."""
    client = BeanstalkdClient(address, puts_into="jobs", reserves_from="jobs")
    yield client
    client.close()


def test_jobs_come_back_in_order_with_any_bytes(client: BeanstalkdClient) -> None:
    """Jobs of one batch are reserved in their order and unchanged, also if they contain line ends or nothing."""
    bodies = [b"first", b"", b"line\r\nDELETED\r\n", bytes(range(256))]
    client.put(bodies)
    assert [client.reserve()[1] for _ in bodies] == bodies


def test_deleted_job_is_counted_but_not_kept(client: BeanstalkdClient) -> None:
    """The counters of a tube tell the jobs that ever were from those that are left; an unknown tube has none."""
    client.put([b"one", b"two", b"three"])
    number, _ = client.reserve()
    client.delete(number)
    found = client.statistics_of("jobs")
    assert (found["total-jobs"], found["current-jobs-ready"], found["current-jobs-reserved"]) == (3, 2, 0)
    assert client.statistics_of("no-such-tube") == {}


def test_empty_tube_times_out(client: BeanstalkdClient) -> None:
    """A caller that waits for a job of an empty tube gets an error of the kind that all our waits raise."""
    with pytest.raises(DeadlineExceededError):
        client.reserve_within(0)


def test_refusal_is_an_error_with_the_server_s_word(client: BeanstalkdClient) -> None:
    """An answer other than the expected one is an error that contains it."""
    with pytest.raises(UnavailableError, match="NOT_FOUND"):
        client.delete(b"12345")


def test_job_of_a_closed_connection_goes_to_the_next(address: str) -> None:
    """A job that was reserved over a connection that ends is reserved again by another one."""
    first, second = (BeanstalkdClient(address, puts_into="jobs", reserves_from="jobs") for _ in range(2))
    first.put([b"job"])
    reserved = first.reserve()
    first.close()
    assert second.reserve() == reserved
    second.close()


def test_waiting_caller_gets_the_job_that_another_puts(address: str, client: BeanstalkdClient) -> None:
    """A reserve that waits is answered by a put over another connection."""
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(client.reserve()[1]))
    waiting.start()
    other = BeanstalkdClient(address, puts_into="jobs", reserves_from="jobs")
    other.put([b"job"])
    waiting.join()
    other.close()
    assert found == [b"job"]


def test_caller_gets_its_own_result_and_passes_over_others(address: str) -> None:
    """With two workers, a caller waits for the result with its ticket while the results of other jobs come in."""
    del address
    from holdfast_lab.peers.systems.beanstalkd import Beanstalkd  # noqa: PLC0415 - it asks the program for its version

    system = Beanstalkd()
    with running_workers(system):
        done = system.count_done()
        system.enqueue_many(20)
        system.submit_and_wait()
        while system.count_kept():  # a job is deleted after its result is put
            pass
        assert system.count_done() - done == 21
    system.close()
