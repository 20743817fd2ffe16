"""The faults of a torture, and their tools."""

from holdfast_lab.torture.faults.kinds import FAULTS

__all__ = ["FAULTS"]
