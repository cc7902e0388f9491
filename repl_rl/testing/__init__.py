"""Check an engine of your own against the laws of all engines: a base class for pytest.

    # test_mine.py
    from mine import MyEngine
    from repl_rl.testing import EngineContract

    class TestMyEngine(EngineContract):
        def open(self, model, folder, options):
            return MyEngine(
                model, newline_ids=options.newline_ids, eos_ids=options.eos_ids,
                temperature=options.temperature, forbidden_ids=options.forbidden_ids,
            )

Needs pytest, and torch for the small models whose lines are sampled: the extra `testing`. Nothing
else in `repl_rl` imports it.
"""

from repl_rl.errors import how_to_install

try:
    import pytest

    # Before they are imported: else pytest reports that a law failed, but not why.
    pytest.register_assert_rewrite("repl_rl.testing.engine")
    from repl_rl.testing.engine import EngineContract, LoopContract, RecordingEngine
    from repl_rl.testing.under_test import EngineOptions, EngineUnderTest
except ModuleNotFoundError as error:
    if error.name not in ("pytest", "torch", "transformers"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed, but repl_rl.testing needs it; {how_to_install('testing')}",
        name=error.name,
    ) from None

__all__ = ["EngineContract", "EngineOptions", "EngineUnderTest", "LoopContract", "RecordingEngine"]
