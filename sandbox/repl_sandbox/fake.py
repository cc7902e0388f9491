"""Kernels for tests: a script says what each source does, and nothing runs.

Takes the place of a pool. Knows the protocol alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from repl_sandbox.render import clean
from repl_sandbox.types import ExecStatus, Execution, SandboxError

Script = Mapping[str, Execution] | Callable[[str], Execution]
SILENT = Execution(status=ExecStatus.OK)


class FakeKernel:
    """Answers a source from `script`; a source that is not in it is OK and silent.

    After a source in `dies_at`, or a scripted DIED or KILLED, it is dead: every later source ends
    with the same status.

        FakeKernel({"1+1": Execution(status=ExecStatus.OK, output="2\\n")}, dies_at={"os.abort()"})
    """

    def __init__(
        self, script: Script | None = None, *, dies_at: Collection[str] = (), seed: int = 0
    ) -> None:
        self._script = script if script is not None else {}
        self._dies_at = frozenset(dies_at)
        self._ended_as: ExecStatus | None = None
        self.seed = seed
        self.sources: list[str] = []
        """Every source that it ran or evaluated, in order."""
        self.is_closed = False

    async def run(self, source: str) -> Execution:
        """The scripted execution. Raises SandboxError after `aclose`, as a real kernel does."""
        if self.is_closed:
            raise SandboxError("this kernel is closed")
        if self._ended_as is not None:
            return Execution(status=self._ended_as)
        self.sources.append(source)
        execution = self._answer(source)
        if execution.status in (ExecStatus.KILLED, ExecStatus.DIED):
            self._ended_as = execution.status
        return execution

    async def evaluate(self, expression: str) -> Execution:
        """The scripted execution of `expression`, with its `value` cleaned as a real one is."""
        execution = await self.run(expression)
        if execution.value is None:
            return execution
        return replace(execution, value=clean(execution.value))

    async def aclose(self) -> None:
        self.is_closed = True

    def _answer(self, source: str) -> Execution:
        if source in self._dies_at:
            return Execution(status=ExecStatus.DIED)
        if callable(self._script):
            return self._script(source)
        return self._script.get(source, SILENT)


class FakeKernels:
    """A `KernelSource` of fakes that share one script. `kernels` holds all that it handed out."""

    def __init__(self, script: Script | None = None, *, dies_at: Collection[str] = ()) -> None:
        self._script = script
        self._dies_at = dies_at
        self.kernels: list[FakeKernel] = []

    async def acquire(self, *, seed: int) -> FakeKernel:
        kernel = FakeKernel(self._script, dies_at=self._dies_at, seed=seed)
        self.kernels.append(kernel)
        return kernel
