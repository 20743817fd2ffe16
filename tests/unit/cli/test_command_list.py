"""The list of commands, which is shown without importing their modules."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import program


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_list_of_commands_is_that_of_the_whole_program(arguments: list[str]) -> None:
    """Names, order and help of the list are those of the commands themselves."""
    whole, listed = (CliRunner().invoke(made, arguments) for made in (program(), program(is_list=True)))
    assert "schedule" in whole.output
    assert listed.output == whole.output
    assert listed.exit_code == whole.exit_code


def test_list_imports_no_command() -> None:
    """`holdfast --help` imports neither the modules of commands nor those of topologies."""
    code = (
        "import sys; sys.argv = ['holdfast', '--help']\n"
        "from holdfast.cli.main import main\n"
        "main()\n"
        "print(sorted(name for name in sys.modules if name.startswith('holdfast.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    for module in ("holdfast.cli.job", "holdfast.cli.server", "holdfast.topologies.pipeline.commands", "holdfast_lab"):
        assert f"'{module}'" not in done.stderr
