"""The ledger backend: one coordinator over one journal, in this process."""

from holdfast.backends.ledger.jobs import LedgerJobs

__all__ = ["LedgerJobs"]
