"""What protects a server, as its settings and its directory say; made before anything is opened."""

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
    """The same for every protocol."""

    guard: TokenGuard
    certificates: Certificates | None

    def start(self) -> None:
        """Looks for changes of tokens and certificates from now on."""
        self.guard.start()
        if self.certificates is not None:
            self.certificates.start()

    def stop(self) -> None:
        """No more."""
        self.guard.stop()
        if self.certificates is not None:
            self.certificates.stop()


def protect(settings: Settings) -> Protection:
    """`FailedPreconditionError` says what is missing or damaged."""
    path = Path(settings.tokens_file) if settings.tokens_file else None
    if path is not None and path.parent.is_dir():
        # A user who may remove the file opens the server at its next start.
        check_holder(path.parent)
    guard = TokenGuard(path, Budgets(settings.rate_limit, settings.work_rate_limit))
    found = certificates.read(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    if guard.is_open and not (settings.insecure or is_loopback(settings.host)):
        where = "--tokens FILE" if path is None else f"`holdfast token create --scopes admin --data {path.parent}`"
        raise FailedPreconditionError(
            f"expected tokens before listening on {settings.host!r}, because anybody there could do everything:"
            f" make one with {where}, or say --insecure where something else protects the jobs",
            reason="TOKENS_MISSING",
        )
    return Protection(guard, found)
