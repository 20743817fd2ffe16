"""How a run of the lab is ended from outside."""

import asyncio
import signal

import pytest

from holdfast.cli import lab


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_stop_does_not_disturb_who_tidies_up(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """The first one ends the work and is answered; whoever is impatient does not leave anything broken behind."""
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
    assert capsys.readouterr().err.count("ending: ") == 1
