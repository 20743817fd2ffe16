"""Settings: their sources and their validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from holdfast.cli.number_options import number, whole_number
from holdfast.errors import InvalidArgumentError
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
from holdfast.settings_sources import TOKEN, LoadedSettings, load, of_program, secret_of


def load_from(
    folder: Path,
    *,
    flags: Mapping[str, object | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings[Settings]:
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
    """Without any source every value is its default, and its origin is `default`."""
    loaded = load_from(tmp_path)
    assert loaded.settings == Settings()
    assert loaded.origins == dict.fromkeys(FIELDS, "default")


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """The stronger source wins for each value separately, and the origin names it."""
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
    """Settings are also read from the project's pyproject.toml."""
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\ndata = "memory://"\n')
    assert load_from(tmp_path).settings.is_in_memory


def test_two_files_are_refused(tmp_path: Path) -> None:
    """Settings in both files are refused, because it would be unclear which ones count."""
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\nport = 1\n")
    (tmp_path / "holdfast.toml").write_text("port = 2\n")
    assert "one file" in problems_of(tmp_path)[0]


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """Wrong values of all sources are reported together, each with the expected and the actual value."""
    (tmp_path / "holdfast.toml").write_text('slots = "many"\n')
    problems = problems_of(tmp_path, flags={"port": 70000}, environment={"HOLDFAST_HEARTBEAT_MS": "9"})
    assert problems == (
        "slots in holdfast.toml must be a whole number of jobs from 1 to 1000, got 'many'",
        "HOLDFAST_HEARTBEAT_MS must be a whole number of milliseconds from 10 to 3600000, got '9'",
        "--port must be a port number from 0 to 65535 (0: any free port), got 70000",
    )


def test_unknown_key_is_refused_with_a_hint(tmp_path: Path) -> None:
    """A misspelt key is refused, and the message names the nearest known one."""
    (tmp_path / "holdfast.toml").write_text("leese_ms = 1000\n")
    assert problems_of(tmp_path) == ("unknown key in holdfast.toml: leese_ms; did you mean lease_ms?",)


def test_unknown_variable_is_refused_with_a_hint(tmp_path: Path) -> None:
    """A misspelt HOLDFAST_ variable is refused, and the message names the nearest known one."""
    problems = problems_of(tmp_path, environment={"HOLDFAST_PROT": "1", "PATH": "/bin"})
    assert problems == (("unknown environment variable: HOLDFAST_PROT; did you mean HOLDFAST_PORT?"),)


def test_program_is_told_all_problems_at_once() -> None:
    """The settings argument of a program follows the same rules, and cannot set `data`, which the URL names."""
    with pytest.raises(SettingsError) as caught:
        of_program("memory://", {"lease_ms": "5", "leese_ms": 1, "data": "elsewhere"})
    assert caught.value.problems == (
        "unknown setting: leese_ms; did you mean lease_ms?",
        "unknown setting: data",
        "lease_ms must be a whole number of milliseconds from 10 to 3600000, got '5'",
    )


def test_settings_of_a_program_may_not_contradict_each_other() -> None:
    """Contradicting settings are refused in a program as by a server."""
    with pytest.raises(SettingsError, match="worker_timeout_ms must be more than heartbeat_ms"):
        of_program("./data", {"worker_timeout_ms": 100, "heartbeat_ms": 100})
    assert of_program("./data", {"log_level": "DEBUG"}) == Settings(data="./data", log_level="debug")


def test_broken_file_is_one_problem(tmp_path: Path) -> None:
    """The problem with a file that is not TOML names the file."""
    (tmp_path / "holdfast.toml").write_text("port = = 1\n")
    assert problems_of(tmp_path)[0].startswith("holdfast.toml must be a readable TOML file")


@pytest.mark.parametrize("text", ["true", "1", "True"])
def test_switches_read_words_from_the_environment(tmp_path: Path, text: str) -> None:
    """A switch in the environment may be `true`, `True` or `1`."""
    assert load_from(tmp_path, environment={"HOLDFAST_REFLECTION": text}).settings.reflection


@pytest.mark.parametrize("line", ['port = "50051"', 'insecure = "true"', "slots = 2.0", "data = 1"])
def test_files_have_types_of_their_own(tmp_path: Path, line: str) -> None:
    """In a file, text in place of a number or a boolean is refused."""
    (tmp_path / "holdfast.toml").write_text(f"{line}\n")
    assert len(problems_of(tmp_path)) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104
def test_listening_beyond_loopback_must_be_said(tmp_path: Path, host: str) -> None:
    """A host that is not loopback is refused, unless `insecure` is set."""
    assert problems_of(tmp_path, flags={"host": host})[0].startswith("--host must be a loopback")
    assert load_from(tmp_path, flags={"host": host, "insecure": True}).settings.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_needs_no_switch(tmp_path: Path, host: str) -> None:
    """Any loopback address is accepted without a switch."""
    assert load_from(tmp_path, flags={"host": host}).settings.host == host


def test_worker_timeout_must_outlast_a_heartbeat(tmp_path: Path) -> None:
    """A worker timeout that is not longer than the heartbeat interval is refused."""
    flags = {"heartbeat_ms": 1000, "worker_timeout_ms": 1000}
    assert problems_of(tmp_path, flags=flags) == (
        "--worker-timeout-ms must be more than --heartbeat-ms (1000), got 1000",
    )


def test_reconnect_grace_is_at_most_the_lease(tmp_path: Path) -> None:
    """A reconnect grace above the lease is refused, but its default is accepted with a shorter lease."""
    (problem,) = problems_of(tmp_path, flags={"lease_ms": 5_000, "reconnect_grace_ms": 5_001})
    assert problem.startswith("--reconnect-grace-ms must be at most --lease-ms (5000), because")
    assert problem.endswith("got 5001")
    load_from(tmp_path, flags={"lease_ms": 5_000, "reconnect_grace_ms": 5_000})
    load_from(tmp_path, flags={"lease_ms": 100})


def test_memory_has_a_least_size(tmp_path: Path) -> None:
    """A memory limit below 16 MiB is refused as a wrong unit, and 0 means half of the memory."""
    (problem,) = problems_of(tmp_path, flags={"memory_bytes": (16 << 20) - 1})
    assert problem.startswith("--memory-bytes must be at least 16777216 (16 MiB), or 0 for half")
    for accepted in (0, 16 << 20):
        assert load_from(tmp_path, flags={"memory_bytes": accepted}).settings.memory_bytes == accepted


@pytest.mark.parametrize("data", ["", "postgresql://x", "a\0b"])
def test_data_must_be_a_directory_or_memory(tmp_path: Path, data: str) -> None:
    """Data that is neither a directory nor memory is refused."""
    assert problems_of(tmp_path, flags={"data": data})[0].startswith("--data must be a directory")


def test_choices_ignore_case(tmp_path: Path) -> None:
    """A log level may be written in upper case."""
    assert load_from(tmp_path, environment={"HOLDFAST_LOG_LEVEL": "INFO"}).settings.log_level == "info"


def test_every_default_is_valid(tmp_path: Path) -> None:
    """Each default passes the validation of its own field."""
    flags = {name: field.default for name, field in FIELDS.items()}
    assert load_from(tmp_path, flags=flags).settings == Settings()


def test_one_file_serves_all_commands(tmp_path: Path) -> None:
    """Each command reads its own settings from the shared sources and ignores those of other commands."""
    (tmp_path / "holdfast.toml").write_text('queues = "high,low"\nlease_ms = 1000\nslots = 3\n')
    worker = load(WorkerSettings, flags={}, environment={"HOLDFAST_PORT": "x"}, folder=tmp_path)
    assert worker.settings.queue_names == {"high", "low"}
    assert worker.settings.slots == 3
    assert worker.origins["queues"] == "file holdfast.toml"
    assert load_from(tmp_path).settings.lease_ms == 1000


@pytest.mark.parametrize("queues", ["a,,b", "a b", ",", "a," * 3])
def test_queues_of_a_worker_must_be_names(tmp_path: Path, queues: str) -> None:
    """A list of queues with an empty or invalid name is refused."""
    with pytest.raises(SettingsError, match="comma-separated queue names"):
        load(WorkerSettings, flags={"queues": queues}, environment={}, folder=tmp_path)


def test_metrics_need_a_port_of_their_own(tmp_path: Path) -> None:
    """The metrics port must differ from the server's port."""
    problems = problems_of(tmp_path, flags={"port": 9000, "metrics_port": 9000})
    assert problems == ("--metrics-port must differ from --port, got 9000 for both",)


def test_contradiction_names_each_setting_as_it_was_written(tmp_path: Path) -> None:
    """A setting has the name of the source that gave its value: an option goes before a variable."""
    given = {"HOLDFAST_PORT": "9000", "HOLDFAST_METRICS_PORT": "1"}
    problems = problems_of(tmp_path, flags={"metrics_port": 9000}, environment=given)
    assert problems == ("--metrics-port must differ from HOLDFAST_PORT, got 9000 for both",)
    half = problems_of(tmp_path, environment={"HOLDFAST_TLS_KEY": "key.pem"})
    assert half == ("--tls-cert and HOLDFAST_TLS_KEY must be given together, got only HOLDFAST_TLS_KEY",)


def test_option_of_another_name_is_named_by_its_own(tmp_path: Path) -> None:
    """An error names the option of the command, also where its name differs from that of the setting."""
    options = {"http_port": "--port", "port": "--grpc-port"}
    with pytest.raises(SettingsError, match=r"^--port must differ from --grpc-port, got 90 for both$"):
        load(Settings, flags={"http_port": 90, "port": 90}, environment={}, folder=tmp_path, options=options)


@pytest.mark.parametrize("given", ["0.1", "61", "nan", "fast", ""])
def test_number_option_outside_its_limits_is_refused_by_name(given: str) -> None:
    """The error of a number option names the option, its limits and the value; nan is outside of all limits."""
    with pytest.raises(InvalidArgumentError, match=f"^--interval must be a number from 0.2 to 60, got '{given}'$"):
        number("--interval", 0.2, 60)(given)


def test_number_options_accept_their_limits_and_defaults() -> None:
    """Limits are allowed values, and a default that is a number already stays."""
    assert [number("--interval", 0.2, 60)(given) for given in ("0.2", "60", 1.5)] == [0.2, 60, 1.5]
    assert [whole_number("--limit", 1)(given) for given in ("1", 20)] == [1, 20]
    with pytest.raises(InvalidArgumentError, match=r"^--limit must be a whole number of at least 1, got '1.5'$"):
        whole_number("--limit", 1)("1.5")


class Keeper(msgspec.Struct, frozen=True):
    """Settings with a secret."""

    token: Annotated[str, msgspec.Meta(description="text"), SECRET] = ""
    url: Annotated[str, msgspec.Meta(description="text")] = ""


def test_secrets_are_masked() -> None:
    """A secret is masked if it is set, and so are the credentials in an address."""
    fields = fields_of(Keeper)
    assert shown(fields["token"], "hunter2") == MASK
    assert shown(fields["token"], "") == ""
    assert shown(fields["url"], "postgresql://me:hunter2@db:5432/x") == f"postgresql://{MASK}@db:5432/x"
    assert shown(fields["url"], "./a@b") == "./a@b"


def test_failed_jobs_are_kept_as_long_as_others_unless_told() -> None:
    """By default FAILED jobs are kept at least as long as others, but their own retention may be shorter."""
    month_ms, hour_ms = 30 * 86_400_000, 3_600_000
    assert Settings().failed_retention_ms == 7 * 86_400_000
    assert Settings(retain_ms=month_ms).failed_retention_ms == month_ms
    assert Settings(retain_ms=month_ms, retain_failed_ms=hour_ms).failed_retention_ms == hour_ms


def test_token_may_stand_in_a_file(tmp_path: Path) -> None:
    """HOLDFAST_TOKEN_FILE names a file with the token, as containers provide secrets, and the origin names it."""
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
    """A token file that is missing, empty or not text, or that is given beside a token, is refused."""
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
    """A problem quotes the address without its password."""
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
    """The SDK and the command line accept the same addresses."""
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
    """The order of nodes, which determines owners, is kept, and invalid or repeated addresses are refused."""
    assert addresses_of(target) == addresses


def test_password_of_a_database_is_never_shown() -> None:
    """The password of a database URL, in its user part or its query, is shown neither in settings nor in errors."""
    url = "postgresql://me:secret@db/jobs?sslpassword=hidden&host=x"
    loaded = load(Settings, flags={"database": url}, environment={}, folder=Path("/nowhere"))
    seen = str(shown(FIELDS["database"], loaded.settings.database))
    assert seen == "postgresql://********@db/jobs?sslpassword=********&host=x"
    with pytest.raises(SettingsError) as refused:
        load(Settings, flags={"database": "mysql://me:secret@db/jobs"}, environment={}, folder=Path("/nowhere"))
    assert "secret" not in refused.value.message
