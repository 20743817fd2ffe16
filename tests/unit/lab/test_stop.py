"""Ending a run of the lab by a signal."""

import asyncio
import signal

import pytest

from holdfast_lab.cli import lab


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_does_not_interrupt_the_cleanup(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first signal ends the work and is confirmed; a second one does not interrupt the clean-up."""
    done: list[str] = []

    async def work() -> str:
        signal.raise_signal(number)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            signal.raise_signal(number)
            await asyncio.sleep(0.01)  # a second cancellation would end it here
            done.append("mended")
        return "judged"

    assert asyncio.run(lab._until_stopped(work())) == "judged"
    assert done == ["mended"]
    assert capsys.readouterr().err.count("stopping: ") == 1
