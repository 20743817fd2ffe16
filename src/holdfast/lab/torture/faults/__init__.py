"""Ways to break an arena, and what they break it with."""

from holdfast.lab.torture.faults.kinds import FAULTS

__all__ = ["FAULTS"]
