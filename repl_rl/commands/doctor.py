"""`repl-rl doctor`: what this machine can do for a run, measured by doing it.

Starts one fork server, tries its walls, asks one kernel one question. Knows the machine. Does not
know tasks or models.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from dataclasses import replace
from pathlib import Path

import click

from repl_rl import __version__
from repl_rl.commands import options as shared
from repl_rl.config.resolve import resolve
from repl_rl.config.sections import SandboxConfig
from repl_rl.records import Finding
from repl_rl.rollout.runner import kernel_pool
from repl_rl.runs.folder import version_of
from repl_sandbox.host.pool import PROBES
from repl_sandbox.types import SandboxError
from repl_sandbox.walls import confine, landlock
from repl_sandbox.walls.isolation import Level, Walls

_PACKAGES = ("torch", "transformers", "trl", "jupyter_client", "ipykernel", "sympy")


@click.command()
@shared.with_options(shared.FILES, shared.OVERRIDES)
def doctor(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Check what this machine can do.

    Prints packages and device, how well kernels are sealed, and how fast they are. The exit code is
    1 if kernels are not sealed.
    """
    shared.report(examine(resolve(files=files, overrides=overrides).sandbox))


def examine(config: SandboxConfig) -> list[Finding]:
    """All findings, in the order to read them."""
    return [*_machine(), *asyncio.run(_kernels(config)), _grader()]


def _machine() -> list[Finding]:
    versions = {name: version_of(name) for name in _PACKAGES}
    packages = [f"{name} {one}" if one else f"no {name}" for name, one in versions.items()]
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    cores = len(os.sched_getaffinity(0))
    return [
        Finding(name="repl-rl", text=f"{__version__} on Python {platform.python_version()}"),
        Finding(name="machine", text=f"{system}, {cores} cores, device {_device()}"),
        Finding(name="packages", text=", ".join(packages)),
    ]


def _device() -> str:
    """The device that training would take; a base installation trains nothing."""
    try:
        from repl_rl.models.loading import pick_device  # torch, where there is one
    except ModuleNotFoundError:
        return "none to train on"
    return str(pick_device("auto"))


async def _kernels(config: SandboxConfig) -> list[Finding]:
    pool = kernel_pool(replace(config, standby=0))
    started = time.monotonic()
    try:
        async with pool:
            warm_s = time.monotonic() - started
            started = time.monotonic()
            kernel = await pool.acquire(seed=0)
            answer = await kernel.run("1 + 1")
            first_ms = 1e3 * (time.monotonic() - started)
            started = time.monotonic()
            await kernel.run("x = 2")
            line_ms = 1e3 * (time.monotonic() - started)
    except SandboxError as error:
        return [Finding(name="kernels", text=str(error), passed=False)]
    speed = (
        f"fork server {warm_s:.1f} s, a kernel {first_ms:.0f} ms, a line {line_ms:.2f} ms"
        if answer.output == "2\n"
        else f"a kernel answered {answer.output!r} to 1 + 1"
    )
    return [*_walls(pool.walls), Finding(name="speed", text=speed)]


def _grader() -> Finding:
    lacking = confine.missing()
    text = f"no walls: this machine lacks {lacking}" if lacking else "Landlock, seccomp"
    return Finding(name="grader", text=text)


def _walls(walls: Walls) -> list[Finding]:
    if walls.level is Level.NONE:
        return [Finding(name="kernels", text=str(walls), passed=False)]
    findings = [
        Finding(name="kernels", text=f"{walls} (Landlock ABI {landlock.abi()})"),
        Finding(name="canary", text=f"{len(PROBES)} ways out tried, none open"),
    ]
    if walls.shortfall:
        findings.append(Finding(name="not strict", text=walls.shortfall))
    return findings
