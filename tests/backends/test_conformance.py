"""The suite of behaviours, on every backend of `conftest.py`."""

from holdfast.testing.conformance.administering import TestAdministering
from holdfast.testing.conformance.canceling import TestCanceling
from holdfast.testing.conformance.declaration import TestDeclaration
from holdfast.testing.conformance.feeding import TestFeeding
from holdfast.testing.conformance.finding import TestFinding
from holdfast.testing.conformance.leasing import TestLeasing
from holdfast.testing.conformance.leaving import TestLeaving
from holdfast.testing.conformance.ordering import TestOrdering
from holdfast.testing.conformance.reading import TestReading
from holdfast.testing.conformance.refusing import TestRefusing
from holdfast.testing.conformance.restarting import TestRestarting
from holdfast.testing.conformance.retrying import TestRetrying
from holdfast.testing.conformance.scheduling import TestScheduling
from holdfast.testing.conformance.submitting import TestSubmitting

__all__ = [
    "TestAdministering",
    "TestCanceling",
    "TestDeclaration",
    "TestFeeding",
    "TestFinding",
    "TestLeasing",
    "TestLeaving",
    "TestOrdering",
    "TestReading",
    "TestRefusing",
    "TestRestarting",
    "TestRetrying",
    "TestScheduling",
    "TestSubmitting",
]
