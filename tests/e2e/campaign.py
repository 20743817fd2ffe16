"""How long a campaign of kills is, and where its chance begins: `make kills` makes it long, SEED makes it the same."""

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def kills_each(otherwise: int) -> int:
    """How often each victim is killed."""
    return int(os.environ.get("KILLS", "") or otherwise)


def seed(otherwise: int) -> int:
    """What every choice of a campaign follows from."""
    return int(os.environ.get("SEED", "") or otherwise)


def victims(candidates: Iterable[T], each: int, draw: random.Random) -> list[T]:
    """Every one of them so many times, in an order of chance."""
    order = [victim for victim in candidates for _ in range(each)]
    draw.shuffle(order)
    return order
