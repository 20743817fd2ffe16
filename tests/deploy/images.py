"""The image under test, without a registry: its base from Debian's packages, the product from a wheelhouse.

Both are slow to make and seldom change, so they are kept in a cache of the user, under hashes of their inputs. Only one
process at a time makes them, and incomplete ones are never visible.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.engines import CONTAINERS
from tests.deploy.engine import PATH, Engine
from tests.engines import cannot_run

BASE = "holdfast-test-base"
_PACKAGES = ("python3", "python3-venv")
# No running program reads these, and they are half of the size.
_LEFT_OUT = ("./var/cache/apt", "./var/lib/apt/lists", "./usr/share/doc", "./usr/share/man", "./usr/share/locale")
# In memory, because installing packages waits for a disk at every step. The mount ends with the shell.
_BASE_IN_MEMORY = """
folder="$1" packages="$2" release="$3" mirror="$4" packed="$5"
shift 5
mount -t tmpfs -o mode=0755 tmpfs "$folder"
debootstrap --variant=minbase --include="$packages" "$release" "$folder" "$mirror"
tar "$@" -C "$folder" -cf "$packed" .
"""
# pip needs these tags when it downloads for another Python than its own.
_MANYLINUX = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")
_MAKING_S = 600.0


class NoImageError(Exception):
    """The image cannot be made here; the message has the reason."""


def cache() -> Path:
    """Returns the cache folder; `HOLDFAST_TEST_CACHE` overrides it."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    return Path(os.environ.get("HOLDFAST_TEST_CACHE") or usual)


def import_base(engine: Engine) -> str:
    """Imports an image with Python into the engine; returns the Python version."""
    packed = _base()
    engine.docker("import", "-", BASE, stdin=packed)
    _require_exec(engine)
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    return engine.docker("run", "--rm", "--network", "none", BASE, "python3", "-c", asked).strip()


def _require_exec(engine: Engine) -> None:
    """Skips the current test if a command in a running container sees another root.

    This happens in a chroot: the engine cannot make the container's root the root of its mount namespace.
    """
    options = ("--detach", "--rm", "--network", "none", "--tmpfs", "/probe")
    container = engine.docker("run", *options, BASE, "sleep", "infinity").strip()
    done = engine.attempt("docker", "exec", "--workdir", "/probe", container, "true")
    engine.docker("kill", container)
    if done.returncode != 0:
        cannot_run(CONTAINERS, "commands cannot be executed in a running container, as in a chroot")


def _base() -> Path:
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    name = _name(release, platform.machine(), *_PACKAGES, *_LEFT_OUT)

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="holdfast-base-") as folder:
            excluded = [f"--exclude={name}/*" for name in _LEFT_OUT]
            values = (folder, ",".join(_PACKAGES), release, _mirror(release), str(path), *excluded)
            _made_by("unshare", "--mount", "sh", "-ec", _BASE_IN_MEMORY, "sh", *values)

    return _kept(f"base-{release}-{name}.tar", make)


def _mirror(release: str) -> str:
    """Returns the mirror from which this machine gets its own packages."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = _made_by("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    found = [uri for uri, *which in map(str.split, listed.splitlines()) if which == [release, "main"]]
    if not found:
        raise NoImageError("apt has no source of this machine's release to make a base image from")
    return found[0]


def wheelhouse(root: Path, python: str) -> Path:
    """Returns a folder with all packages that pip needs to install the checkout under this Python."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["server"]
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"], *extra]

    def make(path: Path) -> None:
        machine = platform.machine()
        platforms = [part for name in _MANYLINUX for part in ("--platform", f"{name}_{machine}")]
        suits = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms)
        quiet = ("--quiet", "--disable-pip-version-check")
        _made_by(sys.executable, "-m", "pip", "download", *quiet, *suits, "--dest", str(path), *wanted)

    return _kept(f"wheels-{python}-{_name(platform.machine(), *wanted)}", make)


def clean_checkout(root: Path, folder: Path, wheels: Path) -> Path:
    """Copies the files that a clone would have, and adds a full wheelhouse."""
    listed = _made_by("git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    shutil.copytree(wheels, folder / "deploy/wheelhouse", dirs_exist_ok=True)
    return folder


def _name(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    path = cache() / name
    with _alone():
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache(), prefix="making-") as folder:
                make(Path(folder) / name)
                (Path(folder) / name).rename(path)
    return path


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made_by(*command: str) -> str:
    environment = os.environ | {"PATH": PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_MAKING_S, check=False)
    if done.returncode != 0:
        raise NoImageError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2_000:]}")
    return done.stdout
