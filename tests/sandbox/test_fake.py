"""The fake behaves as the protocol says, without a process."""

import asyncio

import pytest

from repl_sandbox.fake import FakeKernel, FakeKernels
from repl_sandbox.types import ExecStatus, Execution, Kernel, KernelSource, SandboxError

TWO = Execution(status=ExecStatus.OK, output="2\n")


def test_a_source_is_answered_from_the_script_or_silently() -> None:
    kernel = FakeKernel({"1+1": TWO})
    assert asyncio.run(kernel.run("1+1")) is TWO
    assert asyncio.run(kernel.run("x")) == Execution(status=ExecStatus.OK)
    assert kernel.sources == ["1+1", "x"]


def test_a_callable_answers_every_source() -> None:
    kernel = FakeKernel(lambda source: Execution(status=ExecStatus.OK, output=source))
    assert asyncio.run(kernel.evaluate("x")).output == "x"


def test_it_dies_where_it_is_told_and_stays_dead() -> None:
    kernel = FakeKernel({"1+1": TWO}, dies_at={"die"})
    statuses = [asyncio.run(kernel.run(source)).status for source in ("1+1", "die", "1+1")]
    assert statuses == [ExecStatus.OK, ExecStatus.DIED, ExecStatus.DIED]


def test_a_closed_kernel_is_our_own_mistake() -> None:
    kernel = FakeKernel()
    asyncio.run(kernel.aclose())
    with pytest.raises(SandboxError):
        asyncio.run(kernel.run("1"))


def test_fakes_stand_in_for_both_protocols() -> None:
    fakes = FakeKernels({"1+1": TWO})
    source: KernelSource = fakes
    kernel: Kernel = asyncio.run(source.acquire(seed=3))
    assert asyncio.run(kernel.run("1+1")) is TWO
    assert [fake.seed for fake in fakes.kernels] == [3]
