"""The conformance suite: tests of the behaviour that all backends share, against the ports of `holdfast.ports`.

To run the suite on a backend, write a `Harness` (see `harness.py`) and a test module. The module imports the test
classes of this package and the fixture `place` of `fixtures.py`, and defines a fixture `harness`:

    pytest.register_assert_rewrite("holdfast.testing.conformance")

    from holdfast.testing.conformance.fixtures import place
    from holdfast.testing.conformance.submission import TestSubmitting

    @pytest.fixture
    async def harness() -> AsyncIterator[Harness]: ...

Each test drives the sessions of its workers by hand, so that it decides what is sent and when. No test sleeps: a test
waits for the message that it expects. If it expects none, it waits for an answer that would have come after it. Every
test has its own queue, type and names, so a backend may serve many tests at a time.

A test that needs more than the two ports declares that with `needs`, and is skipped if the harness does not have it.
"""
