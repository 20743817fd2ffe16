"""What a role has counted, as Prometheus families: a few counters by name, and gauges that are read when asked."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class RoleCounters:
    """Counters of one role: `holdfast_<role>_<name>_total`."""

    def __init__(self, role: str, counters: Mapping[str, str]) -> None:
        """`counters` are names with a sentence each."""
        self._role = role
        self._sentences = dict(counters)
        self._counts = dict.fromkeys(counters, 0)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def add(self, name: str, count: int = 1) -> None:
        """So many more."""
        self._counts[name] += count

    def gauge(self, name: str, sentence: str, read: Callable[[], float]) -> None:
        """A number that goes up and down: `holdfast_<role>_<name>`."""
        self._gauges[name] = (sentence, read)

    def view(self) -> dict[str, int]:
        """All counters, by name."""
        return dict(self._counts)

    def families(self) -> Iterator[Metric]:
        """Everything, as of now."""
        for name, count in self._counts.items():
            yield CounterMetricFamily(f"holdfast_{self._role}_{name}", self._sentences[name], value=count)
        for name, (sentence, read) in self._gauges.items():
            yield GaugeMetricFamily(f"holdfast_{self._role}_{name}", sentence, value=read())
