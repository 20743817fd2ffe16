"""A verdict for people, for a report, and for programs."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core.text import printable
from holdfast_lab.check.story import Line
from holdfast_lab.check.verdict import Finding, Ruling, Status, Verdict

#: The default number of lines of evidence for a finding.
EVIDENCE_LINES = 40
_COLUMNS = ("RULE", "VERDICT", "CASES", "WHY")


def render(verdict: Verdict, evidence: int = EVIDENCE_LINES) -> str:
    """Returns the table of all rules, every finding with its evidence, and the verdict."""
    rows = [(one.rule, _verdict(one), str(one.cases), one.reason or one.promise) for one in verdict.rulings]
    parts = [_title(verdict), _aligned([_COLUMNS, *rows])]
    parts += ["\n".join(_finding(verdict, one, evidence)) for one in verdict.findings]
    parts += [_more(one) for one in verdict.broken if one.count > len(one.findings)]
    parts.append(f"verdict: {_sentence(verdict)}")
    return "\n\n".join(parts)


def markdown(verdict: Verdict) -> str:
    """Returns the table of all rules, for a report."""
    lines = ["| rule | promise | verdict | cases | why |", "|---|---|---|---:|---|"]
    lines += [
        f"| {one.rule} | {one.promise} | {_verdict(one)} | {one.cases} | {_cell(one.reason)} |"
        for one in verdict.rulings
    ]
    return "\n".join([*lines, "", f"Verdict: **{verdict.status.value}**. {_sentence(verdict)}"])


def as_json(verdict: Verdict, evidence: int = EVIDENCE_LINES) -> dict[str, Any]:
    """Returns the verdict for programs."""
    return {
        "topology": verdict.run.topology,
        "seed": verdict.run.seed,
        "verdict": verdict.status.value,
        "records": verdict.read,
        "rules": [
            {
                "rule": one.rule,
                "promise": one.promise,
                "verdict": one.status.value,
                "cases": one.cases,
                "why": one.reason,
                "findings": one.count,
            }
            for one in verdict.rulings
        ],
        "findings": [
            {
                "rule": one.rule,
                "job_id": one.job_id,
                "text": one.text,
                "evidence": [
                    {
                        "at_us": line.at_us,
                        "who": line.who,
                        "what": line.what,
                        "record": msgspec.to_builtins(line.record),
                    }
                    for line in one.evidence[:evidence]
                ],
            }
            for one in verdict.findings
        ],
    }


def _title(verdict: Verdict) -> str:
    run = verdict.run
    return printable(f"{run.topology}, seed {run.seed}: {sum(verdict.read.values())} records")


def _sentence(verdict: Verdict) -> str:
    if verdict.status is Status.BROKEN:
        return f"broken: {', '.join(one.rule for one in verdict.broken)}"
    if verdict.status is Status.UNKNOWN:
        rules = ", ".join(one.rule for one in verdict.unknown)
        return f"unknown: no violation was found, but not everything was tested: {rules}"
    faults = "" if verdict.run.faults else "; no faults were enabled"
    return f"kept: every rule had cases, and found no violation{faults}"


def _verdict(ruling: Ruling) -> str:
    return f"broken {ruling.count}" if ruling.status is Status.BROKEN else ruling.status.value


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")


def _aligned(rows: Iterable[Sequence[str]]) -> str:
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(_COLUMNS) - 1)]
    lines = []
    for *cells, last in shown:
        left = [
            cell.rjust(width) if _COLUMNS[column] == "CASES" else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join([*left, last]))
    return "\n".join(lines)


def _finding(verdict: Verdict, finding: Finding, evidence: int) -> list[str]:
    lines = [printable(" ".join(filter(None, (f"{finding.rule}:", finding.job_id, finding.text))))]
    told = [f"  {_line(line, verdict.run.begun_us)}" for line in finding.evidence]
    left = len(told) - evidence
    if left > 0:  # keep its beginning, and the state of the store at the end
        told[evidence - evidence // 2 : len(told) - evidence // 2] = [f"  … {left} more …"]
    return lines + told


def _line(line: Line, begun_us: int) -> str:
    at = "at the end" if line.at_us is None else f"{(line.at_us - begun_us) / 1e6:.6f}"
    return printable(f"{at:>14}  {line.who:<14}  {line.what}")


def _more(ruling: Ruling) -> str:
    return f"{ruling.rule}: {ruling.count - len(ruling.findings)} more, which are not shown"
