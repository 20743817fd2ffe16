"""Settings that the processes of both sides read from their environment."""

import os

#: The URL of Procrastinate's database, and the largest number of connections in its pool.
DATABASE = "LAB_DATABASE_URL"
POOL = "LAB_POOL"
POOL_DEFAULT = "20"
#: The argument of every job, on both sides.
ARGUMENT = "x" * 80


def database() -> str:
    """The URL of Procrastinate's database."""
    return os.environ.get(DATABASE, "")


def pool() -> int:
    """The largest number of connections of one process of Procrastinate."""
    return int(os.environ.get(POOL, POOL_DEFAULT))
