"""Folder and addresses of a trial, which its processes read from their environment."""

import os
from pathlib import Path

WORKERS = "LAB_WORKERS"
STORE = "LAB_STORE"
FOLDER = "LAB_FOLDER"
HOLDFAST = "LAB_HOLDFAST_URL"


def workers() -> int:
    """The number of worker processes of the trial."""
    return int(os.environ.get(WORKERS, "2"))


def store_address() -> str:
    """Host and port of the trial's private store; of PostgreSQL, the URL of an empty database."""
    return os.environ[STORE]


def redis_url(database: int = 0) -> str:
    """A database of the trial's private Redis; messages and results have databases of their own."""
    return f"redis://{store_address()}/{database}"


def folder() -> Path:
    """The folder of the trial."""
    return Path(os.environ[FOLDER])


def holdfast_url() -> str:
    """The trial's Holdfast: a server if one was started, else a directory."""
    return os.environ.get(HOLDFAST) or str(folder() / "jobs")
