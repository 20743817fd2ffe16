"""The program itself: help, completion, settings, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.fleet import clean_environment
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import DEADLINE_S

SCRIPT = Path(sys.executable).parent / "holdfast"
#: Slow imports that help does not need.
HEAVY = ("grpc", "google.protobuf", "rich", "uvloop", "structlog", "prometheus_client", "asyncio")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell without a server."""
    return Shell(tmp_path)


@pytest.fixture
def loaded_shell(loaded: LoadedProgram, tmp_path: Path) -> Shell:
    """A shell without a server that forks its commands from the preloaded program."""
    return LoadedShell(loaded, tmp_path)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("job", "--help"), ("worker", "--help"), ("nonsense",), ("--version",)]
)
def test_module_is_the_same_program_as_the_script(shell: Shell, arguments: tuple[str, ...]) -> None:
    """`python -m holdfast` and `holdfast` print the same and exit with the same status."""
    module = shell.run(*arguments)
    script = subprocess.run(
        [SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=clean_environment({}),
        cwd=shell.folder,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (module.returncode, module.stdout, module.stderr) == (script.returncode, script.stdout, script.stderr)


def test_help_loads_nothing_that_it_does_not_need() -> None:
    """`holdfast --help` imports none of the slow libraries."""
    code = (
        "import sys\nfrom holdfast.cli import main\nsys.argv = ['holdfast', '--help']\nassert main() == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stderr == "[]\n"


@pytest.fixture(scope="module")
def completion() -> str:
    """The completion script that the program prints for bash."""
    return subprocess.run(
        ["/bin/bash", "-c", '"$0" --show-completion bash; exit $?', str(SCRIPT)],  # it checks its parent process
        capture_output=True,
        text=True,
        env=clean_environment({}),
        check=True,
        timeout=DEADLINE_S,
    ).stdout


def complete(shell: Shell, script: str, line: str) -> list[str]:
    """Returns the completions that bash offers at the end of this line."""
    words = line.split(" ")
    ask = (
        f"{script}\nCOMP_WORDS=({' '.join(words)} {'' if words[-1] else repr('')})\nCOMP_CWORD={len(words) - 1}\n"
        '_holdfast_completion holdfast; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{SCRIPT.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", ask],
        capture_output=True,
        text=True,
        env=clean_environment({"PATH": path}),
        cwd=shell.folder,
        check=False,
        timeout=DEADLINE_S,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("holdfast que", ["queue"]),
        ("holdfast queue p", ["pause", "purge"]),
        ("holdfast job re", ["result", "retry"]),
        ("holdfast worker d", ["drain"]),
        ("holdfast worker --wor", ["--worker-id"]),
        ("holdfast job list --sta", ["--state"]),
        ("holdfast job list --state R", ["RUNNING"]),
        ("holdfast up --metr", ["--metrics-port"]),
    ],
)
def test_bash_completes_commands_options_and_values(
    shell: Shell, completion: str, line: str, offered: list[str]
) -> None:
    """The printed completion script makes bash offer the matching commands, options and values."""
    assert sorted(complete(shell, completion, line)) == offered


def test_config_shows_values_and_their_origins(loaded_shell: Shell) -> None:
    """`config show` prints every setting as a line for holdfast.toml, as a table with origins or as JSON."""
    (loaded_shell.folder / "holdfast.toml").write_text('lease_ms = 5000\nqueues = "high"\n')
    lines = loaded_shell.run("config", "show", HOLDFAST_PORT="1234").stdout.splitlines()
    assert {"lease_ms = 5000", "port = 1234", 'queues = "high"', "metrics_port = 0"} <= set(lines)
    table = loaded_shell.run("config", "show", "--origin", HOLDFAST_PORT="1234").stdout.splitlines()
    rows = {line.split(None, 2)[0]: line.split(None, 2)[1:] for line in table}
    assert rows["lease_ms"] == ["5000", "file holdfast.toml"]
    assert rows["port"] == ["1234", "environment HOLDFAST_PORT"]
    assert rows["host"] == ['"127.0.0.1"', "default"]
    values = json.loads(loaded_shell.run("config", "show", "--origin", "--json").stdout)
    assert values["lease_ms"] == {"value": 5000, "origin": "file holdfast.toml"}
    assert json.loads(loaded_shell.run("config", "show", "--json").stdout)["lease_ms"] == 5000


def test_shown_config_is_a_file_that_can_be_read(loaded_shell: Shell) -> None:
    """The output of `config show` is a valid holdfast.toml with the same settings."""
    first = loaded_shell.run("config", "show", HOLDFAST_PORT="1234").stdout
    (loaded_shell.folder / "holdfast.toml").write_text(first)
    assert loaded_shell.run("config", "show").stdout == first


def test_config_names_every_problem(loaded_shell: Shell) -> None:
    """`config show` with invalid settings exits with code 2 and prints one line per problem."""
    done = loaded_shell.run("config", "show", HOLDFAST_PORT="x", HOLDFAST_LEASE="1", HOLDFAST_QUEUES="a b")
    assert (done.returncode, done.stdout) == (2, "")
    assert "HOLDFAST_PORT must be" in done.stderr
    assert "HOLDFAST_LEASE_MS" in done.stderr
    assert "HOLDFAST_QUEUES must be" in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("line", "statuses", "said"),
    [
        ("config show --origin | true", {0, 141}, ""),
        ("config show --origin > /dev/full", {4}, "holdfast: operating system error: No space left on device\n"),
        ("config show --origin >&-", {0}, ""),
        ("config show --origin 2>&-", {0}, ""),
    ],
    ids=["seen-enough", "full", "no-output", "no-errors"],
)
def test_output_that_cannot_be_written_is_no_bug(shell: Shell, line: str, statuses: set[int], said: str) -> None:
    """The program ignores a closed pipe and closed streams, and reports a full disk in one line."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"{SCRIPT} {line}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=clean_environment({}),
        cwd=shell.folder,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode in statuses
    assert done.stderr == said


def test_bench_measures_this_machine(shell: Shell) -> None:
    """Without a terminal `holdfast bench` prints one line per run, and its figures as one line of JSON."""
    done = shell.run("bench", "--runs", "1", "--share", "0.02", "--json", patience_s=110)
    assert (done.returncode, done.stderr) == (0, "submits, run 1 of 1\nreplay, run 1 of 1\n")
    measures = json.loads(done.stdout)["measures"]
    assert len(measures) == 3
    assert all(measure["median"] > 0 for measure in measures)
