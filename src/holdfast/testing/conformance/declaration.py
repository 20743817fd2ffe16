"""Declaration: the capabilities that a backend reports are those by which the suite selects its tests."""

from holdfast.core.capabilities import LEDGER, Capability
from holdfast.testing.conformance.workplace import Workplace


class TestDeclaration:
    """The capabilities that clients and workers receive."""

    async def test_backend_says_what_the_suite_relies_on(self, place: Workplace) -> None:
        """The capabilities that the backend reports are those by which its tests are selected."""
        told = await place.harness.backend.capabilities()
        # Totals depend on the process that serves HTTP, and no test here needs them.
        assert told.without(Capability.TOTALS).present == place.harness.declared.without(Capability.TOTALS).present
        assert (told.backend, bool(told.version)) == (place.harness.declared.backend, True)

    async def test_worker_is_told_what_is_missing(self, place: Workplace) -> None:
        """The first directive carries the backend's capabilities, before the worker has requested a lease."""
        hand = await place.worker()
        told = hand.welcome.capabilities or LEDGER
        for capability in (Capability.NOTES, Capability.SCHEDULES):
            assert told.has(capability) == place.harness.declared.has(capability)
