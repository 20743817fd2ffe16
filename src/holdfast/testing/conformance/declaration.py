"""Declaration: what a backend says that it can do is what the rest of the suite holds it to."""

from holdfast.core.capabilities import LEDGER, Capability
from holdfast.testing.conformance.workplace import Workplace


class TestDeclaration:
    """What clients and workers are told of the backend."""

    async def test_backend_says_what_the_suite_relies_on(self, place: Workplace) -> None:
        """Its capabilities, asked for over its own interface, are those by which its tests were chosen."""
        told = await place.harness.backend.capabilities()
        # Totals are a matter of the process that serves HTTP, and of no test here.
        assert told.without(Capability.TOTALS).present == place.harness.declared.without(Capability.TOTALS).present
        assert (told.backend, bool(told.version)) == (place.harness.declared.backend, True)

    async def test_worker_is_told_what_is_missing(self, place: Workplace) -> None:
        """The first directive names what its backend lacks, before the worker has asked for a job."""
        hand = await place.worker()
        told = hand.welcome.capabilities or LEDGER
        for capability in (Capability.NOTES, Capability.SCHEDULES):
            assert told.has(capability) == place.harness.declared.has(capability)
