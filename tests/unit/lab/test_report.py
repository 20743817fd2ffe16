"""The report is readable in every format, whatever data is missing."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import FailedPreconditionError
from holdfast_lab.compare.document import Bullets, Code, Heading, Part, Table, markdown, page
from holdfast_lab.compare.figures import FaultFigures, TimelineStep
from holdfast_lab.compare.messages import Messages, counted
from holdfast_lab.compare.report import write
from holdfast_lab.compare.results import ComparisonResults, keep, load
from holdfast_lab.compare.workloads import through_fault
from tests.unit.lab.synthetic import SPAN, results, series

REFUSAL = "it ended with 4: <not there> & gone"


@pytest.fixture
def whole() -> ComparisonResults:
    """Results with all kinds of workloads, errors, a refusal and a fault."""
    loads = [*series(1, 8), *series(1, 8, kind="life-cycle"), through_fault(20, 10, **SPAN)]
    rates = {
        "embedded": {one.name: [200.0, 210, 190] for one in loads},
        "monolith": {one.name: [100.0, 250, 99] for one in loads},
    }
    counts = [Messages("embedded", 10, {"/a.B/SubmitJob": 20}), Messages("monolith", 10, refusal="silent")]
    found = results(rates, loads, errors={"monolith": 3}, refused={"monolith": REFUSAL}, messages=counts)
    fault = FaultFigures("node", 2.0, [TimelineStep(step / 4, 5, step % 2, 20.0) for step in range(-8, 8)], 0.5, 900.0)
    return msgspec.structs.replace(
        found,
        trials=[
            msgspec.structs.replace(one, fault=fault) if one.workload.startswith("fault") and one.is_good else one
            for one in found.trials
        ],
    )


def test_report_has_every_part_and_all_pictures(whole: ComparisonResults, tmp_path: Path) -> None:
    """The Markdown report references only existing pictures, and contains every table."""
    write(whole, tmp_path)
    text = (tmp_path / "report.md").read_text()
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert pictures == ["throughput.svg", "latency.svg", "submit-done.svg", "fault.svg"]
    for picture in pictures:
        assert ET.parse(tmp_path / picture).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    for heading in ("Findings", "Through the fault", "Throughput", "Submit to done", "ListJobs, apart", "Errors"):
        assert heading in headings
    assert "| read-heavy c1 0ms | 200 (190\u2013210) |" in text
    assert "| embedded | **together** | 2 |" in text
    assert REFUSAL in text


def test_page_needs_no_other_file(whole: ComparisonResults, tmp_path: Path) -> None:
    """The HTML page loads no other file, contains the pictures, supports light and dark, and escapes text."""
    write(whole, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", text)
    assert "@import" not in text
    assert text.count("<svg") == text.count("</svg>") == 4
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "&lt;not there&gt; &amp; gone" in text
    ids = re.findall(r'<clipPath id="([^"]+)"', text)
    assert len(set(ids)) == len(ids)


def test_same_results_give_the_same_report(whole: ComparisonResults, tmp_path: Path) -> None:
    """Results that are stored and loaded again give exactly the same report."""
    keep(whole, tmp_path)
    write(whole, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write(load(tmp_path), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_report_without_any_figures_can_be_written(tmp_path: Path) -> None:
    """A report in which everything was refused says so."""
    loads = [*series(8), through_fault(20, 10, **SPAN)]
    write(results({"embedded": {}, "monolith": {}}, loads, refused={"embedded": "no", "monolith": "no"}), tmp_path)
    assert "gave no figures: no." in (tmp_path / "report.md").read_text()


def test_folder_without_results_is_refused_by_name(tmp_path: Path) -> None:
    """Loading a folder without results, or with another file of that name, fails with an error that names the file."""
    with pytest.raises(FailedPreconditionError, match=r"results\.json must be the results of a comparison"):
        load(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(FailedPreconditionError, match=r"results\.json must be the results of a comparison"):
        load(tmp_path)


def test_parts_are_written_in_both_forms() -> None:
    """Markdown and HTML have bold text, code and right-aligned numbers, and escape the content of cells."""
    parts: list[Part] = [
        Heading(2, "A < B"),
        Bullets(["**bold** and `code`"]),
        Table(["a", "b"], [["x|y", "1"]]),
        Code("a <b>"),
    ]
    assert (
        markdown(parts)
        == "## A < B\n\n- **bold** and `code`\n\n| a | b |\n| --- | --: |\n| x/y | 1 |\n\n```\na <b>\n```\n"
    )
    text = page("t", parts, "")
    assert "<li><strong>bold</strong> and <code>code</code></li>" in text
    assert '<td>x|y</td><td class="number">1</td>' in text
    assert "<code>a &lt;b&gt;</code>" in text


def test_messages_of_all_processes_are_added_up() -> None:
    """The counts of two servers are added up, without the listings, which only the lab sends."""
    log = """{"event": "serving"}
{"event": "messages_counted", "pid": 1, "received": {"/a.B/C": 3, "/a.B/D": 1}, "sent": {"/a.B/C": 3}}
{"event": "messages_counted", "received": {"/a.B/C": 1}, "sent": {"/taskqueue.v1.TaskQueuePublicService/ListJobs": 9}}
"""
    messages = counted("one", 4, log)
    assert messages.by_method == {"/a.B/C": 7, "/a.B/D": 1}
    assert messages.per_job == 2.0


def test_silent_log_is_no_count_of_zero() -> None:
    """A log without counts is an error, and not a count of zero."""
    assert counted("one", 4, "all is well").refusal == "no server logged its counts"
