"""Finds and runs the programs of PostgreSQL as Debian installs them.

PostgreSQL refuses to run as root. Root runs it as the user `postgres`, which may have no access to the folders above
the directory: so this process opens the directory, and the programs inherit and use the descriptor. A program receives
SIGQUIT when the thread that started it ends.
"""

import os
import pwd
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast.process.engine_process import Popen, spawn_engine

#: The folder of Debian's packages, with a folder for each version.
INSTALLED = Path("/usr/lib/postgresql")

_ACCOUNT = "postgres"


class Account(msgspec.Struct, frozen=True):
    """The user that runs the programs; `is_other`: not the user of this process."""

    uid: int
    gid: int
    is_other: bool = False


class PostgresPrograms(msgspec.Struct, frozen=True):
    """The programs of one version, and the account that runs them."""

    folder: Path
    account: Account

    def give(self, path: Path) -> None:
        """Creates a folder that only the account of the programs may use."""
        path.mkdir(mode=0o700)
        if self.account.is_other:
            os.chown(path, self.account.uid, self.account.gid)

    def start(self, program: str, *arguments: str, directory: int, output: BinaryIO | int) -> Popen:
        """Starts a program that inherits the open directory."""
        account = self.account
        other = ["--reuid", str(account.uid), "--regid", str(account.gid), "--clear-groups"] if account.is_other else []
        command = [str(self.folder / program), *arguments]
        return spawn_engine(command, death_signal="QUIT", account=other, directory=directory, output=output)


def find_programs(data: Path, installed: Path = INSTALLED) -> PostgresPrograms:
    """Returns the programs of the data's version, or of the newest version if there is no data yet."""
    versions = {path.parent.parent.name: path.parent for path in installed.glob("*/bin/postgres")}
    marked = data / "PG_VERSION"
    wanted = marked.read_text().strip() if marked.exists() else max(versions, key=float, default="")
    if wanted not in versions:
        name = f"postgresql-{wanted}" if wanted else "postgresql"
        message = f"cannot find PostgreSQL {wanted}".rstrip()
        message = f"{message} on this machine: run `apt-get install {name}`, or name a database with --database"
        raise FailedPreconditionError(message, reason="POSTGRES_MISSING")
    return PostgresPrograms(versions[wanted], _account(data))


def _account(data: Path) -> Account:
    """Returns the owner of the data; for new data this user, or the user `postgres` if this is root."""
    own = os.geteuid()
    if own != 0:
        return Account(own, os.getegid())
    if data.exists():
        status = data.stat()
        return Account(status.st_uid, status.st_gid, is_other=True)
    try:
        user = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        message = f"PostgreSQL does not run as root, and there is no user {_ACCOUNT}: run `apt-get install postgresql`"
        raise FailedPreconditionError(message, reason="POSTGRES_MISSING") from None
    return Account(user.pw_uid, user.pw_gid, is_other=True)
