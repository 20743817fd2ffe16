"""The protection of a server: tokens, rate limits and certificates, loaded before anything is opened."""

from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.process.private_paths import check_holder
from holdfast.server.auth import certificates
from holdfast.server.auth.certificates import Certificates
from holdfast.server.auth.rate_limits import Budgets
from holdfast.server.auth.token_guard import TokenGuard
from holdfast.settings import Settings, is_loopback


class Protection(msgspec.Struct, frozen=True):
    """The guard and the certificates, the same for every protocol."""

    guard: TokenGuard
    certificates: Certificates | None

    def start(self) -> None:
        """Starts checking tokens and certificates for changes."""
        self.guard.start()
        if self.certificates is not None:
            self.certificates.start()

    def stop(self) -> None:
        """Stops checking."""
        self.guard.stop()
        if self.certificates is not None:
            self.certificates.stop()


def protect(settings: Settings) -> Protection:
    """Loads tokens and certificates; `FailedPreconditionError` says what is missing or damaged."""
    path = Path(settings.tokens_file) if settings.tokens_file else None
    if path is not None and path.parent.is_dir():
        # If another user could remove the token file, the next start would need no tokens.
        check_holder(path.parent)
    guard = TokenGuard(path, Budgets(settings.rate_limit, settings.work_rate_limit))
    found = certificates.read(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    if guard.is_open and not (settings.insecure or is_loopback(settings.host)):
        where = "--tokens FILE" if path is None else f"`holdfast token create --scopes admin --data {path.parent}`"
        raise FailedPreconditionError(
            f"expected tokens before listening on {settings.host!r}, because every client there could do everything:"
            f" provide them with {where}, or use --insecure if something else protects the jobs",
            reason="TOKENS_MISSING",
        )
    return Protection(guard, found)
