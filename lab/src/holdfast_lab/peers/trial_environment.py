"""Folder and addresses of a trial, which its processes read from their environment."""

import os
from pathlib import Path

REDIS = "LAB_REDIS_URL"
FOLDER = "LAB_FOLDER"
HOLDFAST = "LAB_HOLDFAST_URL"


def redis_url(database: int = 0) -> str:
    """A database of the trial's private Redis; messages and results have databases of their own."""
    return f"{os.environ[REDIS]}/{database}"


def folder() -> Path:
    """The folder of the trial."""
    return Path(os.environ[FOLDER])


def holdfast_url() -> str:
    """The trial's Holdfast: a server if one was started, else a directory."""
    return os.environ.get(HOLDFAST) or str(folder() / "jobs")
