"""The report of a run, in Markdown: the verdict, what was asked and broken, and how to run it again."""

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.lab.check.ruling import Verdict
from holdfast.lab.evidence import Campaign, Evidence, RuleResult
from holdfast.lab.history.files import read_records, read_run
from holdfast.lab.history.records import Answered, Asked, Began, Broken, DamageFact, Lost, Record, Refused, Run
from holdfast.lab.torture.timeline import kills_of, lanes_of, timeline_of

REPORT = "report.md"
PICTURE = "timeline.svg"
_DAMAGE_MAX = 20


class Numbers(msgspec.Struct, frozen=True):
    """What the records add up to."""

    #: By call and interface: answered, refused, lost.
    calls: dict[tuple[str, str], collections.Counter[str]]
    jobs: int
    attempts: int
    faults: list[Broken]
    damage: list[str]

    def totals(self) -> dict[str, int]:
        """All of it in a few figures."""
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
        """How often each kind of fault was."""
        return collections.Counter(one.kind for one in self.faults)


def numbers_of(records: Iterable[Record]) -> Numbers:
    """In one pass."""
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
    """`report.md`, and the picture beside it; why the run ended early, if it did."""
    from holdfast.lab.torture.picture import draw  # noqa: PLC0415 - it needs matplotlib

    run = read_run(folder)
    numbers = numbers_of(read_records(folder))
    title = f"{run.topology}, seed {run.seed}: {numbers.jobs} jobs, {len(numbers.faults)} faults"
    draw(timeline_of(run, read_records(folder)), title, folder / PICTURE)
    (folder / REPORT).write_text("\n".join(report(run, numbers, verdict, ended_early)) + "\n")


def report(run: Run, numbers: Numbers, verdict: str, ended_early: str = "") -> list[str]:
    """The lines of the report."""
    faults_us = max((one.until_us for one in numbers.faults), default=run.begun_us)
    long_s = ((run.faults_ended_us or faults_us) - run.begun_us) / 1e6
    killed = f"{sum(map(kills_of, numbers.faults))} processes killed"
    summary = f"{numbers.jobs} jobs, {numbers.attempts} attempts and {len(numbers.faults)} faults in {long_s:.0f} s"
    lines = [
        f"# Torture of {run.topology}, seed {run.seed}",
        "",
        f"{summary}, {killed}, {run.trimmed} files of journals trimmed; {_drained(run)}",
        *(["", f"**It ended early: {ended_early}.**"] if ended_early else []),
        "",
        f"![what happened when]({PICTURE})",
        "",
        "## Verdict",
        "",
        "```",
        *verdict.rstrip().splitlines(),
        "```",
        "",
        "## Faults",
        "",
        *_table(("fault", "fired", "whom it hit", "seconds in all"), _fault_rows(run, numbers)),
        "",
        "## Calls",
        "",
        *_table(("call", "over", "asked", "answered", "refused", "lost"), _call_rows(numbers)),
        "",
    ]
    if run.left_out:
        lines += ["## Left out", "", *(f"- {name}: {why}" for name, why in sorted(run.left_out.items())), ""]
    if numbers.damage:
        shown = numbers.damage[:_DAMAGE_MAX]
        more = [f"- and {len(numbers.damage) - len(shown)} more"] if len(numbers.damage) > len(shown) else []
        lines += ["## What no fault explains", "", *(f"- {text}" for text in shown), *more, ""]
    return [*lines, "## Again", "", "```console", f"$ {run.command}", "$ holdfast lab check .", "```"]


def evidence_of(campaign: Campaign, folder: Path, verdict: Verdict, ended_early: str = "") -> Evidence:
    """What is kept of a run for good."""
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
        return "nobody waited for everything to end."
    if not run.drained_us:
        return f"not everything had ended {run.drain_bound_s:g} s after the last fault."
    return f"everything had ended {(run.drained_us - run.faults_ended_us) / 1e6:.1f} s after the last fault."


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


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]


def size_of(folder: Path) -> str:
    """How much room it takes, in words."""
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{total / 1e6:.0f} MB" if total >= 10**6 else f"{total / 1e3:.0f} kB"
