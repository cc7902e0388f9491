"""`python -m repl_rl`: the command `repl-rl`."""

from __future__ import annotations

from repl_rl.commands.cli import main

if __name__ == "__main__":
    main()
