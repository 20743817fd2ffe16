"""Commands of child processes: none of them has the working directory on its module path."""

import re
from pathlib import Path

import holdfast

#: A command that runs a Holdfast module and is not made by `child_command`.
_WRITTEN_OUT = re.compile(r'sys\.executable, "-m", "holdfast')


def test_no_child_of_ours_is_started_with_the_working_directory_on_its_path() -> None:
    """Every command in the sources that runs a Holdfast module is made by `child_command`, which adds `-P`."""
    package = Path(holdfast.__file__).parent
    found = [str(path) for path in package.rglob("*.py") if _WRITTEN_OUT.search(path.read_text())]
    assert found == []
