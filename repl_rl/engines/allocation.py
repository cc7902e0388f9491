"""Keep the memory that tensors on a CPU give back.

By default glibc asks the kernel for every large block anew and gives it back at once, so each
tensor costs a page fault for every 4 KiB of it, and the kernel's zeroing of the page. An update of
135 M weights on two cores spends a quarter of its time so. The price is memory that stays with the
process between peaks. Glibc's parameters: mallopt(3).
"""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """From now on, in this process; without effect where the C library is not glibc."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
