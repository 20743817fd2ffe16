"""`pytest tests/scenarios --rewrite` writes the actual traces into the files.

Read the difference before you commit it: every changed line is a changed behaviour.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the actual traces into the scenario files")


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    """Whether traces are written instead of compared."""
    # The default applies if pytest was started above this folder and does not know the option.
    return bool(request.config.getoption("--rewrite", default=False))
