"""What topologies declare, and how it is said."""

import pytest

from holdfast.core.capabilities import DECLARED, LEDGER, MEANINGS, Capabilities, Capability


def test_every_capability_has_a_meaning() -> None:
    """The list and its meanings name the same, in the same order."""
    assert list(MEANINGS) == list(Capability)


@pytest.mark.parametrize("declared", DECLARED, ids=lambda one: one.backend)
def test_sentence_of_what_is_missing_names_backend_and_capability(declared: Capabilities) -> None:
    """Each capability is either there or has a sentence."""
    assert declared.present | set(declared.missing) == set(Capability)
    for capability, sentence in declared.missing.items():
        assert sentence.startswith(f"the {declared.backend} backend has no {capability.value.replace('_', ' ')} (")


def test_ledger_has_everything() -> None:
    """What other topologies lack is found there."""
    assert LEDGER.missing == {}


def test_process_without_counts_has_no_totals() -> None:
    """Totals are what the process that serves has counted; the rest is as declared."""
    served = LEDGER.served("1.2", has_totals=False)
    assert (served.version, [*served.missing]) == ("1.2", [Capability.TOTALS])
    assert LEDGER.served("1.2", has_totals=True).missing == {}
