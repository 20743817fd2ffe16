"""Tokens by which the processes of one topology know each other, whatever protocol they speak.

Each process that calls others has a token of its own. Each that is called knows hashes of the tokens, by the role of
their holders, and never a token. Both come by the environment: `SERVICE_TOKEN`, `SERVICE_TOKEN_HASHES`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import UnauthenticatedError

#: Where a process finds its own token, and the hashes of its callers' tokens.
OWN, KNOWN = "SERVICE_TOKEN", "SERVICE_TOKEN_HASHES"
PATTERN = r"^([!-~]{32,256})?$"
EXPECTED = "32 to 256 visible ASCII characters"
_TOKEN_BYTES = 32


def hash_of(token: str) -> str:
    """How a process knows a token that it does not have."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def hashes_pattern(callers: Iterable[str]) -> str:
    """What the text of hashes of these callers has to match."""
    pair = f"({'|'.join(callers)}):[0-9a-f]{{64}}"
    return f"^({pair}(,{pair})*)?$"


def hashes_in(text: str) -> dict[str, list[str]]:
    """The hashes in `role:hash,role:hash`, by role; a role may have several while its token is replaced."""
    hashes: dict[str, list[str]] = {}
    for pair in filter(None, text.split(",")):
        role, _, digest = pair.partition(":")
        hashes.setdefault(role, []).append(digest)
    return hashes


class MadeTokens(msgspec.Struct, frozen=True):
    """Fresh tokens by role, and the text of their hashes."""

    tokens: Mapping[str, str]
    hashes: str


def make_tokens(callers: Iterable[str]) -> MadeTokens:
    """A token for each caller."""
    tokens = {caller: secrets.token_urlsafe(_TOKEN_BYTES) for caller in callers}
    return MadeTokens(tokens, ",".join(f"{caller}:{hash_of(token)}" for caller, token in tokens.items()))


class ServiceTokens:
    """Finds the role of a caller by the token that it shows."""

    def __init__(self, hashes: Mapping[str, Sequence[str]]) -> None:
        """`hashes` are those of each role's tokens."""
        self._hashes = [(role, digest) for role, digests in hashes.items() for digest in digests]

    def role_of(self, token: str) -> str:
        """The role whose token this is; `UnauthenticatedError` if no role has it."""
        digest = hash_of(token)
        # Every hash is compared, and each in constant time: how long it takes tells nothing.
        roles = [role for role, known in self._hashes if hmac.compare_digest(digest, known)]
        if not roles:
            raise UnauthenticatedError("the token is not one that is known here", reason="TOKEN_UNKNOWN")
        return roles[0]
