"""What a measurement says: a name, what is to be reached, and what was measured run by run."""

import statistics

import msgspec


class Measure(msgspec.Struct, frozen=True):
    """One line of the table: what, what is to be reached, and what was measured run by run."""

    name: str
    reach: str
    values: list[float]
    is_reached: bool
    unit: str = "×"

    @property
    def median(self) -> float:
        return statistics.median(self.values)


def at_least(name: str, values: list[float], target: float, unit: str = "×") -> Measure:
    """A measure whose median should not be below the target."""
    return Measure(name, f"≥ {target:g} {unit}", values, statistics.median(values) >= target, unit)


def at_most(name: str, values: list[float], target: float, unit: str) -> Measure:
    """A measure whose median should not be above the target."""
    return Measure(name, f"≤ {target:g} {unit}", values, statistics.median(values) <= target, unit)
