"""Install a release as a stranger does: `make test-dist`, or `python benchmarks/install.py --help`.

dist/ + what it depends on, downloaded once -> an index on loopback -> an empty environment, by
pip's own defaults and with an empty cache -> seconds, MB, the commands of a first look elsewhere

Each Python that is named has an environment of its own. Ends with 1 if a command fails or a limit
is passed. Knows pip and the two distributions, and imports neither.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from loopback_index import LoopbackIndex, bare_environment, serve

BASE_S = 30.0
BASE_MB = 60.0
LOOKS = (("--version",), ("doctor",), ("tasks",), ("config", "grpo.steps"))
"""Commands that a base installation has, beside training."""
TRAIN = ("train", "--task", "sympy-proofs", "--output", "run")
IN_SHORT = (
    *("--model", "starter", "--set", "grpo.steps=2", "--set", "grpo.problems_per_step=2"),
    *("--set", "eval.problems=10", "--set", "sampling.device=cpu"),
)
STARTER = """
from dataclasses import replace
from pathlib import Path
import repl_rl as rr
from repl_rl.training.train import DEFAULT_RECIPE, make_starter
from repl_sandbox import Isolation

recipe = replace(DEFAULT_RECIPE, num_demonstrations=300, steps=30)
task, _ = rr.load_task("sympy-proofs")
make_starter(task, recipe, Path("starter").absolute(), rr.Progress(), isolation=Isolation.AUTO)
"""
"""Makes what the default run makes first, of a twentieth of the work: a minute in place of ten."""
AFTER = (("show", "run"), ("reward", "explain", "run"), ("replay", "run", "--html", "run.html"))
ORIGIN = "import repl_rl, repl_sandbox; print(repl_rl.__file__, repl_sandbox.__file__)"


@dataclass(frozen=True, slots=True)
class Measured:
    """One installation."""

    seconds: float
    cpu_s: float
    megabytes: float
    on_disk_mb: float


def main() -> None:
    args = parser().parse_args()
    failed = False
    for python in args.python:
        with tempfile.TemporaryDirectory(prefix="repl-rl-install-") as scratch:
            failed |= not stranger(python, args, Path(scratch))
    sys.exit(failed)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dist", type=Path, default=Path("dist"), help="files of the release")
    parser.add_argument("--mirror", type=Path, default=Path("build/mirror"))
    parser.add_argument("--wheels", type=Path, help="folder that the mirror is filled from, too")
    parser.add_argument("--train", action="store_true", help="with the extra, and a short training")
    parser.add_argument("--whole", action="store_true", help="the whole default run: 13 minutes")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("python", nargs="+", help="interpreters, each tried by itself")
    return parser


def stranger(python: str, args: argparse.Namespace, scratch: Path) -> bool:
    """Install by this Python and use it; say how it went. True if all of it did."""
    extra = "[train]" if args.train or args.whole else ""
    version = output([python, "-c", "import platform; print(platform.python_version())"])
    mirror = (args.mirror / version).resolve()
    released = sorted(args.dist.resolve().rglob("*.whl"))
    assert len(released) == 2, f"{args.dist} holds {len(released)} wheels; expected two: make dist"
    fill(python, mirror, released, extra, wheels=args.wheels, scratch=scratch)
    with serve([*{path.parent for path in released}, mirror]) as index:
        measured = install(python, scratch / "env", index, f"repl-rl{extra}")
    print(
        f"Python {version}, repl-rl{extra}: {measured.seconds:.1f} s "
        f"({measured.cpu_s:.1f} of a core), "
        f"{measured.megabytes:.1f} MB downloaded, {measured.on_disk_mb:,.0f} MB on the disk",
        flush=True,
    )
    assert {"repl-rl", "repl-sandbox"} <= set(index.requested)
    is_within = bool(extra) or (measured.seconds <= BASE_S and measured.megabytes <= BASE_MB)
    if not is_within:
        print(f"over the limit of {BASE_S:.0f} s and {BASE_MB:.0f} MB", flush=True)
    return use(scratch, trains=bool(extra), is_whole=args.whole, seed=args.seed) and is_within


def fill(
    python: str,
    mirror: Path,
    released: Sequence[Path],
    extra: str,
    *,
    wheels: Path | None,
    scratch: Path,
) -> None:
    """Have pip download what a release depends on: what its own index would serve a stranger."""
    run([python, "-m", "venv", str(scratch / "fill")])
    sandbox, rl = sorted(released, key=lambda path: path.name, reverse=True)
    asked = [f"repl-sandbox @ {sandbox.as_uri()}", f"repl-rl{extra} @ {rl.as_uri()}"]
    links = ["--find-links", str(wheels)] if wheels else []
    pip = [str(scratch / "fill" / "bin" / "pip"), "download", "--quiet", "--dest", str(mirror)]
    run([*pip, *links, *asked])
    for path in mirror.glob("repl_*.whl"):
        path.unlink()


def install(python: str, home: Path, index: LoopbackIndex, asked: str) -> Measured:
    """The one call that a stranger makes, in an environment that has nothing but pip."""
    run([python, "-m", "venv", str(home)])
    before = size_mb(home)
    # A cache beside gigabytes of torch may fill the disk of a small machine.
    cache = ["--no-cache-dir"] if "[" in asked else ["--cache-dir", str(home.with_name("cache"))]
    pip = [str(home / "bin" / "pip"), "install", "--quiet", *cache]
    began, spent = time.monotonic(), cpu_s()
    run([*pip, "--index-url", index.url, asked])
    seconds = time.monotonic() - began
    return Measured(seconds, cpu_s() - spent, index.num_bytes / 1e6, size_mb(home) - before)


def use(scratch: Path, *, trains: bool, is_whole: bool, seed: int) -> bool:
    """Run the commands of a first look in an empty folder; True if each ended with 0."""
    folder, bin = scratch / "empty", scratch / "env" / "bin"
    folder.mkdir()
    homes = output([str(bin / "python"), "-c", ORIGIN], folder).split()
    assert all(Path(one).is_relative_to(scratch / "env") for one in homes), homes
    command, python = str(bin / "repl-rl"), str(bin / "python")
    calls = [(command, *words) for words in LOOKS]
    if trains and not is_whole:
        calls.append((python, "-c", STARTER))
    if trains:
        train = (*TRAIN, "--seed", str(seed), *(() if is_whole else IN_SHORT))
        calls += [(command, *words) for words in (train, *AFTER)]
    ended = [ended_well(*words, folder=folder) for words in calls]
    return all(ended)


def ended_well(*words: str, folder: Path) -> bool:
    """Run it, say for how long it did, and repeat the line that names solve rates."""
    # No starter of before is found.
    env = bare_environment() | {"REPL_RL_CACHE": str(folder.with_name("kept"))}
    began = time.monotonic()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    shown = "make a small starter" if "-c" in words else " ".join(["repl-rl", *words[1:]])
    print(f"  {time.monotonic() - began:7.1f} s  {shown}: {done.returncode}", flush=True)
    for line in done.stdout.splitlines():
        if line.startswith("held-out solve rate"):
            print(f"{'':11}{line}", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


def run(words: Sequence[str]) -> None:
    """Run it with pip's own defaults; its errors are shown, and end this program."""
    subprocess.run(words, env=bare_environment(), check=True)


def output(words: Sequence[str], folder: Path | None = None) -> str:
    return subprocess.run(
        words, cwd=folder, env=bare_environment(), check=True, capture_output=True, text=True
    ).stdout.strip()


def cpu_s() -> float:
    """CPU seconds of all that this process started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_mb(folder: Path) -> float:
    walked = os.walk(folder)
    files = [Path(home) / name for home, _, names in walked for name in names]
    return sum(path.lstat().st_size for path in files) / 1e6


if __name__ == "__main__":
    main()
