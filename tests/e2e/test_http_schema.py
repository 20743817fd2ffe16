"""The served OpenAPI document is complete: no request causes a server error or an undocumented response."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, clean_environment

#: Without `positive_data_acceptance`: a schema cannot express every rule, such as a valid time zone.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
    *("response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance"),
    "missing_required_header",
)
#: Number of random requests per kind and route, besides examples and edge cases; set EXAMPLES= for more.
EXAMPLES = os.environ.get("EXAMPLES", "2")
#: A request that is both invalid and too large may be refused for either reason.
SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "413", "414", "415", "422", "428", "431"]
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.mark.slow
def test_no_request_finds_an_undocumented_answer(fleet: Fleet, tmp_path: Path) -> None:
    """The server answers example, edge-case and random requests as documented on every route but the event stream."""
    program, _ = fleet.up()
    address = program.ready()["http"]
    report = tmp_path / "report.json"
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"http://{address}/openapi.json"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--no-shrink", "--no-color"),
        *("--seed", os.environ.get("SEED", "20261115")),
        *("--exclude-path", "/api/v1/events", "--checks", ",".join(CHECKS), "--request-timeout", "30"),
        *("--warnings", "off", "--report-json-path", str(report)),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment({}), capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert json.loads(report.read_text())
    assert "bug" not in {line["event"] for line in program.lines()}
