"""kazoo errors that replace the results of a transaction."""

import pytest
from kazoo.exceptions import RuntimeInconsistency, SessionExpiredError, SessionMovedError

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.kazoo_answers import done_of
from holdfast.topologies.zookeeper.backend.transactions import Delete


@pytest.mark.parametrize("error", [SessionExpiredError, SessionMovedError])
def test_transaction_of_a_session_that_is_over_is_not_refused_for_its_steps(error: type[Exception]) -> None:
    """A transaction of an expired or moved session raises UNAVAILABLE, and is not read as a refusal of its steps."""
    with pytest.raises(UnavailableError):
        done_of([Delete("/a"), Delete("/b")], [error(), RuntimeInconsistency()])
