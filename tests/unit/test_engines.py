"""Engines: found by their programs, installed by apt, and required by tests under one rule."""

import os
import re
import sys
from pathlib import Path

import pytest

from scripts import engines
from scripts.engines import CHROMIUM, ENGINES, POSTGRES, ZOOKEEPER, Engine, Part
from tests.engines import cannot_run, report, require, unavailable

ALPHA, BETA = (Engine(name, name, (Part((name,), (f"{name}-package",)),)) for name in ("alpha", "beta"))
ROOTED = Engine("rooted", "rooted", ALPHA.parts, needs_root=True)
#: An apt-get that records its calls and creates a program for each package; a file `broken` makes it fail.
APT_GET = """#!/bin/bash
here=${0%/*}
echo "$*" >>"$here/calls"
if [ -e "$here/broken" ]; then echo 'details'; echo 'E: no network' >&2; exit 100; fi
for word in "$@"; do
  case $word in *-package) ln -s /bin/bash "$here/${word%-package}" ;; esac
done
"""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, as root, with an apt-get and without engines."""
    for tool in ("bash", "ln", "tail"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    program(tmp_path / "apt-get", APT_GET)
    program(tmp_path / "id", "#!/bin/bash\necho 0\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engines, "ENGINES", (ALPHA, BETA))
    monkeypatch.delenv("APT", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def calls(folder: Path) -> list[str]:
    """Returns the packages of each apt-get call."""
    path = folder / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return [" ".join(re.findall(r"\S+-package", line)) for line in lines]


# -- finding


def test_only_packages_of_missing_parts_are_named(folder: Path) -> None:
    """A part is found by any of its alternatives, and each missing package is named once."""
    del folder
    there = Part(("no-such-program", "bash"), ("bash-package",))
    gone = Part(("no-such-program", "/no/such/*/file"), ("gone-package",))
    assert Engine("e", "e", (there, gone, gone)).missing_packages() == ("gone-package",)
    assert Engine("e", "e", (there, Part(("/usr/bin/ba*h",), ("files-package",)))).missing_packages() == ()


def test_engines_that_need_root_cannot_run_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that needs root cannot run for other users, installed or not."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (ROOTED.obstacle(), ALPHA.obstacle()) == ("it needs root", "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ROOTED.obstacle() == ""


def test_every_engine_has_a_target_of_make(root: Path) -> None:
    """The make target that the report names for each engine exists."""
    phony = re.findall(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.MULTILINE)[0].split()
    assert {engine.target for engine in ENGINES} <= set(phony)


# -- installing


def test_missing_engines_are_installed_with_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root with apt installs the missing engines, and nothing the second time."""
    assert engines.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "engines: installing alpha (alpha-package)",
        "engines: installing beta (beta-package)",
    ]
    assert engines.main([]) == 0
    assert capsys.readouterr().out == ""
    assert calls(folder) == ["alpha-package", "beta-package"]


def test_only_the_target_that_was_named_is_installed(folder: Path) -> None:
    """`make beta` installs only beta."""
    assert engines.main(["beta"]) == 0
    assert calls(folder) == ["beta-package"]


def test_unknown_target_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown target is refused by its name, and nothing is installed."""
    assert engines.main(["gamma"]) == 2
    assert "unknown target: gamma" in capsys.readouterr().err
    assert calls(folder) == []


def test_apt_that_fails_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If apt fails also after an update of its lists, the engine's line ends with apt's own reason."""
    (folder / "broken").touch()
    assert engines.main(["alpha"]) == 1
    said = capsys.readouterr().out
    assert "engines: alpha could not be installed: E: no network\n" in said
    assert "engines: not installed: alpha. On Debian, as root: make alpha\n" in said
    assert "update" in (folder / "calls").read_text()


@pytest.mark.parametrize("why", ["APT=no", "not root", "no apt"])
def test_nothing_is_installed_without_permission(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """With APT=no, without root or without apt, the program names the missing engines and the install command."""
    if why == "APT=no":
        monkeypatch.setenv("APT", "no")
    elif why == "not root":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    else:
        (folder / "apt-get").unlink()
    assert engines.main([]) == 1
    assert capsys.readouterr().out == "engines: not installed: alpha, beta. On Debian, as root: make alpha beta\n"
    assert calls(folder) == []


# -- requiring


def test_missing_engine_skips(folder: Path) -> None:
    """On a developer's machine, a test whose engine is missing is skipped with the install command."""
    del folder
    with pytest.raises(pytest.skip.Exception, match=r"alpha is not installed \(make alpha installs alpha-package\)"):
        require(ALPHA)


@pytest.mark.parametrize("value", ["1", "true", "yes", "0"])
def test_missing_engine_fails_in_ci(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """With CI set to any value, a test whose installable engine is missing fails."""
    del folder
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.fail.Exception, match="alpha is not installed"):
        require(ALPHA)
    with pytest.raises(pytest.fail.Exception, match="no image"):
        unavailable("no image")


def test_engine_that_cannot_run_skips_in_ci_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that cannot run on this machine skips its tests also in CI, with the reason."""
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="rooted cannot run on this machine: it needs root"):
        require(ROOTED)
    with pytest.raises(pytest.skip.Exception, match="alpha cannot run on this machine: no such kernel"):
        cannot_run(ALPHA, "no such kernel")


def test_engine_that_is_there_is_required_in_silence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine is found, the test continues and knows its path."""
    monkeypatch.setenv("CI", "1")
    program(folder / "alpha", f"#!{sys.executable}\n")
    require(ALPHA)
    assert ALPHA.path() == str(folder / "alpha")


# -- reporting


def test_report_counts_tests_by_engine() -> None:
    """The report lists engines by their number of skipped tests, ignores other reasons and ends with the command."""
    reasons = [
        "only root can be two users",
        "Chromium is not installed (make chromium installs chromium)",
        *["ZooKeeper is not installed (make zookeeper installs zookeeper default-jre-headless)"] * 2,
        "ZooKeeper is not installed (make zookeeper installs zookeeper)",
        "container engine cannot run on this machine: dockerd ended\nand more",
    ]
    assert report(reasons) == [
        "5 tests were skipped because an engine was missing or could not run:",
        "     3  ZooKeeper is not installed",
        "     1  Chromium is not installed",
        "     1  container engine cannot run on this machine: dockerd ended",
        "To install what is missing, run as root: make chromium zookeeper",
    ]


def test_report_names_no_command_where_it_would_not_help() -> None:
    """An engine that cannot run here is not offered for installation, and without skipped tests there is no report."""
    (_, line) = report(["PostgreSQL cannot run on this machine: no memory"])
    assert "PostgreSQL" in line
    assert report(["only root can be two users"]) == []


def test_names_of_engines_begin_no_other_name() -> None:
    """No engine's name is a prefix of another's, so that a skip reason belongs to one engine."""
    names = [engine.name for engine in ENGINES]
    assert {CHROMIUM, POSTGRES, ZOOKEEPER} < set(ENGINES)
    assert [(one, other) for one in names for other in names if one != other and other.startswith(f"{one} ")] == []
