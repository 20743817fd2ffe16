"""PostgreSQL's programs as Debian installs them, and how one of them is run.

PostgreSQL refuses to run as root. Root runs it as the user `postgres`, who may not even look into the folders above the
directory: so the directory is opened first and handed on, and the programs reach it as a descriptor of theirs.
A program is sent SIGQUIT when the thread that started it ends, however it ends.
"""

import os
import pwd
import subprocess
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.errors import FailedPreconditionError

#: Where Debian's packages put them, a folder for each version.
INSTALLED = Path("/usr/lib/postgresql")

_ACCOUNT = "postgres"

#: Whoever dies before its child has asked to be told of it would not be missed: the child looks once more.
_STARTER = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'


class Account(msgspec.Struct, frozen=True):
    """Who runs the programs; `is_other`: not who runs this process."""

    uid: int
    gid: int
    is_other: bool = False


class PostgresPrograms(msgspec.Struct, frozen=True):
    """The programs of one version, run by one account."""

    folder: Path
    account: Account

    def give(self, path: Path) -> None:
        """Makes a folder that only the programs may use."""
        path.mkdir(mode=0o700)
        if self.account.is_other:
            os.chown(path, self.account.uid, self.account.gid)

    def start(self, program: str, *arguments: str, directory: int, output: BinaryIO | int) -> "subprocess.Popen[bytes]":
        """Starts one that is handed this open directory."""
        command = ["setpriv", "--pdeathsig", "QUIT"]
        if self.account.is_other:
            command += ["--reuid", str(self.account.uid), "--regid", str(self.account.gid), "--clear-groups"]
        command += ["sh", "-c", _STARTER, str(os.getpid()), str(self.folder / program), *arguments]
        return subprocess.Popen(  # noqa: S603 - programs of the machine, arguments of ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[directory],
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
        )


def find_programs(data: Path, installed: Path = INSTALLED) -> PostgresPrograms:
    """Those that fit this data, or the newest if there is none yet."""
    versions = {path.parent.parent.name: path.parent for path in installed.glob("*/bin/postgres")}
    marked = data / "PG_VERSION"
    wanted = marked.read_text().strip() if marked.exists() else max(versions, key=float, default="")
    if wanted not in versions:
        name = f"postgresql-{wanted}" if wanted else "postgresql"
        message = f"there is no PostgreSQL {wanted}".rstrip()
        message = f"{message} on this machine: apt-get install {name}, or name a database with --database"
        raise FailedPreconditionError(message, reason="POSTGRES_MISSING")
    return PostgresPrograms(versions[wanted], _account(data))


def _account(data: Path) -> Account:
    """Whose data it is; of new data, this user's, or the user `postgres` if this is root."""
    own = os.geteuid()
    if own != 0:
        return Account(own, os.getegid())
    if data.exists():
        status = data.stat()
        return Account(status.st_uid, status.st_gid, is_other=True)
    try:
        user = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        message = f"PostgreSQL does not run as root, and there is no user {_ACCOUNT}: apt-get install postgresql"
        raise FailedPreconditionError(message, reason="POSTGRES_MISSING") from None
    return Account(user.pw_uid, user.pw_gid, is_other=True)
