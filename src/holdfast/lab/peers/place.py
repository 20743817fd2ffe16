"""Where a trial takes place. The trial's processes learn it from their environment."""

import os
from pathlib import Path

REDIS = "LAB_REDIS_URL"
FOLDER = "LAB_FOLDER"


def redis_url(database: int = 0) -> str:
    """The private Redis of this trial; messages and results are kept in databases of their own."""
    return f"{os.environ[REDIS]}/{database}"


def folder() -> Path:
    """The trial's own folder."""
    return Path(os.environ[FOLDER])
