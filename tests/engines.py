"""The rules for tests that need an engine, and the report of tests that a missing engine has skipped.

A missing engine that could be installed skips its tests on a developer's machine, and fails them in CI, where the
variable `CI` is set to any value. An engine that cannot run on this machine skips its tests everywhere.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NoReturn

import pytest

from scripts.engines import ENGINES, Engine, install_command


def require(engine: Engine) -> None:
    """Skip or fail the current test, by the rules above, unless the engine is installed and may run here."""
    if obstacle := engine.obstacle():
        cannot_run(engine, obstacle)
    if packages := engine.missing_packages():
        unavailable(f"{_missing(engine)} ({install_command([engine])} installs {' '.join(packages)})")


def unavailable(reason: str) -> NoReturn:
    """Skip the current test, but fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def cannot_run(engine: Engine, reason: str) -> NoReturn:
    """Skip the current test because the engine cannot run on this machine."""
    pytest.skip(f"{_unable(engine)}: {reason}")


def _missing(engine: Engine) -> str:
    return f"{engine.name} is not installed"


def _unable(engine: Engine) -> str:
    return f"{engine.name} cannot run on this machine"


def report(reasons: Iterable[str]) -> list[str]:
    """Return lines with the number of skipped tests per engine and the install command; none if nothing was skipped."""
    counts = Counter(claim for reason in reasons for claim in _claims(reason))
    if not counts:
        return []
    missing = [engine for engine in ENGINES if counts[_missing(engine)]]
    return [
        f"{_tests(counts.total())} skipped because an engine was missing or could not run:",
        *(f"{count:6}  {claim}" for claim, count in counts.most_common()),
        *([f"To install what is missing, run as root: {install_command(missing)}"] if missing else []),
    ]


def _tests(count: int) -> str:
    return "1 test was" if count == 1 else f"{count} tests were"


def _claims(reason: str) -> Iterator[str]:
    """Yield the part of a skip reason that is about an engine, without the details of a single test."""
    for engine in ENGINES:
        if reason.startswith(_missing(engine)):
            yield _missing(engine)
        elif reason.startswith(_unable(engine)):
            yield reason.splitlines()[0]


# The outermost wrapper: its lines follow everything that pytest prints itself.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Print the report, only in the controller: workers of xdist have no terminal."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    skipped = (found.longrepr[2] for found in reporter.stats.get("skipped", ()))
    for line in report(reason.removeprefix("Skipped: ") for reason in skipped):
        reporter.write_line(line)
