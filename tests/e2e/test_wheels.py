"""The two distributions, built as wheels and installed into an empty environment."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IGNORED = shutil.ignore_patterns(".git", ".venv*", "*.egg-info", "__pycache__", "build", "dist", ".*_cache", "tests")


@pytest.fixture(scope="module")
def wheels(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels `holdfast` and `holdfast-lab`, built from a copy of the tree."""
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    shutil.copytree(root, source, ignore=_IGNORED)
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source), str(source / "lab"))
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment without both distributions; it has the dependencies of the test run."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "holdfast" not in path.name:
            (packages / path.name).symlink_to(path)
    yield folder
    shutil.rmtree(folder)


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def install(environment: Path, wheels: Path, name: str) -> None:
    python = environment / "bin" / "python"
    options = ["--quiet", "--no-deps", "--no-index", "--find-links", str(wheels), "--force-reinstall"]
    pip("--python", str(python), "install", *options, name)


def holdfast(environment: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin" / "python"), "-P", "-m", "holdfast", *arguments]
    return subprocess.run(command, cwd=environment, capture_output=True, text=True, check=False)


def names_in(wheels: Path, pattern: str) -> set[str]:
    (wheel,) = wheels.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_product_contains_no_laboratory(wheels: Path) -> None:
    """The wheel of the product has only its own package, with its data files."""
    names = names_in(wheels, "holdfast-*.whl")
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"holdfast"}
    assert "holdfast/py.typed" in names
    assert any(name.startswith("holdfast/server/dashboard/assets/") for name in names)
    assert any(name.endswith(".sql") for name in names)


def test_laboratory_contains_no_product(wheels: Path) -> None:
    """The wheel of the laboratory has only its own package."""
    names = names_in(wheels, "holdfast_lab-*.whl")
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"holdfast_lab"}
    assert "holdfast_lab/compare/report.css" in names


def test_commands_of_the_laboratory_come_with_its_wheel(wheels: Path, environment: Path) -> None:
    """Without the second wheel the laboratory's commands print the package to install, and with it they run."""
    install(environment, wheels, "holdfast")
    for arguments in (["bench"], ["lab", "torture", "--minutes", "1"], ["lab", "--help"]):
        missing = holdfast(environment, *arguments)
        assert (missing.returncode, missing.stdout) == (4, "")
        assert missing.stderr.count("\n") == 1
        assert "pip install holdfast-lab" in missing.stderr
    assert "Compare topologies" in holdfast(environment, "--help").stdout
    install(environment, wheels, "holdfast-lab")
    shown = holdfast(environment, "lab", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "torture" in shown.stdout
    assert "replay" in holdfast(environment, "bench", "--help").stdout


def test_installed_product_keeps_a_job(wheels: Path, environment: Path) -> None:
    """The product installed from its wheel accepts a job and lists it."""
    install(environment, wheels, "holdfast")
    submitted = holdfast(environment, "job", "submit", "echo", "hello", "--connect", str(environment / "jobs"))
    assert submitted.returncode == 0, submitted.stderr
    listed = holdfast(environment, "job", "list", "--json", "--connect", str(environment / "jobs"))
    assert submitted.stdout.strip() in listed.stdout


def test_damaged_plugin_fails_alone(wheels: Path, environment: Path) -> None:
    """A command of a distribution that cannot be imported fails, and the other commands work."""
    install(environment, wheels, "holdfast")
    install(environment, wheels, "holdfast-lab")
    shutil.rmtree(next(environment.glob("lib/python*/site-packages")) / "holdfast_lab")
    failed = holdfast(environment, "lab", "compare")
    assert (failed.returncode, failed.stdout) == (4, "")
    assert "`holdfast lab` cannot be loaded from holdfast_lab.cli.lab:app" in failed.stderr
    assert holdfast(environment, "--help").returncode == 0
