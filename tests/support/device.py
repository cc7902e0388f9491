"""The device that tests of one run on: the GPU, or what REPL_RL_TEST_DEVICE names."""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = os.environ.get("REPL_RL_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "")
on_device = (pytest.mark.gpu, pytest.mark.skipif(not DEVICE, reason="torch sees no GPU"))
