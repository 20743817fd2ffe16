"""URLs and addresses that users write: parsed, or refused with a message that shows no password."""

import re

from holdfast.errors import InvalidArgumentError
from holdfast.settings import SECURE_SERVER, SERVER, address_of, addresses_of, masked
from holdfast.topologies.zookeeper.ensemble_url import Ensemble, ensemble_of

_PORT_MAX = 65_535
_SECRET = re.compile(r"(zk://)?[a-z]*:secret@[a-z]+$")
_TEXTS = (
    *("zk://a:2181,b:2181,[::1]:2181/path/more?lease_ms=10000", "zk://a", "a:1,b:2/x", "zk://user:secret@a/x"),
    *("holdfast://127.0.0.1:50051", "holdfasts://a:1,b:2", "a:1,holdfast://b:2", "[::1]:50051", "zk://[", "zk://a#b"),
)


def seeds() -> list[bytes]:
    """Valid URLs, and some invalid ones."""
    return [text.encode() for text in _TEXTS]


def fuzz(data: bytes) -> None:
    """Parses the text as a URL of each kind."""
    text = data.decode("utf-8", "surrogateescape")
    _check_ensemble(text)
    addresses = addresses_of(text)
    assert address_of(text) == (addresses[0] if len(addresses) == 1 else "")
    for address in addresses:
        host, _, port = address.rpartition(":")
        assert host
        assert 0 < int(port) <= _PORT_MAX
    if addresses:
        assert len(set(addresses)) == len(addresses)
        assert addresses_of(f"{SERVER}{','.join(addresses)}") == addresses
        assert addresses_of(f"{SECURE_SERVER}{','.join(addresses)}") == addresses
    assert masked(masked(text)) == masked(text)


def _check_ensemble(text: str) -> None:
    try:
        found = ensemble_of(text)
    except InvalidArgumentError as error:
        assert error.reason == "URL_INVALID"
        assert not (_SECRET.match(text) and "secret" in error.message), "a password was shown"
        return
    assert isinstance(found, Ensemble)
    assert found.root.startswith("/")
    assert ensemble_of(found.url) == found
