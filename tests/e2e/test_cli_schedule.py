"""`holdfast schedule` against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet import Fleet, fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import eventually

NIGHTLY = ("schedule", "create", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--type", "echo")

#: The arguments, the exit code, and a part of the error message.
MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    (("create", "s", "--type", "echo"), 2, "give exactly one of --cron, --every and --at"),
    (("create", "s", "--type", "echo", "--cron", "0 9", "--every", "5m"), 2, "give exactly one of"),
    (
        ("create", "s", "--type", "echo", "--cron", "61 * * * *"),
        2,
        "cron must be a cron expression (bad minute: 0 to 59), got '61 * * * *'",
    ),
    (("create", "s", "--type", "echo", "--cron", "0 0 31 2 *"), 2, "(bad day-of-month: 1 to 31, and the month"),
    (("create", "s", "--type", "echo", "--cron", "* * *"), 2, "two fields (minute hour)"),
    (("create", "s", "--type", "echo", "--every", "0"), 2, "--every must be at least one second, got '0'"),
    (
        ("create", "s", "--type", "echo", "--cron", "0 9", "--tz", "Mars/Base"),
        2,
        "such as Europe/Paris, got 'Mars/Base'",
    ),
    (("create", "s", "--type", "echo", "--at", "tomorrow"), 2, "a time such as 2026-12-24T18:00"),
    (
        ("create", "s", "--type", "echo", "--at", "2036-03-30T02:30", "--tz", "Europe/Paris"),
        2,
        "2036-03-30T02:30 does not exist in Europe/Paris because of a clock change",
    ),
    (("create", "s", "--type", "echo", "--every", "soon"), 2, "a duration such as 90s, 5m"),
    (("create", "s", "--type", "echo", "--every", "10ms"), 2, "a whole number of seconds"),
    (("create", "s", "--type", "echo", "--every", "1h", "--overlap", "maybe"), 2, "one of allow, skip, cancel_running"),
    (("create", "s", "--type", "echo", "--every", "1h", "--catch-up", "some"), 2, "one of none, latest, all"),
    (("preview", "s", "--cron", "0 9"), 2, "not both"),
    (("preview",), 2, "give exactly one of"),
    (("preview", "*/5 * * * *"), 2, "use --cron for a cron expression"),
    (("preview", "@daily"), 2, "use --cron for a cron expression"),
    (("show", "nobody"), 4, "no schedule 'nobody'"),
    (("pause", "nobody"), 4, "no schedule 'nobody'"),
    (("trigger", "nobody"), 4, "no schedule 'nobody'"),
    (("delete", "nobody"), 4, "no schedule 'nobody'"),
    (("delete", "../x"), 2, "name"),
]


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one server without a worker; each test removes its schedules again."""
    with fleet_in(tmp_path_factory.mktemp("schedules")) as fleet:
        yield fleet.server()[0].ready()["grpc"]


@pytest.fixture
def shell(loaded: LoadedProgram, fleet: Fleet, server: str) -> Iterator[Shell]:
    """A shell in New York's time zone, with a server without a worker and without schedules."""
    shell = LoadedShell(loaded, fleet.folder, server)
    shell.environment["TZ"] = "America/New_York"
    assert told(shell, "list") == []
    yield shell
    for one in told(shell, "list"):
        assert shell.run("schedule", "delete", one["name"]).returncode == 0


def told(shell: Shell, *arguments: str) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the JSON output of a schedule command."""
    done = shell.run("schedule", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_schedule_from_creation_to_its_end(shell: Shell) -> None:
    """A schedule is created with all options, listed, shown, paused, resumed, triggered and deleted by commands."""
    rules = (
        "--catch-up",
        "all",
        "--catch-up-window",
        "1h30m",
        "--overlap",
        "skip",
        "--jitter",
        "10s",
        "-l",
        "team=night",
    )
    done = shell.run(*NIGHTLY, "--payload", '{"a": 1}', "--queue", "slow", "-p", "7", *rules)
    assert (done.returncode, done.stdout.startswith("nightly fires next at 20")) == (0, True)
    assert "Europe/Paris" in done.stdout
    (one,) = told(shell, "list")
    assert (one["name"], one["cron"], one["timezone"], one["queue"], one["priority"]) == (
        "nightly",
        "30 2 * * *",
        "Europe/Paris",
        "slow",
        7,
    )
    assert (one["payload"], one["labels"], one["catch_up"], one["catch_up_window_ms"]) == (
        '{"a": 1}',
        {"team": "night"},
        "all",
        5_400_000,
    )
    assert (one["overlap"], one["jitter_ms"], one["is_paused"], one["fired"]) == ("skip", 10_000, False, 0)
    assert told(shell, "show", "nightly") == one
    assert shell.run("schedule", "pause", "nightly").stdout == "nightly is paused\n"
    assert told(shell, "show", "nightly")["is_paused"]
    assert shell.run("schedule", "resume", "nightly").stdout == done.stdout
    job_id = shell.run("schedule", "trigger", "nightly").stdout.strip()
    job = json.loads(shell.run("job", "get", job_id, "--json").stdout)
    assert (job["state"], job["type"], job["queue"], job["labels"]) == ("QUEUED", "echo", "slow", {"team": "night"})
    assert told(shell, "show", "nightly")["last_job_id"] == job_id
    assert shell.run("schedule", "delete", "nightly").stdout == "nightly is deleted\n"
    assert told(shell, "list") == []


def test_tables_show_both_clocks(shell: Shell) -> None:
    """`schedule list` prints the next tick in the local time zone and in the schedule's own."""
    shell.run(*NIGHTLY)
    heading, row = shell.run("schedule", "list").stdout.splitlines()
    assert heading.split()[:4] == ["NAME", "WHEN", "ZONE", "TYPE"]
    assert "30 2 * * *" in row
    assert "02:30:00+0" in row
    assert ":30:00-0" in row
    shown = shell.run("schedule", "show", "nightly").stdout
    assert "Europe/Paris" in shown
    assert "0 fired, 0 skipped, 0 missed" in shown


def test_time_that_is_past_makes_its_job_at_once(shell: Shell) -> None:
    """A one-shot schedule in the past creates its job at once and prints its id, and a repeat creates no second job."""
    past = ("schedule", "create", "late", "--type", "echo", "--at", "2020-01-01T00:00Z")
    first = shell.run(*past)
    job_id = told(shell, "show", "late")["last_job_id"]
    assert first.stdout == f"late: its time has passed, and it created the job {job_id}; it will not fire again\n"
    assert shell.run(*past).stdout == first.stdout
    assert shell.run("job", "get", job_id).returncode == 0


def test_tables_are_narrow_on_a_terminal(shell: Shell) -> None:
    """On a terminal `schedule list` prints times without seconds, and one column if both zones are the same."""
    shell.environment["TZ"] = "UTC"
    shell.run("schedule", "create", "daily", "--type", "echo", "--cron", "0 9", "--timezone", "UTC")
    _, listed = shell.at_terminal("schedule", "list")
    assert "NEXT (LOCAL)" in listed
    assert "NEXT (ZONE)" not in listed
    assert "09:00  " in listed
    _, ahead = shell.at_terminal("schedule", "preview", "daily", "-n", "1")
    assert ahead.count("09:00:00") == 1
    shell.run("schedule", "create", "paris", "--type", "echo", "--cron", "0 9", "--tz", "Europe/Paris")
    assert "NEXT (ZONE)" in shell.at_terminal("schedule", "list")[1]
    assert shell.at_terminal("schedule", "preview", "paris", "-n", "1")[1].count(":00:00") == len(("here", "there"))


def test_preview_shows_the_effect_of_clock_changes(shell: Shell) -> None:
    """`schedule preview` moves a tick out of the spring clock change, keeps the next day's time and creates nothing."""
    described = ("preview", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--after", "2026-03-28T12:00", "-n", "2")
    assert told(shell, *described) == {
        "timezone": "Europe/Paris",
        "ticks": [
            {
                "at_ms": 1_774_746_000_000,
                "utc": "2026-03-29T01:00:00Z",
                "local": "2026-03-28T21:00:00-04:00",
                "zoned": "2026-03-29T03:00:00+02:00",
            },
            {
                "at_ms": 1_774_830_600_000,
                "utc": "2026-03-30T00:30:00Z",
                "local": "2026-03-29T20:30:00-04:00",
                "zoned": "2026-03-30T02:30:00+02:00",
            },
        ],
    }
    lines = shell.run("schedule", *described).stdout.splitlines()
    assert lines[0].split() == ["LOCAL", "Europe/Paris", "UTC"]
    assert " ".join(lines[1].split()) == (
        "2026-03-28 21:00:00-04:00 2026-03-29 03:00:00+02:00 2026-03-29 01:00:00+00:00"
    )
    assert told(shell, "list") == []
    shell.run(*NIGHTLY)
    assert told(shell, "preview", "nightly", "--after", "2026-03-28T12:00", "-n", "2") == told(shell, *described)


def test_one_shot_goes_by_the_clocks_of_its_zone(shell: Shell) -> None:
    """A one-shot schedule takes its time in its own zone and has one tick."""
    arguments = ("create", "eve", "--at", "2036-12-24T18:00", "--tz", "Europe/Paris", "--type", "echo")
    assert told(shell, *arguments)["at_ms"] == 2_113_750_800_000
    assert len(told(shell, "preview", "eve")["ticks"]) == 1


def test_interval_makes_jobs(shell: Shell, fleet: Fleet) -> None:
    """An interval schedule creates a job every second, and with --overlap skip none while the last one waits."""
    told(shell, "create", "often", "--every", "1s", "--type", "echo", "--payload", "x")
    told(shell, "create", "alone", "--every", "1", "--type", "echo", "--queue", "nobody", "--overlap", "skip")
    fleet.worker(shell.environment["HOLDFAST_CONNECT"], "-Q", "default")
    often = eventually(lambda: told(shell, "show", "often"), lambda one: one["fired"] >= 2)
    job = json.loads(shell.run("job", "get", often["last_job_id"], "--json").stdout)
    assert job["type"] == "echo"
    alone = eventually(lambda: told(shell, "show", "alone"), lambda one: one["skipped"] >= 1)
    assert alone["fired"] == 1


def test_wrong_schedule_commands_print_an_error_without_a_traceback(shell: Shell) -> None:
    """A wrong schedule command prints a message without a traceback and creates nothing."""
    for arguments, status, sentence in MISTAKES:
        done = shell.run("schedule", *arguments)
        assert (done.returncode, sentence in done.stderr, done.stdout) == (status, True, ""), (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert told(shell, "list") == []


def test_schedules_of_a_directory_need_no_server(loaded: LoadedProgram, fleet: Fleet) -> None:
    """A schedule command serves the directory itself while it runs, if no server does."""
    program, _ = fleet.server(data="jobs")
    assert program.stop() == 0
    shell = LoadedShell(loaded, fleet.folder, str(fleet.folder / "jobs"))
    assert told(shell, "create", "later", "--every", "1h", "--type", "echo")["every_ms"] == 3_600_000
    assert [one["name"] for one in told(shell, "list")] == ["later"]


APP = """
from holdfast import Holdfast, current

app = Holdfast("./elsewhere")


@app.schedule(every=1)
def beat() -> str:
    return f"{current().schedule} {current().scheduled_for:%Y}"


@app.schedule("0 3 * * *", tz="Europe/Paris", name="nightly", args=("x",))
@app.job(queue="slow")
def report(kind: str) -> str:
    return kind
"""


def test_worker_sets_the_schedules_of_its_app_where_it_works(loaded: LoadedProgram, fleet: Fleet) -> None:
    """A worker creates the schedules of its app, and a second worker of the app does not change them."""
    (fleet.folder / "timed.py").write_text(APP)
    program, _ = fleet.up("-A", "timed:app")
    shell = LoadedShell(loaded, fleet.folder, program.ready()["grpc"])
    first = eventually(lambda: told(shell, "list"), lambda found: len(found) == 2)
    assert [(one["name"], one["type"], one["queue"]) for one in first] == [
        ("beat", "beat", "default"),
        ("nightly", "report", "slow"),
    ]
    assert first[1]["payload"] == '{"kind":"x"}'
    beat = eventually(lambda: told(shell, "show", "beat"), lambda one: one["last_job_id"])
    assert shell.run("job", "result", beat["last_job_id"]).stdout.startswith('"beat 20')
    fleet.worker(shell.environment["HOLDFAST_CONNECT"], "-A", "timed:app")
    assert told(shell, "show", "nightly") == first[1]


def test_several_nodes_keep_each_schedule_at_its_owner(loaded: LoadedProgram, fleet: Fleet) -> None:
    """The nodes of a monolith keep each schedule at its owner, and every schedule is listed, fired and triggered."""
    (fleet.folder / "timed.py").write_text(APP)
    program = fleet.start(
        "up", "--topology", "monolith", "--nodes", "2", "--data", "nodes", "--port", "0", "-A", "timed:app"
    )
    line = program.ready()
    shell = LoadedShell(loaded, fleet.folder, line["grpc"])
    names = eventually(lambda: [one["name"] for one in told(shell, "list")], lambda found: len(found) == 2)
    assert names == ["beat", "nightly"]
    beat = eventually(lambda: told(shell, "show", "beat"), lambda one: one["fired"] >= 2)
    assert shell.run("job", "result", beat["last_job_id"]).stdout.startswith('"beat 20')
    job_id = shell.run("schedule", "trigger", "nightly").stdout.strip()
    assert shell.run("job", "result", job_id).stdout == '"x"'


def test_described_schedule_is_previewed_without_a_server(tmp_path: Path, loaded: LoadedProgram) -> None:
    """`schedule preview` prints the ticks of a cron expression, or its error, without a server."""
    alone = LoadedShell(loaded, tmp_path, "127.0.0.1:1")
    daily = ("schedule", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--after", "2026-03-28T12:00")
    done = alone.run(*daily, "-n", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [tick["utc"] for tick in json.loads(done.stdout)["ticks"]] == [
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:30:00Z",
    ]
    wrong = alone.run("schedule", "preview", "--cron", "61 * * * *")
    assert (wrong.returncode, "cron must be" in wrong.stderr) == (2, True)
