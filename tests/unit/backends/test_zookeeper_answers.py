"""What the client library's errors mean that come in place of a transaction's results."""

import pytest
from kazoo.exceptions import RuntimeInconsistency, SessionExpiredError, SessionMovedError

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.kazoo_answers import done_of
from holdfast.topologies.zookeeper.backend.transactions import Delete


@pytest.mark.parametrize("error", [SessionExpiredError, SessionMovedError])
def test_transaction_of_a_session_that_is_over_is_not_refused_for_its_steps(error: type[Exception]) -> None:
    """Nothing is wrong with what was asked for: whoever takes that for an answer believes that others were faster."""
    with pytest.raises(UnavailableError):
        done_of([Delete("/a"), Delete("/b")], [error(), RuntimeInconsistency()])
