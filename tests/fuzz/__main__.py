"""The long run: every target for a part of the time, with atheris where it is installed, else with Hypothesis.

python -m tests.fuzz --minutes 10 [--target NAME] [--seed N]
python -m tests.fuzz --target NAME --replay FILE
"""

import argparse
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from holdfast_lab.evidence import BROKEN, KEPT, UNKNOWN, Campaign, Evidence, RuleResult, keep
from tests.fuzz.campaign import failure_of
from tests.fuzz.target import NAMES, target

_ROOT = Path(__file__).resolve().parents[2]
#: Time that an engine may take in addition, to start and to minimise its findings.
_GRACE_S = 120.0
_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """The exit status is 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Try malformed inputs on every decoder.")
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="for all targets together")
    parser.add_argument("--target", choices=NAMES, default=None, metavar="NAME", help="one instead of all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="equal seeds try equal inputs")
    parser.add_argument("--evidence", type=Path, metavar="DIRECTORY", help="keep seed, commit and verdict there")
    parser.add_argument("--replay", type=Path, default=None, metavar="FILE", help="one input instead of new ones")
    asked = parser.parse_args(arguments)
    if asked.replay is not None:
        if asked.target is None:
            parser.error("--replay needs --target")
        if not asked.replay.is_file():
            parser.error(f"there is no file {str(asked.replay)!r} to replay")
        return replay(asked.target, asked.replay)
    names = [asked.target] if asked.target else list(NAMES)
    campaign, results = Campaign("fuzz"), list[RuleResult]()
    status = search(names, asked.minutes * 60, asked.seed, results)
    if asked.evidence is not None:
        _say(f"evidence: {keep(asked.evidence, evidence_of(campaign, asked, results, status))}")
    return status


def evidence_of(campaign: Campaign, asked: argparse.Namespace, results: list[RuleResult], status: int) -> Evidence:
    """One rule for each target; the verdict of a search that was interrupted is unknown."""
    target_words = ["--target", asked.target] if asked.target else []
    words = ["--minutes", f"{asked.minutes:g}", *target_words, "--seed", str(asked.seed)]
    found = [one for one in results if one.findings]
    return campaign.end(
        seeds=(asked.seed, asked.seed),
        command=shlex.join(["python", "-m", "tests.fuzz", *words]),
        verdict=BROKEN if found else UNKNOWN if status else KEPT,
        rules=results,
        numbers={"inputs": sum(one.cases for one in results), "findings": sum(one.findings for one in results)},
        findings=[f"{one.rule}: {one.findings} findings" for one in found],
    )


def _minutes(text: str) -> float:
    """A positive number of minutes: a run without time would find nothing."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"expected some minutes, more than 0, got {text!r}")
    return minutes


def replay(name: str, path: Path) -> int:
    """Try one input, and print its failure."""
    failure = failure_of(target(name).fuzz, path.read_bytes())
    _say(failure or f"{name}: {path} is fine")
    return 1 if failure else 0


def search(names: list[str], seconds: float, seed: int, results: list[RuleResult]) -> int:
    """Try inputs of each target for an equal part of the time; adds a result for each target."""
    has_atheris = find_spec("atheris") is not None
    _say(f"seed {seed}, {seconds / len(names):.0f} s for each of {len(names)} targets")
    if not has_atheris:
        _say("atheris is not installed, so that inputs are not guided by coverage: pip install '.[fuzz]'")
    found = total = 0
    ended = ""
    try:
        for name in names:
            engine = "guided" if has_atheris and target(name).is_guided else "campaign"
            tried, new = _run(engine, name, seconds / len(names), seed)
            results.append(RuleResult(f"{name}, {engine}", BROKEN if new else KEPT, tried, new))
            total, found = total + tried, found + new
    except KeyboardInterrupt:
        ended = ", until it was interrupted"
    _say(f"{total:,} inputs, {found} findings{ended}")
    return 1 if found else _INTERRUPTED if ended else 0


def _run(engine: str, name: str, seconds: float, seed: int) -> tuple[int, int]:
    """Run one engine in a process of its own; a process that dies or hangs is a finding."""
    started = time.monotonic()
    command = [sys.executable, "-m", f"tests.fuzz.{engine}", name, str(seconds), str(seed)]
    try:
        # A temporary folder of its own, so that nothing is left however it ends.
        with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
            environment, limit_s = {**os.environ, "TMPDIR": folder}, seconds + _GRACE_S
            done = subprocess.run(
                command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
            )
    except subprocess.TimeoutExpired:
        _say(f"{name:18} {engine:8} hung; run it alone: {' '.join(command[1:])}")
        return 0, 1
    tried = re.search(r"^executions (\d+)$", done.stdout, re.MULTILINE)
    paths = re.findall(r"^found (.+)$", done.stdout, re.MULTILINE)
    if tried is None:
        _say(f"{name:18} {engine:8} ended with status {done.returncode}:\n{done.stderr[-2_000:]}")
        return 0, 1
    executions, spent = int(tried[1]), time.monotonic() - started
    _say(f"{name:18} {engine:8} {executions:>9,} inputs in {spent:4.0f} s, {len(paths)} findings")
    if paths:
        _say(done.stdout)
    for path in paths:
        _say(f"  replay: python -m tests.fuzz --target {name} --replay {Path(path).relative_to(_ROOT)}")
    return executions, len(paths)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
