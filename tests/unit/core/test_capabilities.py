"""The capabilities that topologies declare, and their descriptions."""

import pytest

from holdfast.core.capabilities import LEDGER, MEANINGS, Capabilities, Capability
from holdfast.topologies.table import declared


def test_every_capability_has_a_meaning() -> None:
    """Every capability has a meaning, listed in the same order."""
    assert list(MEANINGS) == list(Capability)


@pytest.mark.parametrize("topology", declared(), ids=lambda one: one.backend)
def test_sentence_for_a_missing_capability_names_it_and_the_backend(topology: Capabilities) -> None:
    """Each backend declares each capability as present, or as missing with a sentence that names both."""
    assert topology.present | set(topology.missing) == set(Capability)
    for capability, sentence in topology.missing.items():
        assert sentence.startswith(f"the {topology.backend} backend has no {capability.value.replace('_', ' ')} (")


def test_ledger_has_everything() -> None:
    """The ledger backend has every capability."""
    assert LEDGER.missing == {}


def test_process_without_counts_has_no_totals() -> None:
    """A process that counts nothing serves no totals, and its other capabilities are as declared."""
    served = LEDGER.served("1.2", has_totals=False)
    assert (served.version, [*served.missing]) == ("1.2", [Capability.TOTALS])
    assert LEDGER.served("1.2", has_totals=True).missing == {}
