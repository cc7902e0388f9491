"""Texts that travel with the package: the files of `prompts/`.

Knows where files are; does not know what they are for.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def read_text(name: str) -> str:
    """A file of `prompts/`: from the package where it is installed, else from the checkout."""
    packaged = importlib.resources.files("repl_rl") / "prompts" / name
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[1]
    return (checkout / "prompts" / name).read_text(encoding="utf-8")
