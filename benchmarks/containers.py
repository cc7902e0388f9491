"""Which walls kernels get in a container: `python benchmarks/containers.py repl-rl-env`.

That is an image of repl_rl/integrations/openenv/Dockerfile; `-- OPTION... repl-rl-env` has options
of yours for `run`. It is started as its ordinary user and as root: without flags, with those that
`strict` takes, and without each of these. Prints the level that a kernel gets, and why it is no
better. Exit code 1 if the flags do not give `strict`, or if fewer do.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator

PROBE = """
import asyncio
from repl_sandbox.host.pool import KernelPool
from repl_sandbox.types import Limits

async def main():
    async with KernelPool(Limits(), preload=[]) as pool:
        kernel = await pool.acquire(seed=0)
        answer = (await kernel.run("6 * 7")).output.strip()
        print(pool.walls.level, answer, pool.walls.shortfall)

asyncio.run(main())
"""
SECCOMP = "--security-opt seccomp=unconfined"
CAPABILITIES = ("--cap-add SYS_ADMIN", "--cap-add NET_ADMIN")
STRICT: dict[str, dict[str, tuple[str, ...]]] = {
    "docker": {
        "repl": (SECCOMP, "--security-opt systempaths=unconfined"),
        "root": (*CAPABILITIES, SECCOMP),
    },
    # Its own list of calls lets root set up a file system.
    "podman": {"repl": (SECCOMP, "--security-opt unmask=ALL"), "root": CAPABILITIES},
}
"""Flags that `strict` takes, by engine and user. AppArmor on the host takes another."""
TIMEOUT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--engine", default="docker", help="docker or podman, with options")
    parser.add_argument("image", nargs=argparse.REMAINDER, help="[-- OPTION...] IMAGE")
    args = parser.parse_args()
    engine = shlex.split(args.engine)
    image = args.image[args.image[:1] == ["--"] :]
    num_wrong = 0
    for user, flags in STRICT[engine[0]].items():
        for given in _subsets(flags):
            found = _level([*engine, "run", "--network", "none", "--user", user], given, image)
            is_strict = found.startswith("strict 42")
            num_wrong += is_strict is not (given == flags)
            print(f"{user}  {' '.join(given) or 'no flags'}\n      {found}", flush=True)
    return int(num_wrong > 0)


def _subsets(flags: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """None, all, and all but one."""
    yield ()
    yield flags
    for left_out in flags:
        yield tuple(flag for flag in flags if flag != left_out)


def _level(run: list[str], flags: tuple[str, ...], image: list[str]) -> str:
    """What the container's last line says."""
    done = subprocess.run(
        [*run, "--rm", *shlex.split(" ".join(flags)), *image, "python", "-c", PROBE],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return (done.stdout or done.stderr).strip().rpartition("\n")[2]


if __name__ == "__main__":
    sys.exit(main())
