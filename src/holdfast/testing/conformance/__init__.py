"""The behaviour that every backend has, as tests written against the ports of `holdfast.ports`.

To run them on a backend, write a `Harness` for it (see `harness.py`) and a test module that imports the classes of this
package's modules and the fixture `place` of `fixtures.py`, with a fixture `harness` of its own:

    pytest.register_assert_rewrite("holdfast.testing.conformance")

    from holdfast.testing.conformance.fixtures import place
    from holdfast.testing.conformance.submitting import TestSubmitting

    @pytest.fixture
    async def harness() -> AsyncIterator[Harness]: ...

Workers are sessions driven by hand, so that each test decides what is said and when. Nothing sleeps: a test waits for
what it expects to hear, and where it expects nothing, for an answer that would have come after it. Every test has a
queue, a type and names of its own, so a backend may serve many tests at a time.

A test that needs more than the two ports says so with `needs`, and is skipped where the harness does not declare it.
"""
