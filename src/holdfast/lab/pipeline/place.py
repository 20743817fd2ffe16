"""Where both sides find what they need: told by the environment, because they are processes of their own."""

import os

#: The url of our gateway, and of the database of the other side.
GATEWAY = "LAB_GATEWAY_URL"
DATABASE = "LAB_DATABASE_URL"
#: What each job carries, on both sides.
ARGUMENT = "x" * 80
#: Where in the environment the other side finds how many connections its pool may have.
POOL = "LAB_POOL"
POOL_DEFAULT = "20"


def gateway() -> str:
    """Ours."""
    return os.environ.get(GATEWAY, "memory://")


def database() -> str:
    """The other side's."""
    return os.environ.get(DATABASE, "")


def pool() -> int:
    """How many connections a process of the other side may have."""
    return int(os.environ.get(POOL, POOL_DEFAULT))
