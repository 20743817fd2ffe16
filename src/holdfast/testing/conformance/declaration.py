"""Declaration: the capabilities that a backend reports are those by which the suite selects its tests."""

from holdfast.core.capabilities import LEDGER, Capability
from holdfast.testing.conformance.workplace import Workplace


class TestDeclaration:
    """The capabilities that clients and workers receive."""

    async def test_backend_reports_the_capabilities_that_select_its_tests(self, place: Workplace) -> None:
        """The capabilities that the backend reports are those by which its tests are selected."""
        told = await place.harness.backend.capabilities()
        # Totals depend on the process that serves HTTP, and no test here needs them.
        assert told.without(Capability.TOTALS).present == place.harness.declared.without(Capability.TOTALS).present
        assert (told.backend, bool(told.version)) == (place.harness.declared.backend, True)

    async def test_first_directive_carries_the_capabilities(self, place: Workplace) -> None:
        """The first directive carries the backend's capabilities, before the worker has requested a lease."""
        hand = await place.worker()
        told = hand.welcome.capabilities or LEDGER
        for capability in (Capability.NOTES, Capability.SCHEDULES):
            assert told.has(capability) == place.harness.declared.has(capability)
