"""Metrics, events, commands and units in docs/operations exist."""

import configparser
import re
import subprocess
from pathlib import Path

import typer
from prometheus_client.parser import text_string_to_metric_families

from holdfast.cli.main import program as holdfast_program
from scripts.engines import SYSTEMD_ANALYZE
from tests.e2e.fleet import Fleet
from tests.e2e.test_metrics import page
from tests.engines import require

_METRIC = re.compile(r"\b(?:holdfast|process)_[a-z_]+(?=[`{\[ )/]|$)")
_UNIT = re.compile(r"^```text\n(\[Unit\].*?)^```$", re.MULTILINE | re.DOTALL)
_EVENTS_TABLE = re.compile(r"^\| event \|.*?\n\n", re.MULTILINE | re.DOTALL)


def test_every_metric_that_is_named_is_there(fleet: Fleet, root: Path) -> None:
    """docs/operations names only existing metrics, and all of Holdfast's own."""
    program, wire = fleet.up()
    wire.wait_for(wire.new(job_type="echo"))
    _, text = page(program.ready()["http"], "/metrics")
    families = list(text_string_to_metric_families(text))
    samples = {sample.name for family in families for sample in family.samples}
    names = (
        samples
        | {family.name for family in families}
        | {line.split()[2] for line in text.splitlines() if "TYPE" in line}
    )
    documents = "".join(path.read_text() for path in (root / "docs/operations").glob("*.md"))
    named = set(_METRIC.findall(documents))
    assert {"holdfast_leader", "holdfast_journal_sync_seconds_bucket", "process_max_fds"} <= named <= names
    types = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE holdfast_")}
    assert types <= named


def test_every_event_that_is_named_is_logged_somewhere(root: Path) -> None:
    """Every event name in the table of events occurs in the code."""
    text = (root / "docs/operations/monitor.md").read_text()
    table = _EVENTS_TABLE.search(text)
    assert table is not None
    named = {name for line in table[0].strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    code = "".join(path.read_text() for path in (root / "src/holdfast").rglob("*.py"))
    assert len(named) > 8
    assert [name for name in named if f'"{name}"' not in code] == []


def test_every_command_that_is_named_is_one(root: Path) -> None:
    """Every command in docs/operations exists in the program."""
    documents = "".join(path.read_text() for path in (root / "docs/operations").glob("*.md"))
    program = typer.main.get_command(holdfast_program())
    named = set(re.findall(r"(?:`|\$ )holdfast ([a-z]+)(?: ([a-z]+)\b)?", documents))
    assert ("journal", "restore") in named
    for group, name in sorted(named):
        command = program.commands.get(group)  # type: ignore[attr-defined]
        assert command is not None, group
        commands = getattr(command, "commands", {})
        assert not (commands and name) or name in commands or command.invoke_without_command, (group, name)


def test_unit_of_the_document_is_one_that_systemd_takes(root: Path, tmp_path: Path) -> None:
    """`systemd-analyze` accepts the unit of the document, which runs `holdfast server`."""
    found = _UNIT.search((root / "docs/operations/install.md").read_text())
    assert found is not None
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(found[1])
    assert unit["Service"]["ExecStart"].split()[1] == "server"
    require(SYSTEMD_ANALYZE)
    program = tmp_path / "holdfast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "holdfast.service"
    path.write_text(found[1].replace("/opt/holdfast/bin/holdfast", str(program)))
    done = subprocess.run([SYSTEMD_ANALYZE.path(), "verify", str(path)], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if "holdfast.service" in line]
    assert about == []
