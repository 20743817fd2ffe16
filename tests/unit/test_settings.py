"""Settings: where they come from and what they refuse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from holdfast.settings import (
    FIELDS,
    MASK,
    SECRET,
    Settings,
    SettingsError,
    WorkerSettings,
    address_of,
    addresses_of,
    fields_of,
    shown,
)
from holdfast.settings_sources import TOKEN, Loaded, load, of_program, secret_of


def load_from(
    folder: Path,
    *,
    flags: Mapping[str, object | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded[Settings]:
    return load(Settings, flags=flags or {}, environment=environment or {}, folder=folder)


def problems_of(
    folder: Path,
    *,
    flags: Mapping[str, object | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_from(folder, flags=flags, environment=environment)
    return caught.value.problems


def test_defaults_need_nothing(tmp_path: Path) -> None:
    """With nothing given every value is its default, and says so."""
    loaded = load_from(tmp_path)
    assert loaded.settings == Settings()
    assert loaded.origins == dict.fromkeys(FIELDS, "default")


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """The stronger source wins for each value on its own, and the origin names it."""
    (tmp_path / "holdfast.toml").write_text("lease_ms = 1000\nport = 1\nslots = 3\n")
    environment = {"HOLDFAST_LEASE_MS": "2000", "HOLDFAST_PORT": "2"}
    loaded = load_from(tmp_path, flags={"lease_ms": 3000, "port": None}, environment=environment)
    settings = loaded.settings
    assert (settings.lease_ms, settings.port, settings.slots) == (3000, 2, 3)
    assert loaded.origins["lease_ms"] == "flag --lease-ms"
    assert loaded.origins["port"] == "environment HOLDFAST_PORT"
    assert loaded.origins["slots"] == "file holdfast.toml"
    assert loaded.origins["host"] == "default"


def test_pyproject_table_is_read(tmp_path: Path) -> None:
    """A project may keep its settings in its pyproject.toml."""
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\ndata = "memory://"\n')
    assert load_from(tmp_path).settings.is_in_memory


def test_two_files_are_refused(tmp_path: Path) -> None:
    """Settings in both files are a problem, because a reader could not tell which counts."""
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\nport = 1\n")
    (tmp_path / "holdfast.toml").write_text("port = 2\n")
    assert "one file" in problems_of(tmp_path)[0]


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """Wrong values from every source are reported together, each with what was expected and got."""
    (tmp_path / "holdfast.toml").write_text('slots = "many"\n')
    problems = problems_of(tmp_path, flags={"port": 70000}, environment={"HOLDFAST_HEARTBEAT_MS": "9"})
    assert problems == (
        "expected slots to be a whole number of jobs from 1 to 1000, got 'many' (file holdfast.toml)",
        (
            "expected heartbeat_ms to be a whole number of milliseconds from 10 to 3600000, got '9' "
            "(environment HOLDFAST_HEARTBEAT_MS)"
        ),
        "expected port to be a port, 0 to 65535 (0: any that is free), got 70000 (flag --port)",
    )


def test_unknown_key_is_refused_with_a_hint(tmp_path: Path) -> None:
    """A misspelt key is refused and the nearest known one is named."""
    (tmp_path / "holdfast.toml").write_text("leese_ms = 1000\n")
    assert problems_of(tmp_path) == (
        "expected every key in holdfast.toml to be a known one, got leese_ms; did you mean lease_ms?",
    )


def test_unknown_variable_is_refused_with_a_hint(tmp_path: Path) -> None:
    """A misspelt HOLDFAST_ variable is refused and the nearest known one is named."""
    problems = problems_of(tmp_path, environment={"HOLDFAST_PROT": "1", "PATH": "/bin"})
    assert problems == (
        ("expected every environment variable to be a known one, got HOLDFAST_PROT; did you mean HOLDFAST_PORT?"),
    )


def test_program_is_told_all_problems_at_once() -> None:
    """Settings of a program are held to the same rules; where its data is, its URL says."""
    with pytest.raises(SettingsError) as caught:
        of_program("memory://", {"lease_ms": "5", "leese_ms": 1, "data": "elsewhere"})
    assert caught.value.problems == (
        "expected every setting to be a known one, got leese_ms; did you mean lease_ms?",
        "expected every setting to be a known one, got data",
        ("expected lease_ms to be a whole number of milliseconds from 10 to 3600000, got '5' (argument settings)"),
    )


def test_settings_of_a_program_may_not_contradict_each_other() -> None:
    """What a server would refuse to start with, a directory within a program refuses too."""
    with pytest.raises(SettingsError, match="worker_timeout_ms to be more than heartbeat_ms"):
        of_program("./data", {"worker_timeout_ms": 100, "heartbeat_ms": 100})
    assert of_program("./data", {"log_level": "DEBUG"}) == Settings(data="./data", log_level="debug")


def test_broken_file_is_one_problem(tmp_path: Path) -> None:
    """A file that is not TOML is named in the problem."""
    (tmp_path / "holdfast.toml").write_text("port = = 1\n")
    assert problems_of(tmp_path)[0].startswith("expected holdfast.toml to be a readable TOML file")


@pytest.mark.parametrize("text", ["true", "1", "True"])
def test_switches_read_words_from_the_environment(tmp_path: Path, text: str) -> None:
    """A switch in the environment is a word; in a file it is a boolean."""
    assert load_from(tmp_path, environment={"HOLDFAST_REFLECTION": text}).settings.reflection


@pytest.mark.parametrize("line", ['port = "50051"', 'insecure = "true"', "slots = 2.0", "data = 1"])
def test_files_have_types_of_their_own(tmp_path: Path, line: str) -> None:
    """In a file a number is a number and a switch is a boolean; text in their place is refused."""
    (tmp_path / "holdfast.toml").write_text(f"{line}\n")
    assert len(problems_of(tmp_path)) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104
def test_listening_beyond_loopback_must_be_said(tmp_path: Path, host: str) -> None:
    """An address that others can reach is refused unless the switch for it is set."""
    assert problems_of(tmp_path, flags={"host": host})[0].startswith("expected host to be a loopback")
    assert load_from(tmp_path, flags={"host": host, "insecure": True}).settings.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_needs_no_switch(tmp_path: Path, host: str) -> None:
    """Any loopback address is fine as it is."""
    assert load_from(tmp_path, flags={"host": host}).settings.host == host


def test_worker_timeout_must_outlast_a_heartbeat(tmp_path: Path) -> None:
    """A worker cannot be given up sooner than it is asked to speak."""
    flags = {"heartbeat_ms": 1000, "worker_timeout_ms": 1000}
    assert problems_of(tmp_path, flags=flags) == (
        "expected worker_timeout_ms to be more than heartbeat_ms (1000), got 1000",
    )


def test_reconnect_grace_is_at_most_the_lease(tmp_path: Path) -> None:
    """A longer one would promise what the lease does not keep; the default may stand beside a shorter lease."""
    (problem,) = problems_of(tmp_path, flags={"lease_ms": 5_000, "reconnect_grace_ms": 5_001})
    assert problem.startswith("expected reconnect_grace_ms to be at most lease_ms (5000), because")
    assert problem.endswith("got 5001")
    load_from(tmp_path, flags={"lease_ms": 5_000, "reconnect_grace_ms": 5_000})
    load_from(tmp_path, flags={"lease_ms": 100})


def test_memory_has_a_least_size(tmp_path: Path) -> None:
    """A limit that a few jobs fill is a mistake in the unit; 0 is half of the memory that there is."""
    (problem,) = problems_of(tmp_path, flags={"memory_bytes": (16 << 20) - 1})
    assert problem.startswith("expected memory_bytes to be at least 16777216 (16 MiB), or 0 for half")
    for accepted in (0, 16 << 20):
        assert load_from(tmp_path, flags={"memory_bytes": accepted}).settings.memory_bytes == accepted


@pytest.mark.parametrize("data", ["", "postgresql://x", "a\0b"])
def test_data_must_be_a_directory_or_memory(tmp_path: Path, data: str) -> None:
    """Storage that this server does not have is refused by name."""
    assert problems_of(tmp_path, flags={"data": data})[0].startswith("expected data to be a directory")


def test_choices_ignore_case(tmp_path: Path) -> None:
    """A log level may be written in capitals, as many environments do."""
    assert load_from(tmp_path, environment={"HOLDFAST_LOG_LEVEL": "INFO"}).settings.log_level == "info"


def test_every_default_is_valid(tmp_path: Path) -> None:
    """Each default passes the validation of its own field."""
    flags = {name: field.default for name, field in FIELDS.items()}
    assert load_from(tmp_path, flags=flags).settings == Settings()


def test_one_file_serves_all_commands(tmp_path: Path) -> None:
    """Each command takes what concerns it, and is not bothered by what concerns another."""
    (tmp_path / "holdfast.toml").write_text('queues = "high,low"\nlease_ms = 1000\nslots = 3\n')
    worker = load(WorkerSettings, flags={}, environment={"HOLDFAST_PORT": "x"}, folder=tmp_path)
    assert worker.settings.queue_names == {"high", "low"}
    assert worker.settings.slots == 3
    assert worker.origins["queues"] == "file holdfast.toml"
    assert load_from(tmp_path).settings.lease_ms == 1000


@pytest.mark.parametrize("queues", ["a,,b", "a b", ",", "a," * 3])
def test_queues_of_a_worker_must_be_names(tmp_path: Path, queues: str) -> None:
    """A list that names nothing, or no queue that could be, is refused."""
    with pytest.raises(SettingsError, match="names of queues, with commas"):
        load(WorkerSettings, flags={"queues": queues}, environment={}, folder=tmp_path)


def test_metrics_need_a_port_of_their_own(tmp_path: Path) -> None:
    """Two servers on one port would be one too many."""
    problems = problems_of(tmp_path, flags={"port": 9000, "metrics_port": 9000})
    assert problems == ("expected metrics_port to be another than port, got 9000 for both",)


class Keeper(msgspec.Struct, frozen=True):
    """Settings with a secret."""

    token: Annotated[str, msgspec.Meta(description="text"), SECRET] = ""
    url: Annotated[str, msgspec.Meta(description="text")] = ""


def test_secrets_are_shown_to_nobody() -> None:
    """A secret is masked where there is one, and so are the credentials in an address."""
    fields = fields_of(Keeper)
    assert shown(fields["token"], "hunter2") == MASK
    assert shown(fields["token"], "") == ""
    assert shown(fields["url"], "postgresql://me:hunter2@db:5432/x") == f"postgresql://{MASK}@db:5432/x"
    assert shown(fields["url"], "./a@b") == "./a@b"


def test_failed_jobs_are_kept_as_long_as_others_unless_told() -> None:
    """A longer retain_ms counts for FAILED jobs too; a retention of their own may be shorter."""
    month_ms, hour_ms = 30 * 86_400_000, 3_600_000
    assert Settings().failed_retention_ms == 7 * 86_400_000
    assert Settings(retain_ms=month_ms).failed_retention_ms == month_ms
    assert Settings(retain_ms=month_ms, retain_failed_ms=hour_ms).failed_retention_ms == hour_ms


def test_token_may_stand_in_a_file(tmp_path: Path) -> None:
    """HOLDFAST_TOKEN_FILE names a file with the token, as containers are given secrets; the origin says so."""
    (tmp_path / "token").write_text("hf_1234\n")
    environment = {"HOLDFAST_TOKEN_FILE": str(tmp_path / "token")}
    loaded = load(WorkerSettings, flags={}, environment=environment, folder=tmp_path)
    assert (loaded.settings.token, loaded.origins["token"]) == ("hf_1234", "environment HOLDFAST_TOKEN_FILE")
    assert secret_of(TOKEN, environment) == "hf_1234"
    assert secret_of(TOKEN, {"HOLDFAST_TOKEN": "hf_5", "HOLDFAST_TOKEN_FILE": ""}) == "hf_5"


@pytest.mark.parametrize(
    ("content", "more", "problem"),
    [
        (None, {}, "No such file or directory"),
        (b"", {}, "it is empty"),
        ("hf_\N{LATIN SMALL LETTER E WITH ACUTE}".encode(), {}, "it is not ASCII text"),
        (b"hf_1234", {"HOLDFAST_TOKEN": "hf_5"}, "expected HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE, got both"),
    ],
)
def test_token_file_without_a_token_is_refused(
    tmp_path: Path, content: bytes | None, more: dict[str, str], problem: str
) -> None:
    """A file that is missing, empty or no text, or a token beside it, is a problem and never no token at all."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    environment = {"HOLDFAST_TOKEN_FILE": str(path), **more}
    for read in (
        lambda: load(WorkerSettings, flags={}, environment=environment, folder=tmp_path),
        lambda: secret_of(TOKEN, environment),
    ):
        with pytest.raises(SettingsError, match=problem) as caught:
            read()
        assert "hf_" not in caught.value.message


def test_refused_address_does_not_show_its_password(tmp_path: Path) -> None:
    """A problem quotes what was given, without what nobody should read in a log."""
    problems = problems_of(tmp_path, environment={"HOLDFAST_DATA": "postgresql://me:hunter2@db/x"})
    assert "hunter2" not in problems[0]
    assert f"postgresql://{MASK}@db/x" in problems[0]


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("host:1", "host:1"),
        ("holdfast://host:65535/", "host:65535"),
        ("[::1]:50051", "[::1]:50051"),
        ("host:0", ""),
        ("host:65536", ""),
        ("host", ""),
        ("user@host:1", ""),
        ("redis://host:1", ""),
        ("a/b:1", ""),
    ],
)
def test_address_is_a_host_and_a_port(target: str, address: str) -> None:
    """The same is an address for the SDK and for the command line."""
    assert address_of(target) == address


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("h1:1", ["h1:1"]),
        ("holdfast://h1:1,h2:2", ["h1:1", "h2:2"]),
        ("h2:2, holdfast://h1:1,[::1]:3", ["h2:2", "h1:1", "[::1]:3"]),
        ("h1:1,", []),
        (",h1:1", []),
        ("h1:1,h1:1", []),
        ("h1:1,./directory", []),
        ("h1:1,h2:70000", []),
        ("", []),
    ],
)
def test_list_of_nodes_keeps_its_order(target: str, addresses: list[str]) -> None:
    """The order decides who owns what; a list with anything else in it, or one address twice, is none."""
    assert addresses_of(target) == addresses


def test_password_of_a_database_is_shown_to_nobody() -> None:
    """Neither before the address nor in the query of the URL, in settings and in what they are refused for."""
    url = "postgresql://me:secret@db/jobs?sslpassword=hidden&host=x"
    loaded = load(Settings, flags={"database": url}, environment={}, folder=Path("/nowhere"))
    seen = str(shown(FIELDS["database"], loaded.settings.database))
    assert seen == "postgresql://********@db/jobs?sslpassword=********&host=x"
    with pytest.raises(SettingsError) as refused:
        load(Settings, flags={"database": "mysql://me:secret@db/jobs"}, environment={}, folder=Path("/nowhere"))
    assert "secret" not in refused.value.message
