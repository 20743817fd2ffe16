"""Deliberately broken variants of Holdfast; each must be caught, or the checks prove nothing.

A variant is one edit of the source: a text that occurs exactly once in a module, and its replacement. It is applied
while the module is imported, in a separate process, so production code contains no switches. The simulator catches most
variants; those that need damaged files are caught by a named test.

`python -m holdfast_lab.sabotage [NAME ...]` prints a table and exits with 1 if a variant escapes.
"""

import argparse
import concurrent.futures
import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: The source in this checkout that the variants change: of the product, and of what the laboratory simulates.
PACKAGE = ROOT / "src" / "holdfast"
LABORATORY = ROOT / "lab" / "src" / "holdfast_lab"
_TABLES = {"sabotage_table.py": "VARIANTS", "sabotage_cluster_table.py": "CLUSTER_VARIANTS"}
ESCAPED, CAUGHT = 0, 1
_TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Variant:
    """One edit; `test` names the pytest node that catches it, otherwise the simulator must.

    `seed` is known to catch it; if it no longer does, the seeds up to `seeds_max` are tried. With `is_cluster` they are
    seeds of the simulated cluster. With `in_lab` the file is in the laboratory: the rules that the database enforces.
    """

    name: str
    file: str
    text: str
    instead: str
    seed: int = 0
    test: str = ""
    seeds_max: int = 150
    events: int = 6_000
    is_cluster: bool = False
    in_lab: bool = False

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return (LABORATORY if self.in_lab else PACKAGE) / self.file

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        package = "holdfast_lab." if self.in_lab else "holdfast."
        return package + self.file.removesuffix(".py").replace("/", ".")

    def apply(self, source: str) -> str:
        """Returns the source with the edit; raises unless the text occurs exactly once."""
        count = source.count(self.text)
        if count != 1:
            raise LookupError(f"variant {self.name}: expected its text once in {self.file}, found it {count} times")
        return source.replace(self.text, self.instead)

    def check(self) -> None:
        """Raises unless the edit can be applied to the current source."""
        compile(self.apply(self.path.read_text()), self.file, "exec")


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with the edit, never from a cache."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant.module, str(variant.path))
        self._variant = variant

    def get_code(self, fullname: str) -> types.CodeType:
        source = self._variant.apply(Path(self.path).read_text())
        return compile(source, self.path, "exec", dont_inherit=True)


class Hook(importlib.abc.MetaPathFinder):
    """Finds the module of a variant before all other finders."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._variant.module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._variant))


def install(variant: Variant) -> None:
    """Makes this process import the broken variant from now on."""
    assert variant.module not in sys.modules, f"{variant.module} was imported before the hook was installed"
    sys.meta_path.insert(0, Hook(variant))


# -- in a separate process


def run_variant(variant: Variant) -> int:
    """Tries to catch the variant; prints how, and returns CAUGHT or ESCAPED."""
    install(variant)
    return _run_test(variant) if variant.test else _run_seeds(variant)


def _run_test(variant: Variant) -> int:
    import pytest  # noqa: PLC0415 - after the hook

    # Without assertion rewriting: pytest would import all modules of a package with a plugin, bypassing the hook.
    options = ["-q", "-x", "--assert=plain"]
    unused = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "schemathesis", "faker", "anyio")]
    code = pytest.main([*options, *unused, str(ROOT / variant.test)])
    loaded = sys.modules[variant.module].__spec__
    assert loaded is not None
    assert isinstance(loaded.loader, _Loader), f"{variant.module} was loaded without the edit"
    print(f"{variant.name}|1|{variant.test}")
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else ESCAPED


def _run_seeds(variant: Variant) -> int:
    seeds = [variant.seed, *(seed for seed in range(variant.seeds_max) if seed != variant.seed)]
    for number, seed in enumerate(seeds, start=1):
        failure = failure_of(variant, seed)
        if failure:
            print(f"{variant.name}|{number}|seed {seed}: {' '.join(failure.split())[:110]}")
            return CAUGHT
    print(f"{variant.name}|{len(seeds)}|")
    return ESCAPED


def failure_of(variant: Variant, seed: int) -> str:
    """Runs a seed of the simulation that the variant belongs to; returns what was broken."""
    from holdfast_lab.simulation.cluster_world import run_cluster_seed  # noqa: PLC0415 - after the hook
    from holdfast_lab.simulation.runner import run_seed  # noqa: PLC0415 - after the hook

    if variant.is_cluster:
        return run_cluster_seed(seed, variant.events).failure
    return run_seed(seed, variant.events).failure


# -- in the main process


@dataclass(frozen=True, slots=True)
class VariantVerdict:
    """The outcome for one variant."""

    name: str
    is_caught: bool
    seeds: str
    how: str


def judge(variant: Variant) -> VariantVerdict:
    """Runs a variant in a new process."""
    # By path and with -P: no module of the package may be imported before the hook is installed.
    command = [sys.executable, "-P", __file__, "--inside", variant.name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(ROOT / "lab" / "src")])}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return VariantVerdict(variant.name, is_caught=False, seeds="", how=f"no verdict within {_TIMEOUT_S} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"{variant.name}|")]
    if not lines or done.returncode not in (CAUGHT, ESCAPED):
        return VariantVerdict(
            variant.name, is_caught=False, seeds="", how=f"failed by itself: {done.stderr.strip()[-300:]}"
        )
    _, seeds, how = lines[-1].split("|", 2)
    return VariantVerdict(variant.name, is_caught=done.returncode == CAUGHT, seeds=seeds, how=how or "nothing")


def judge_all(variants: Sequence[Variant], jobs: int) -> list[VariantVerdict]:
    """Runs variants in parallel; returns the verdicts in order."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, variants))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the variants and prints the table; returns 1 if a variant escapes."""
    variants = _table()
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of variants (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--inside", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        return run_variant(variants[options.inside])
    if unknown := [name for name in options.names if name not in variants]:
        parser.error(f"unknown variant {unknown[0]!r}; expected one of {', '.join(variants)}")
    chosen = [variants[name] for name in options.names] or list(variants.values())
    escaped = 0
    print("| variant | seeds needed | what caught it |\n|---|---|---|")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(judge, chosen):
            escaped += not verdict.is_caught
            how = verdict.how if verdict.is_caught else f"**ESCAPED**: {verdict.how}"
            print(f"| {verdict.name} | {verdict.seeds} | {how} |", flush=True)
    return 1 if escaped else 0


def _table() -> dict[str, Variant]:
    """Reads the variants from the files beside this one, without importing the package."""
    variants = dict[str, Variant]()
    for file, table in _TABLES.items():
        source = Path(__file__).with_name(file).read_text().replace("from holdfast_lab.sabotage import Variant\n", "")
        names: dict[str, object] = {"Variant": Variant}
        exec(compile(source, file, "exec"), names)  # noqa: S102 - our own table
        rows = names[table]
        assert isinstance(rows, tuple)
        variants |= {row.name: row for row in rows}
    return variants


if __name__ == "__main__":
    sys.exit(main())
