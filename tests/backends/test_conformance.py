"""The conformance suite, on every backend of `conftest.py`."""

from holdfast.testing.conformance.administration import TestAdministering
from holdfast.testing.conformance.cancellation import TestCanceling
from holdfast.testing.conformance.declaration import TestDeclaration
from holdfast.testing.conformance.event_feed import TestFeeding
from holdfast.testing.conformance.job_reads import TestReading
from holdfast.testing.conformance.leases import TestLeasing
from holdfast.testing.conformance.order import TestOrdering
from holdfast.testing.conformance.refusals import TestRefusing
from holdfast.testing.conformance.restarts import TestRestarting
from holdfast.testing.conformance.retries import TestRetrying
from holdfast.testing.conformance.schedules import TestScheduling
from holdfast.testing.conformance.search import TestFinding
from holdfast.testing.conformance.submission import TestSubmitting
from holdfast.testing.conformance.worker_departure import TestLeaving

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
