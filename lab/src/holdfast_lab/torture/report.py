"""The report of a run, in Markdown: the verdict, the calls and faults, and how to run it again."""

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast_lab.check.verdict import Verdict
from holdfast_lab.evidence import Campaign, Evidence, RuleResult
from holdfast_lab.history.files import read_records, read_run
from holdfast_lab.history.records import Answered, Asked, Began, Broken, DamageFact, Lost, Record, Refused, Run
from holdfast_lab.measure.tables import markdown
from holdfast_lab.torture.timeline import kills_of, lanes_of, timeline_of

REPORT = "report.md"
PICTURE = "timeline.svg"
_DAMAGE_MAX = 20


class Numbers(msgspec.Struct, frozen=True):
    """Figures from the records."""

    #: By call and interface: answered, refused, lost.
    calls: dict[tuple[str, str], collections.Counter[str]]
    jobs: int
    attempts: int
    faults: list[Broken]
    damage: list[str]

    def totals(self) -> dict[str, int]:
        """Returns the main figures."""
        counts = sum(self.calls.values(), collections.Counter[str]())
        return {
            "jobs": self.jobs,
            "attempts": self.attempts,
            "calls": counts["asked"],
            "calls lost": counts["lost"],
            "faults": len(self.faults),
            "processes killed": sum(map(kills_of, self.faults)),
        }

    def fired(self) -> collections.Counter[str]:
        """Returns how often each kind of fault was fired."""
        return collections.Counter(one.kind for one in self.faults)


def numbers_of(records: Iterable[Record]) -> Numbers:
    """Computes the figures in one pass."""
    asked: dict[str, Asked] = {}
    calls: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    jobs: set[str] = set()
    attempts = 0
    faults: list[Broken] = []
    damage: list[str] = []
    for record in records:
        match record:
            case Asked():
                asked[record.op] = record
                calls[record.call, record.via]["asked"] += 1
            case Answered() | Refused() | Lost():
                call = asked.pop(record.op)
                calls[call.call, call.via][type(record).__name__.lower()] += 1
                if isinstance(record, Answered) and record.ids:
                    jobs.update(filter(None, record.ids))
            case Began():
                attempts += 1
            case Broken():
                faults.append(record)
            case DamageFact():
                damage.append(record.text)
            case _:
                pass
    return Numbers(dict(calls), len(jobs), attempts, faults, damage)


def write(folder: Path, verdict: str, ended_early: str = "") -> None:
    """Writes `report.md` and the picture; `ended_early` is the reason if the run ended early."""
    from holdfast_lab.torture.plot import draw  # noqa: PLC0415 - it needs matplotlib

    run = read_run(folder)
    numbers = numbers_of(read_records(folder))
    title = f"{run.topology}, seed {run.seed}: {numbers.jobs} jobs, {len(numbers.faults)} faults"
    draw(timeline_of(run, read_records(folder)), title, folder / PICTURE)
    (folder / REPORT).write_text("\n".join(report(run, numbers, verdict, ended_early)) + "\n")


def report(run: Run, numbers: Numbers, verdict: str, ended_early: str = "") -> list[str]:
    """Returns the lines of the report."""
    faults_us = max((one.until_us for one in numbers.faults), default=run.begun_us)
    long_s = ((run.faults_ended_us or faults_us) - run.begun_us) / 1e6
    killed = f"{sum(map(kills_of, numbers.faults))} processes killed"
    summary = f"{numbers.jobs} jobs, {numbers.attempts} attempts and {len(numbers.faults)} faults in {long_s:.0f} s"
    lines = [
        f"# Torture of {run.topology}, seed {run.seed}",
        "",
        f"{summary}, {killed}, {run.trimmed} journal files trimmed; {_drained(run)}",
        *(["", f"**It ended early: {ended_early}.**"] if ended_early else []),
        "",
        f"![timeline of the run]({PICTURE})",
        "",
        "## Verdict",
        "",
        "```",
        *verdict.rstrip().splitlines(),
        "```",
        "",
        "## Faults",
        "",
        *markdown(("fault", "fired", "whom it hit", "seconds in all"), _fault_rows(run, numbers)).splitlines(),
        "",
        "## Calls",
        "",
        *markdown(("call", "over", "asked", "answered", "refused", "lost"), _call_rows(numbers)).splitlines(),
        "",
    ]
    if run.left_out:
        lines += ["## Left out", "", *(f"- {name}: {why}" for name, why in sorted(run.left_out.items())), ""]
    if numbers.damage:
        shown = numbers.damage[:_DAMAGE_MAX]
        more = [f"- and {len(numbers.damage) - len(shown)} more"] if len(numbers.damage) > len(shown) else []
        lines += ["## Problems that no fault explains", "", *(f"- {text}" for text in shown), *more, ""]
    return [*lines, "## Again", "", "```console", f"$ {run.command}", "$ holdfast lab check .", "```"]


def evidence_of(campaign: Campaign, folder: Path, verdict: Verdict, ended_early: str = "") -> Evidence:
    """Returns the permanent summary of a run."""
    run, numbers = verdict.run, numbers_of(read_records(folder))
    fired = {f"fault {kind}": count for kind, count in sorted(numbers.fired().items())}
    early = [f"it ended early: {ended_early}"] if ended_early else []
    return campaign.end(
        seeds=(run.seed, run.seed),
        command=run.command,
        verdict=verdict.status.value,
        rules=[RuleResult(one.rule, one.status.value, one.cases, one.count, one.reason) for one in verdict.rulings],
        numbers={**numbers.totals(), "journal files trimmed": run.trimmed, **fired},
        findings=[
            *early,
            *(" ".join(filter(None, (one.rule + ":", one.job_id, one.text))) for one in verdict.findings),
        ],
        left_out=run.left_out,
    )


def _drained(run: Run) -> str:
    if not run.faults_ended_us:
        return "the run did not wait for all jobs to end."
    if not run.drained_us:
        return f"not all jobs had ended {run.drain_bound_s:g} s after the last fault."
    return f"all jobs had ended {(run.drained_us - run.faults_ended_us) / 1e6:.1f} s after the last fault."


def _fault_rows(run: Run, numbers: Numbers) -> Iterator[Sequence[object]]:
    for kind in run.faults:
        ours = [one for one in numbers.faults if one.kind == kind]
        hit = collections.Counter(name for one in ours for name in lanes_of(one))
        whom = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in hit.most_common(6))
        more = f", and {len(hit) - 6} others" if len(hit) > 6 else ""  # noqa: PLR2004 - as many as are shown
        yield kind, len(ours), whom + more, f"{sum(one.until_us - one.at_us for one in ours) / 1e6:.1f}"


def _call_rows(numbers: Numbers) -> Iterator[Sequence[object]]:
    for (call, via), counts in sorted(numbers.calls.items()):
        yield call, via, counts["asked"], counts["answered"], counts["refused"], counts["lost"]


def size_of(folder: Path) -> str:
    """Returns the size of a folder, with its unit."""
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{total / 1e6:.0f} MB" if total >= 10**6 else f"{total / 1e3:.0f} kB"
