"""Deliberately broken variants of Holdfast, each of which must be caught, or the checks prove nothing.

A variant is one edit of the source: a text that occurs exactly once in a module, and what stands there
instead. It is applied while the module is imported, in a process of its own, so production code carries
no switches. The simulator catches most; what is a matter of damaged files is caught by a named test.

`python -m holdfast.testing.sabotage [NAME ...]` prints a table and exits 1 if a variant escapes.
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

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent
ESCAPED, CAUGHT = 0, 1
_TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Variant:
    """One edit. `test` names the pytest node that catches it; without one, the simulator must.

    `seed` is known to catch it; if it no longer does, the seeds up to `seeds_max` are tried.
    """

    name: str
    file: str
    text: str
    instead: str
    seed: int = 0
    test: str = ""
    seeds_max: int = 150
    events: int = 6_000

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        return "holdfast." + self.file.removesuffix(".py").replace("/", ".")

    def apply(self, source: str) -> str:
        """The source with the edit; raises unless the text occurs exactly once."""
        count = source.count(self.text)
        if count != 1:
            raise LookupError(f"variant {self.name}: expected its text once in {self.file}, found it {count} times")
        return source.replace(self.text, self.instead)

    def check(self) -> None:
        """Raises unless the edit can be applied to the source as it is."""
        compile(self.apply((PACKAGE / self.file).read_text()), self.file, "exec")


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with the edit in it, and never from a cache."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant.module, str(PACKAGE / variant.file))
        self._variant = variant

    def get_code(self, fullname: str) -> types.CodeType:
        source = self._variant.apply(Path(self.path).read_text())
        return compile(source, self.path, "exec", dont_inherit=True)


class Hook(importlib.abc.MetaPathFinder):
    """Finds the one module of a variant before anyone else does."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._variant.module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._variant))


def install(variant: Variant) -> None:
    """From now on this process imports the broken variant."""
    assert variant.module not in sys.modules, f"{variant.module} was imported before it could be broken"
    sys.meta_path.insert(0, Hook(variant))


# -- in a process of its own


def run_variant(variant: Variant) -> int:
    """Tries to catch the variant; prints how, and returns CAUGHT or ESCAPED."""
    install(variant)
    return _run_test(variant) if variant.test else _run_seeds(variant)


def _run_test(variant: Variant) -> int:
    import pytest  # noqa: PLC0415 - after the hook

    # Without rewriting: pytest would load every module of a package that brings a plugin by itself, past the hook.
    options = ["-q", "-x", "--assert=plain"]
    unused = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "schemathesis", "faker", "anyio")]
    code = pytest.main([*options, *unused, str(ROOT / variant.test)])
    loaded = sys.modules[variant.module].__spec__
    assert loaded is not None
    assert isinstance(loaded.loader, _Loader), f"{variant.module} was loaded as it is, not broken"
    print(f"{variant.name}|1|{variant.test}")
    return CAUGHT if code == pytest.ExitCode.TESTS_FAILED else ESCAPED


def _run_seeds(variant: Variant) -> int:
    from holdfast.testing.simulation.runner import run_seed  # noqa: PLC0415 - after the hook

    seeds = [variant.seed, *(seed for seed in range(variant.seeds_max) if seed != variant.seed)]
    for number, seed in enumerate(seeds, start=1):
        outcome = run_seed(seed, variant.events)
        if outcome.failure:
            print(f"{variant.name}|{number}|seed {seed}: {' '.join(outcome.failure.split())[:110]}")
            return CAUGHT
    print(f"{variant.name}|{len(seeds)}|")
    return ESCAPED


# -- from outside


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went with one variant."""

    name: str
    is_caught: bool
    seeds: str
    how: str


def judge(variant: Variant) -> Verdict:
    """Runs a variant in a fresh process."""
    # By path and with -P: nothing of the package may be imported before the hook stands.
    command = [sys.executable, "-P", __file__, "--inside", variant.name]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(variant.name, is_caught=False, seeds="", how=f"no verdict within {_TIMEOUT_S} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"{variant.name}|")]
    if not lines or done.returncode not in (CAUGHT, ESCAPED):
        return Verdict(variant.name, is_caught=False, seeds="", how=f"broke itself: {done.stderr.strip()[-300:]}")
    _, seeds, how = lines[-1].split("|", 2)
    return Verdict(variant.name, is_caught=done.returncode == CAUGHT, seeds=seeds, how=how or "nothing")


def judge_all(variants: Sequence[Variant], jobs: int) -> list[Verdict]:
    """Runs variants side by side, in their order."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, variants))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a variant escapes."""
    variants = _table()
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="variants; all if none is named")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--inside", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        return run_variant(variants[options.inside])
    if unknown := [name for name in options.names if name not in variants]:
        parser.error(f"there is no variant {unknown[0]!r}; all: {', '.join(variants)}")
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
    """The variants, read from beside this file without importing the package."""
    path = Path(__file__).with_name("sabotages.py")
    source = path.read_text().replace("from holdfast.testing.sabotage import Variant\n", "")
    names: dict[str, object] = {"Variant": Variant}
    exec(compile(source, str(path), "exec"), names)  # noqa: S102 - our own table
    rows = names["VARIANTS"]
    assert isinstance(rows, tuple)
    return {row.name: row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
