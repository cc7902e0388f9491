"""`python -m repl_rl`: the command `repl-rl`, for an interpreter whose scripts are on no path.

Knows a name. The command line is a room above, which nothing here imports.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("repl_rl.commands.cli", run_name="__main__")
