"""The image of a ledger, in chunks: it loads as the state that it was made from, or raises the documented error."""

import msgspec

from holdfast.core import image
from holdfast.core.ledger import LedgerConfig
from tests.fuzz.depth import deepened
from tests.fuzz.parts import packed, unpacked
from tests.unit.core.ledger_driver import LedgerDriver
from tests.unit.core.test_image import eventful

_CONFIG = LedgerConfig(aging_ms=60_000, dedup_keys_max=0)


def seeds() -> list[bytes]:
    """The images of a ledger with an eventful history and of an empty one."""
    chunks = list(image.dump(eventful(LedgerDriver()).ledger))
    return [packed(chunks), packed(map(deepened, chunks)), packed(image.dump(LedgerDriver().ledger))]


def fuzz(data: bytes) -> None:
    """Loads the chunks; the image of the loaded ledger must load as the same state."""
    try:
        ledger = image.load(unpacked(data), _CONFIG)
    except msgspec.MsgspecError:
        return
    chunks = list(image.dump(ledger))
    assert list(image.dump(image.load(chunks, _CONFIG))) == chunks
