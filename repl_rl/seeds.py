"""Derive one seed from another: every random choice of a run follows from its one seed.

Knows nothing but integers and names.
"""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from a path of names and numbers, equal on every machine and Python.

    `hash()` would differ between processes, and one constant seed per request would restart the
    sampler's generator at every line.

    >>> derive_seed(0, "rollout", 3) == derive_seed(0, "rollout", 3)
    True
    """
    path = "/".join(str(part) for part in parts).encode()
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest()) >> 1
