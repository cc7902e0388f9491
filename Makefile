# Two commands do all the set-up on a bare machine with Python 3.11: `make train` and `make test`.

PYTHON ?= python3
VENV ?= .venv
# What pip is asked for first. The default build of some platforms brings gigabytes for GPUs:
# make train TORCH='torch --index-url URL' takes another.
TORCH ?= torch
PIP = $(VENV)/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt

.PHONY: train test check format clean

train: $(VENV)/.installed  ## Install, then the main job.
	$(VENV)/bin/repl-rl train --task sympy-proofs

test: $(VENV)/.installed-dev  ## Install with the test tools, then the whole suite.
	$(VENV)/bin/python -m pytest

check: $(VENV)/.installed-dev  ## What a change must pass.
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff format
	$(VENV)/bin/ruff check --fix

clean:
	rm -rf $(VENV) build dist

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "repl-rl needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -c 'import ensurepip' || { echo "the module venv is missing: install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing (a few minutes the first time)"
	$(PIP) $(TORCH)
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@
