"""Programs that tests need and pip cannot install (engines): their paths, and the Debian packages that contain them.

`python -m scripts.engines TARGET...` installs the missing packages of these engines, as root with apt; without a
target, of all engines that can run here. It prints one line for each engine. The exit code is 1 if an engine is still
missing.

The module uses only the standard library, so that root can run it in the checkout of another user.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_APT_INSTALL = Path(__file__).with_name("apt_install")
#: Folders that an ordinary user's PATH often lacks.
_SYSTEM_FOLDERS = "/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Part:
    """A program or a file of an engine, and the Debian packages that contain it."""

    #: Names of programs, or absolute patterns of files; one of them is enough.
    alternatives: tuple[str, ...]
    packages: tuple[str, ...]

    def find(self) -> str | None:
        """Returns the path of the first alternative on this machine."""
        return next(filter(None, map(_find, self.alternatives)), None)


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that some tests need beside Python."""

    name: str
    #: The make target that installs it.
    target: str
    parts: tuple[Part, ...]
    needs_root: bool = False

    def missing_packages(self) -> tuple[str, ...]:
        """Returns the packages of the parts that this machine lacks."""
        lacking = (part.packages for part in self.parts if part.find() is None)
        return tuple(dict.fromkeys(package for packages in lacking for package in packages))

    def path(self) -> str:
        """Returns the path of the first part of an installed engine."""
        found = self.parts[0].find()
        assert found is not None, f"{self.name} is not installed"
        return found

    def obstacle(self) -> str:
        """Returns why the engine cannot run here even if installed; empty if it can, as far as is known."""
        return "it needs root" if self.needs_root and os.geteuid() != 0 else ""


def _program(name: str, package: str) -> Part:
    return Part((name,), (package,))


SETPRIV = _program("setpriv", "util-linux")

CONTAINERS = Engine(
    "container engine",
    "engine",
    (
        _program("dockerd", "docker.io"),
        _program("docker", "docker.io"),
        _program("docker-compose", "docker-compose"),
        _program("debootstrap", "debootstrap"),
        _program("iptables", "iptables"),
        _program("ip", "iproute2"),
        _program("mount", "mount"),
        _program("unshare", "util-linux"),
        _program("nsenter", "util-linux"),
        _program("git", "git"),
        SETPRIV,
    ),
    needs_root=True,
)
CHROMIUM = Engine(
    "Chromium",
    "chromium",
    (
        Part(("chromium", "chromium-browser", "google-chrome"), ("chromium", "fonts-dejavu-core")),
        # Playwright's driver is linked against this library.
        Part(("/usr/lib/*/libatomic.so.1", "/usr/lib*/libatomic.so.1"), ("libatomic1",)),
    ),
)
POSTGRES = Engine("PostgreSQL", "postgres", (Part(("/usr/lib/postgresql/*/bin/postgres",), ("postgresql",)), SETPRIV))
ZOOKEEPER = Engine(
    "ZooKeeper",
    "zookeeper",
    # The package `zookeeper` starts no server; `zookeeperd` would.
    (Part(("/usr/share/java/zookeeper.jar",), ("zookeeper",)), _program("java", "default-jre-headless"), SETPRIV),
)
STRACE = Engine("strace", "tools", (_program("strace", "strace"),))
IPROUTE = Engine("iproute2", "tools", (_program("ip", "iproute2"),), needs_root=True)
MOUNT = Engine("mount", "tools", (_program("mount", "mount"),), needs_root=True)
SYSTEMD_ANALYZE = Engine("systemd-analyze", "tools", (_program("systemd-analyze", "systemd"),))
CURL = Engine("curl", "tools", (_program("curl", "curl"),))
BEANSTALKD = Engine("beanstalkd", "tools", (_program("beanstalkd", "beanstalkd"),))

ENGINES = (CONTAINERS, CHROMIUM, POSTGRES, ZOOKEEPER, STRACE, IPROUTE, MOUNT, SYSTEMD_ANALYZE, CURL, BEANSTALKD)


def _find(alternative: str) -> str | None:
    if not alternative.startswith("/"):
        return shutil.which(alternative, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")
    return next(map(str, Path("/").glob(alternative.removeprefix("/"))), None)


def install_command(engines: Sequence[Engine]) -> str:
    """Returns the command that installs these engines."""
    return " ".join(["make", *dict.fromkeys(engine.target for engine in engines)])


def can_install() -> bool:
    """Returns whether this process may install Debian packages."""
    return os.environ.get("APT") != "no" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(engine: Engine) -> None:
    """Installs the missing packages of an engine; prints one line, and a second one if that fails."""
    packages = engine.missing_packages()
    if not packages:
        return
    print(f"engines: installing {engine.name} ({' '.join(packages)})", flush=True)
    done = subprocess.run([_APT_INSTALL, *packages], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode != 0:
        print(f"engines: {engine.name} could not be installed: {done.stderr.strip()}", flush=True)


def main(targets: Sequence[str]) -> int:
    """Installs missing engines; returns 1 if one is still missing, 2 for an unknown target."""
    if unknown := set(targets) - {engine.target for engine in ENGINES}:
        print(f"engines: unknown target: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    wanted = [engine for engine in ENGINES if (engine.target in targets if targets else not engine.obstacle())]
    if can_install():
        for engine in wanted:
            install(engine)
    missing = [engine for engine in wanted if engine.missing_packages()]
    if missing:
        names = ", ".join(engine.name for engine in missing)
        print(f"engines: not installed: {names}. On Debian, as root: {install_command(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
