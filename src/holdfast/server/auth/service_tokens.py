"""Service tokens: authentication between the processes of one topology, for every protocol.

Each process that calls others has its own token. A process that is called knows only the hashes of its callers'
tokens, by role. Both come from the environment: `SERVICE_TOKEN`, `SERVICE_TOKEN_HASHES`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import UnauthenticatedError

#: The variables with a process's own token, and with the hashes of its callers' tokens.
OWN, KNOWN = "SERVICE_TOKEN", "SERVICE_TOKEN_HASHES"
PATTERN = r"^([!-~]{32,256})?$"
EXPECTED = "32 to 256 visible ASCII characters"
_TOKEN_BYTES = 32


def hash_of(token: str) -> str:
    """Returns the hash by which other processes know a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def hashes_pattern(callers: Iterable[str]) -> str:
    """Returns the pattern for the text of hashes with these callers as roles."""
    pair = f"({'|'.join(callers)}):[0-9a-f]{{64}}"
    return f"^({pair}(,{pair})*)?$"


def hashes_in(text: str) -> dict[str, list[str]]:
    """Parses `role:hash,role:hash` by role; a role may have several hashes while its token is replaced."""
    hashes: dict[str, list[str]] = {}
    for pair in filter(None, text.split(",")):
        role, _, digest = pair.partition(":")
        hashes.setdefault(role, []).append(digest)
    return hashes


class GeneratedTokens(msgspec.Struct, frozen=True):
    """New tokens by role, and the text of their hashes."""

    tokens: Mapping[str, str]
    hashes: str


def make_tokens(callers: Iterable[str]) -> GeneratedTokens:
    """Creates a token for each caller."""
    tokens = {caller: secrets.token_urlsafe(_TOKEN_BYTES) for caller in callers}
    return GeneratedTokens(tokens, ",".join(f"{caller}:{hash_of(token)}" for caller, token in tokens.items()))


class ServiceTokens:
    """Finds the role of a caller by its token."""

    def __init__(self, hashes: Mapping[str, Sequence[str]]) -> None:
        """`hashes` maps each role to the hashes of its tokens."""
        self._hashes = [(role, digest) for role, digests in hashes.items() for digest in digests]

    def role_of(self, token: str) -> str:
        """Returns the role of this token; `UnauthenticatedError` if no role has it."""
        digest = hash_of(token)
        # Compare every hash, each in constant time, so that the duration reveals nothing.
        roles = [role for role, known in self._hashes if hmac.compare_digest(digest, known)]
        if not roles:
            raise UnauthenticatedError(
                "unknown service token: the caller's SERVICE_TOKEN must match the SERVICE_TOKEN_HASHES of this process",
                reason="TOKEN_UNKNOWN",
            )
        return roles[0]
