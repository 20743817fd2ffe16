"""The permanent record of a campaign: one small file with what was run, on which code, and the result.

A campaign is a long run that tries to break a guarantee: torture, the simulator, kills, fuzzing. Each of these programs
writes such a file itself, for every verdict, if it gets a folder (`--evidence`).
"""

import itertools
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.errors import FailedPreconditionError

KEPT, BROKEN, UNKNOWN = "kept", "broken", "unknown"
DIRTY = "-dirty"
#: The number of findings that are kept; the run's own files have all of them.
_FINDINGS_MAX = 20
_FINDING_CHARS_MAX = 400
#: Evidence of other campaigns does not count as a change of the code.
_NO_EVIDENCE = ":(exclude,top)docs/evidence"
_GIT_S = 20.0


class RuleResult(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The result of one rule; `cases` is the number of items that it checked."""

    rule: str
    verdict: str
    cases: int = 0
    findings: int = 0
    why: str = ""


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Properties of the machine that affect the result; the load is the average of a minute."""

    cores: int
    python: str
    load_before: float
    load_after: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One campaign."""

    #: torture, simulation, kills or fuzz.
    kind: str
    topology: str = ""
    #: Equal if there was only one seed.
    first_seed: int
    last_seed: int
    #: The commit of the code, with `-dirty` if files differed from it; the version if there is no git.
    commit: str
    version: str
    #: Repeats the run, on that commit.
    command: str
    #: UTC, as ISO 8601.
    started: str
    ended: str
    machine: Machine
    numbers: dict[str, int | float] = {}
    #: Faults and features that the machine or the topology does not support, and why.
    left_out: dict[str, str] = {}
    verdict: str
    rules: list[RuleResult]
    findings: list[str] = []

    @property
    def file_name(self) -> str:
        """Kind, topology, time and seed: names sort by time within a kind."""
        stamp = self.started.translate(str.maketrans("", "", "-:")).partition(".")[0].removesuffix("Z")
        return "-".join(filter(None, (self.kind, self.topology, f"{stamp}Z", str(self.first_seed)))) + ".json"


class Campaign:
    """A campaign that has begun; records the state at its start."""

    def __init__(self, kind: str, topology: str = "") -> None:
        self._kind, self._topology = kind, topology
        self._started = _now()
        self._load = os.getloadavg()[0]
        self._commit = commit()

    def end(
        self,
        *,
        seeds: tuple[int, int],
        command: str,
        verdict: str,
        rules: Sequence[RuleResult],
        numbers: Mapping[str, int | float],
        findings: Sequence[str] = (),
        left_out: Mapping[str, str] | None = None,
    ) -> Evidence:
        """Returns the record of the campaign."""
        shown = [text[:_FINDING_CHARS_MAX] for text in findings[:_FINDINGS_MAX]]
        return Evidence(
            kind=self._kind,
            topology=self._topology,
            first_seed=seeds[0],
            last_seed=seeds[1],
            commit=self._commit,
            version=__version__,
            command=command,
            started=self._started,
            ended=_now(),
            machine=Machine(
                os.cpu_count() or 1, platform.python_version(), round(self._load, 2), round(os.getloadavg()[0], 2)
            ),
            numbers=dict(numbers),
            left_out=dict(left_out or {}),
            verdict=verdict,
            rules=list(rules),
            findings=shown,
        )


def keep(folder: Path, evidence: Evidence) -> Path:
    """Writes the file of a campaign under a new name; never replaces the file of another campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / evidence.file_name
    names = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2)))
    path = next(name for name in names if not name.exists())
    path.write_bytes(msgspec.json.format(msgspec.json.encode(evidence)) + b"\n")
    return path


def read(path: Path) -> Evidence:
    """Reads the campaign of a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evidence)
    except OSError as error:
        raise FailedPreconditionError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise FailedPreconditionError(f"{path} is not the evidence of a campaign: {error}") from None


def commit(file: Path = Path(__file__)) -> str:
    """Returns the commit of a file of the product, or the version if git does not track the file."""
    try:
        _git(file, "ls-files", "--error-unmatch", file.name)
        head = _git(file, "rev-parse", "HEAD").strip()
        changes = _git(file, "status", "--porcelain", "--", ":/", _NO_EVIDENCE)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return head + (DIRTY if changes else "")


def _git(file: Path, *words: str) -> str:
    command = ["git", "-C", str(file.parent), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_GIT_S).stdout


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
