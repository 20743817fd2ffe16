"""Where a trial takes place. The trial's processes learn it from their environment."""

import os
from pathlib import Path

REDIS = "LAB_REDIS_URL"
FOLDER = "LAB_FOLDER"
HOLDFAST = "LAB_HOLDFAST_URL"


def redis_url(database: int = 0) -> str:
    """The private Redis of this trial; messages and results are kept in databases of their own."""
    return f"{os.environ[REDIS]}/{database}"


def folder() -> Path:
    """The trial's own folder."""
    return Path(os.environ[FOLDER])


def holdfast_url() -> str:
    """The trial's own Holdfast: a server, where one was started, else a directory."""
    return os.environ.get(HOLDFAST) or str(folder() / "jobs")
