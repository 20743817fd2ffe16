"""The report: findings, plots, tables, and the method."""

from collections.abc import Sequence
from pathlib import Path

from holdfast_lab.compare import tables
from holdfast_lab.compare.document import Bullets, Code, Heading, Paragraph, Part, Picture, markdown, page
from holdfast_lab.compare.figures import BIN_S
from holdfast_lab.compare.findings import findings
from holdfast_lab.compare.load_client import POLL_FIRST_S, POLL_GROWTH, POLL_MAX_S
from holdfast_lab.compare.results import RAW, RESULTS, ComparisonResults
from holdfast_lab.compare.topologies import TOPOLOGIES

TITLE = "Topologies compared"
_STYLE = Path(__file__).with_name("report.css")


def write(results: ComparisonResults, folder: Path) -> None:
    """Write `report.md` with plots as files, and `report.html` with inline plots."""
    from holdfast_lab.compare.plots import pictures  # noqa: PLC0415 - it needs matplotlib

    drawn = pictures(results)
    parts = compose(results, [picture for picture, _ in drawn])
    for picture, data in drawn:
        (folder / picture.name).write_bytes(data)
    (folder / "report.md").write_text(markdown(parts))
    (folder / "report.html").write_text(page(TITLE, parts, _STYLE.read_text()))


def compose(results: ComparisonResults, pictures: Sequence[Picture]) -> list[Part]:
    """All parts of the report, in order."""
    return [
        Heading(1, TITLE),
        Paragraph("Made by"),
        Code(results.facts.get("command", "")),
        Bullets([f"{name}: {value}" for name, value in results.facts.items() if name != "command"]),
        Bullets([_about(name) for name in results.plan.topologies]),
        Heading(2, "Findings"),
        *_findings(results),
        *_pictures(pictures),
        *_tables(results),
        Heading(2, "How it was measured"),
        Bullets(_method(results)),
    ]


def _about(name: str) -> str:
    topology = TOPOLOGIES[name]
    return f"**{name}**: {topology.title}; ingress: {topology.ingress}; in the fault, {topology.fault} is killed"


def _findings(results: ComparisonResults) -> list[Part]:
    parts: list[Part] = []
    for heading, sentences in findings(results).items():
        parts += [Heading(3, heading), Bullets(sentences)]
    return parts


def _pictures(pictures: Sequence[Picture]) -> list[Part]:
    words = {
        "throughput.svg": "Points are medians, bars the range over the runs.",
        "latency.svg": "One curve a run. In an open loop the time begins when the request should have begun.",
        "submit-done.svg": "One curve a run; the finish is what the topology states, to the millisecond.",
        "fault.svg": f"One line a run, in steps of {BIN_S:g} s. Dashed: the kill; dotted: the load ends; ×: errors.",
    }
    parts: list[Part] = [Heading(2, "Pictures")] if pictures else []
    for picture in pictures:
        parts += [picture, Paragraph(words[picture.name])]
    return parts


def _tables(results: ComparisonResults) -> list[Part]:
    return [
        Heading(2, "Throughput"),
        Paragraph(
            "Median of the runs, range in brackets; only successful requests, without ListJobs. Requests of life "
            "cycles include polling, so there the jobs are compared."
        ),
        tables.throughput(results),
        Heading(2, "Submit to done"),
        tables.submit_done(results),
        Heading(2, "Latency by method"),
        tables.latencies(results),
        Heading(2, "ListJobs, apart"),
        Paragraph("A node of several lists only its own jobs, so these figures are no part of any finding."),
        tables.listing(results),
        Heading(2, "What it costs"),
        Paragraph(
            "CPU time of all processes of a topology per job (life cycles) or request, and their memory at the end."
        ),
        tables.costs(results),
        Heading(3, "By role"),
        Paragraph("CPU as cores in use; memory with shared pages divided among the processes that share them."),
        tables.usage(results),
        Heading(3, "Messages per job"),
        Paragraph(
            "Counted by the servers in a separate run with jobs submitted one by one: requests and replies, with "
            "heartbeats and idle traffic, without the polling of clients."
        ),
        tables.messages(results),
        Heading(2, "Errors"),
        tables.errors(results),
    ]


def _method(results: ComparisonResults) -> list[str]:
    plan = results.plan
    text = _METHOD.format(
        runs=plan.runs,
        clients=plan.clients,
        seed=plan.seed,
        first=1_000 * POLL_FIRST_S,
        growth=POLL_GROWTH,
        most=1_000 * POLL_MAX_S,
        results=RESULTS,
        raw=RAW,
    )
    return [" ".join(part.split()) for part in text.split("\n\n")]


_METHOD = """
{runs} runs of each; topologies took turns, in the reverse order in every other run; every group of workloads got new
processes, started by `holdfast up` with jobs in memory, six slots in all, and only warnings logged.

Load came from {clients} client processes over the frozen `taskqueue.v1`, seed {seed}, with the contract's deadlines; a
warm-up before each window is not counted.

`c8` means eight in flight, a closed loop; `open 20/s` means that 20 begin per second, independent of responses, and are
measured from their intended start; `10ms` is the duration of a job.

Of 100 requests, read-heavy has 10 submits (half of them with a request id), 55 status, 25 result, 5 cancel and 5 list,
unless another mix was given.

A life cycle polls the status at once, then after {first:g} ms, {growth:g} times longer each time up to {most:g} ms,
until the job has ended, and then fetches the result.

Percentiles are exact, because every request was recorded, and are of successful requests.

`{results}` holds the figures of every run; `{raw}/` every request (method, status code, node, intended start, start,
end) and every job, as compressed msgpack; `holdfast lab report` makes this report from the figures again.
"""
