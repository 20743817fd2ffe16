"""A worker of an app that runs on a thread of its program."""

import threading

from holdfast import Holdfast
from holdfast.limits import NAME_CHARS_MAX
from holdfast.worker.worker_name import fresh_name, process_name
from tests.e2e.wait_until import DEADLINE_S


def test_worker_that_runs_in_a_thread_is_stopped_from_another_and_can_run_again() -> None:
    """`run` returns when another thread calls `stop`, and the worker can run again."""
    with Holdfast("memory://") as app:
        app.job(name="len")(len)
        worker = app.worker()
        for _ in range(2):
            thread = threading.Thread(target=worker.run)
            thread.start()
            assert app.submit("len", {"obj": "four"}).result(timeout_s=DEADLINE_S) == len("four")
            worker.stop()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def test_workers_of_one_process_have_names_of_their_own() -> None:
    """The process name is constant, and every fresh worker name is different."""
    assert process_name() == process_name()
    names = {fresh_name() for _ in range(20)}
    assert len(names) == 20
    assert max(map(len, names)) <= NAME_CHARS_MAX
