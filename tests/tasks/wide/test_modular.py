"""Number theory in several lines: what its rules are made of, worked by hand."""

from __future__ import annotations

import pytest

from repl_rl.tasks.sympy_proofs.wide.modular import _joined

pytestmark = pytest.mark.slow


def test_remainders_are_joined_to_the_least_number() -> None:
    assert _joined((2, 3, 2), (3, 5, 7)) == 23
