"""Ours beside what one would use instead: `python benchmarks/compare.py`, half an hour at most.

Measures one case after the other, each in a process of its own with a deadline, says first how long
they take, and keeps the rows in docs/compare.json, with day, machine and versions. Then it writes
docs/compare.md and its pictures of what is kept, and of the rows of `benchmarks/breadth.py`. A case
that fails leaves the rows that it had, with their own day, and the page says so. Exit code 1 if a
case has failed. `--only NAME ...` measures some cases; `--page` measures none.

Peers are packages of others; `make compare` makes an environment that has all of them. Executors
that are not installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import processor
from breadth import FILE, read
from compare_page import page
from compare_pictures import draw
from compare_rows import CASES, Row

PAGE = FILE.with_name("compare.md")
MOST_S = 1740.0
"""For all cases: half an hour, less what reading and drawing take."""
END_S = 15.0
Found = dict[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=PAGE, help="the page")
    parser.add_argument("--breadth", type=Path, default=FILE, help="rows of breadth.py")
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--page", action="store_true", help="write the page of what is kept")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    if args.case:
        for row in CASES[args.case].measure():
            print("ROW", json.dumps(row), flush=True)
        return
    file = args.output.with_suffix(".json")
    found: Found = json.loads(file.read_text()) if file.exists() else {}
    has_failed = False
    for name, before in [] if args.page else measured_one_by_one(args.only, found):
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(said(name, before), flush=True)
        has_failed |= "failed" in before
    rows = read(args.breadth)
    args.output.write_text(page(found, rows))
    draw(found, rows, args.output.parent / "pictures")
    print(args.output)
    sys.exit(has_failed)


def measured_one_by_one(names: Sequence[str], found: Found) -> Any:
    """Measure cases into `found`; yields each name with what its try gave."""
    for name in names:
        print(f"{name:<10} {CASES[name].title:<64} about {CASES[name].minutes:g} min")
    print(
        f"{'all':<10} {'':<64} about {sum(CASES[name].minutes for name in names):g} min", flush=True
    )
    deadline = time.monotonic() + MOST_S
    for name in names:
        tried = measured(name, min(CASES[name].limit_s, deadline - time.monotonic()))
        found[name] = kept(found.get(name), tried)
        yield name, tried


def measured(name: str, limit_s: float) -> dict[str, Any]:
    """Measure a case within its limit; `failed` says why it is not whole.

    `load` is how many processes wanted a core in the minute before: more than 0 is a busy machine.
    """
    started, why, load = time.monotonic(), None, os.getloadavg()[0]
    command = [sys.executable, __file__, "--case", name]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            if process.wait(max(limit_s, 1)):
                why = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            why = f"cut after {limit_s:.0f} s"
        finally:
            end(process)
        out.seek(0)
        errors.seek(0)
        if why is not None:
            why += f": {(errors.read().strip().splitlines() or ['?'])[-1][:200]}"
        words = [line for line in out.read().splitlines() if line.startswith("ROW ")]
    return {
        "date": str(datetime.date.today()),
        "machine": f"{os.cpu_count()} cores, {processor()}, Python {platform.python_version()}",
        "versions": versions(CASES[name].packages),
        "load": round(load, 1),
        "seconds": round(time.monotonic() - started),
        "rows": [json.loads(line.removeprefix("ROW ")) for line in words],
        **({} if why is None else {"failed": why}),
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its session; it has seconds to end what it has started elsewhere."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # all of its session has ended
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def kept(before: dict[str, Any] | None, tried: dict[str, Any]) -> dict[str, Any]:
    """The later try where it is whole or there is no other; else the earlier, with why."""
    if "failed" not in tried or not (before or {}).get("rows"):
        return tried
    assert before is not None
    return {**before, "tried": {"date": tried["date"], "failed": tried["failed"]}}


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def said(name: str, tried: dict[str, Any]) -> str:
    """A try as lines of text."""
    lines = [f"\n## {name}, {tried['seconds']} s"]
    lines += [f"  {cells(row)}" for row in tried["rows"]]
    return "\n".join([*lines, *([f"  failed: {tried['failed']}"] if "failed" in tried else [])])


def cells(row: Row) -> str:
    if "what" not in row:
        return json.dumps(row)
    return f"{row['what']}, {row['unit']}: {row['ours']:,g}, {row['peer']} {row['theirs']:,g}"


if __name__ == "__main__":
    main()
