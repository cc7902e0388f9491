"""Memory that tensors give back stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import ctypes, resource, torch
from repl_rl.models.loading import keep_freed_memory

def faults_of_ten(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(size, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

size = 64 << 20
given_back = faults_of_ten(size)
keep_freed_memory()
faults_of_ten(size)
print(given_back, faults_of_ten(size))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_block_that_is_asked_for_again_costs_no_page_faults() -> None:
    """64 MiB are 16,384 pages of 4 KiB, fewer where the kernel gives larger ones."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    given_back, kept = map(int, ended.stdout.split())
    assert given_back >= 10 * 32
    assert kept < 16
