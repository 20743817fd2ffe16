"""A pytest plugin that stores the results of a kill campaign; `make kills` loads it.

Each test is one rule; the end of its captured output is stored as the reason.
"""

import os
from pathlib import Path

import pytest

from holdfast_lab.evidence import BROKEN, KEPT, UNKNOWN, Campaign, Evidence, RuleResult, keep

_WORDS_MAX = 300


class Kept:
    """Collects the result of every test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._campaign = Campaign("kills")
        self.results: dict[str, RuleResult] = {}
        self.findings: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records a failure in any phase as BROKEN and a skipped test as UNKNOWN."""
        name = report.nodeid.rpartition("/")[2]
        known = self.results.get(name)
        if report.failed:
            self.results[name] = RuleResult(name, BROKEN, 1, 1)
            self.findings.append(f"{name}: {report.longreprtext.splitlines()[-1] if report.longreprtext else ''}")
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "skipped"
            self.results[name] = RuleResult(name, UNKNOWN, why=why[:_WORDS_MAX])
        elif report.when == "call" and known is None:
            self.results[name] = RuleResult(name, KEPT, 1, why=" ".join(report.capstdout.split())[-_WORDS_MAX:])

    def pytest_sessionfinish(self) -> None:
        """Writes the evidence file if any test was run."""
        if self.results:
            keep(self._folder, self.evidence())

    def evidence(self) -> Evidence:
        """Returns the evidence of the campaign; seed 0 means that each test used its own default seed."""
        results = list(self.results.values())
        verdicts = {one.verdict for one in results}
        seed, kills = int(os.environ.get("SEED") or 0), int(os.environ.get("KILLS") or 0)
        files = sorted({one.rule.partition("::")[0] for one in results})
        settings = " ".join(f"{name}={value}" for name, value in (("KILLS", kills), ("SEED", seed)) if value)
        tests = " ".join(f"tests/e2e/{name}" for name in files)
        return self._campaign.end(
            seeds=(seed, seed),
            command=f"{settings} python -m pytest {tests}".strip(),
            verdict=BROKEN if BROKEN in verdicts else UNKNOWN if UNKNOWN in verdicts else KEPT,
            rules=results,
            numbers={"kills of each": kills, "tests": len(results)},
            findings=self.findings,
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the `--evidence` option, as in the other campaigns."""
    parser.addoption("--evidence", type=Path, metavar="DIRECTORY", help="keep seed, commit and verdict there")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the plugin if a folder is given."""
    if (folder := config.getoption("--evidence")) is not None:
        config.pluginmanager.register(Kept(folder))
