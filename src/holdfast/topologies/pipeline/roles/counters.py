"""The metrics of a role as Prometheus families: counters by name, and gauges that are read on request."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class RoleCounters:
    """Counters of one role: `holdfast_<role>_<name>_total`."""

    def __init__(self, role: str, counters: Mapping[str, str]) -> None:
        """`counters` maps names to help texts."""
        self._role = role
        self._sentences = dict(counters)
        self._counts = dict.fromkeys(counters, 0)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Adds to a counter."""
        self._counts[name] += count

    def gauge(self, name: str, sentence: str, read: Callable[[], float]) -> None:
        """Adds a gauge: `holdfast_<role>_<name>`."""
        self._gauges[name] = (sentence, read)

    def view(self) -> dict[str, int]:
        """Returns all counters, by name."""
        return dict(self._counts)

    def families(self) -> Iterator[Metric]:
        """Yields the present values of all counters and gauges."""
        for name, count in self._counts.items():
            yield CounterMetricFamily(f"holdfast_{self._role}_{name}", self._sentences[name], value=count)
        for name, (sentence, read) in self._gauges.items():
            yield GaugeMetricFamily(f"holdfast_{self._role}_{name}", sentence, value=read())
