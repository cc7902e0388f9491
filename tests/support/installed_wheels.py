"""Wheels of what is installed here: an index without a network.

A *shell* has a distribution's metadata, so that pip resolves as it does with the real one, and no
code. Only what builds ours is packed whole, since pip runs it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from loopback_index import normalised


def closure(roots: Iterable[str]) -> dict[str, Distribution]:
    """Requirements and all that they require, by name, as far as it is installed here."""
    found: dict[str, Distribution] = {}
    todo, done = [(Requirement(text), "") for text in roots], set()
    while todo:
        requirement, of_extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        name = normalised(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            try:
                found[name] = distribution(requirement.name)
            except PackageNotFoundError:
                continue
            todo += [(Requirement(text), extra) for text in found[name].requires or ()]
    return found


def pack(installed: Distribution, folder: Path, *, whole: bool = False) -> Path:
    """Write a wheel of it into `folder`, for any Python and machine; `whole`: with its code."""
    stem = f"{normalised(installed.name).replace('-', '_')}-{installed.version}"
    info = f"{stem}.dist-info"
    contents = {
        f"{info}/METADATA": (installed.read_text("METADATA") or "").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if whole:
        if points := installed.read_text("entry_points.txt"):
            contents[f"{info}/entry_points.txt"] = points.encode()
        for file in installed.files or ():
            is_code = ".." not in file.parts and not file.parts[0].endswith(".dist-info")
            if is_code and file.suffix != ".pyc":
                contents[file.as_posix()] = file.read_binary()
    rows = io.StringIO()
    writer = csv.writer(rows)
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(content)])
    writer.writerow([f"{info}/RECORD", "", ""])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in contents.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{info}/RECORD", rows.getvalue())
    return path
