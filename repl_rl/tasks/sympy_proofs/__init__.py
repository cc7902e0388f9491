"""Short exact problems for sympy: identities, equations, number theory, calculus."""

from repl_rl.tasks.sympy_proofs.task import SympyProofs

__all__ = ["SympyProofs"]
