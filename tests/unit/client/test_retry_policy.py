"""The fixed retry profile, with time and randomness controlled by the test."""

import pytest

from holdfast import limits
from holdfast.client.retry_policy import RETRYABLE, RetryPolicy, ceiling_ms
from holdfast.errors import Code, HoldfastError, error_class


class Flaky:
    """Fails some times with one code, then returns; records the delays between the calls."""

    def __init__(self, code: Code, failures: int) -> None:
        self.calls = 0
        self.slept_ms: list[float] = []
        self.drawn: list[tuple[float, float]] = []
        self._code, self._failures = code, failures

    async def once(self) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise error_class(self._code)("not now")
        return "answer"

    async def sleep(self, delay_ms: float) -> None:
        self.slept_ms.append(delay_ms)

    def draw(self, low: float, high: float) -> float:
        self.drawn.append((low, high))
        return high

    async def call(self, *, is_repeatable: bool = True) -> str:
        return await RetryPolicy(self.draw, self.sleep).call(self.once, is_repeatable=is_repeatable)


async def test_waits_start_at_100_ms_and_double() -> None:
    """The longest delays are 100, 200 and 400 ms."""
    flaky = Flaky(Code.UNAVAILABLE, failures=3)
    assert await flaky.call() == "answer"
    assert flaky.slept_ms == [100, 200, 400]


async def test_jitter_is_full() -> None:
    """Each delay is drawn between zero and its ceiling."""
    flaky = Flaky(Code.UNAVAILABLE, failures=3)
    await flaky.call()
    assert flaky.drawn == [(0, 100), (0, 200), (0, 400)]


def test_no_wait_is_above_a_second() -> None:
    """The ceiling of a delay stays at 1000 ms, whatever the number of attempts."""
    assert max(ceiling_ms(attempt) for attempt in range(1, 50)) == limits.RETRY_MS_MAX == 1_000


async def test_four_attempts_are_made_in_all() -> None:
    """The caller gets the error of the fourth attempt."""
    flaky = Flaky(Code.UNAVAILABLE, failures=9)
    with pytest.raises(HoldfastError):
        await flaky.call()
    assert flaky.calls == 4


@pytest.mark.parametrize("code", list(Code))
async def test_only_passing_errors_are_retried(code: Code) -> None:
    """Only UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED are retried."""
    flaky = Flaky(code, failures=1)
    if code in RETRYABLE:
        assert await flaky.call() == "answer"
    else:
        with pytest.raises(HoldfastError):
            await flaky.call()
        assert flaky.calls == 1
    assert {code.value for code in RETRYABLE} == {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}


async def test_call_that_is_not_repeatable_is_tried_once() -> None:
    """A call that is not repeatable fails with its first error."""
    flaky = Flaky(Code.UNAVAILABLE, failures=1)
    with pytest.raises(HoldfastError):
        await flaky.call(is_repeatable=False)
    assert flaky.calls == 1
