# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASIC := $(VENV)/.basic
READY := $(VENV)/.ready

.PHONY: demo test test-slow test-lowest check docs tables bench clean

# A run that helps and one that does not, with their reports: needs the command line and tables alone.
demo: $(BASIC)
	$(BIN)/fedminmax demo

# One thread each: threads of several processes would only wait for one another; where a test wants two,
# they wait asleep. Compiled files are kept even where the environment says no, or every worker rewrites every
# test. A worker more than two cores need, because some tests wait for processes of their own; in order, because
# those are few and long.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
test: $(READY)
	scripts/debian_packages.sh chromium
	$(PYTEST) -m 'not slow'

# Long faults of real processes, every method over the network, the full image files.
test-slow: $(READY)
	scripts/debian_packages.sh dataset-fashion-mnist
	$(PYTEST) -m slow

# Core tests with the oldest dependencies that pyproject.toml allows, in an environment of their own.
# One compares with a function that scikit-learn has only since 1.7.
NEEDS_NEWER := --deselect tests/metrics/test_group_metrics.py::test_many_classes_of_words
LOWEST_VENV := .venv-lowest
LOWEST_READY := $(LOWEST_VENV)/.ready
test-lowest: $(LOWEST_READY)
	OMP_NUM_THREADS=1 $(LOWEST_VENV)/bin/python -m pytest -m 'not slow' -W default $(NEEDS_NEWER) tests/contract tests/core tests/data/tables tests/metrics tests/theory

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec examples/compose/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/proposal.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

# The documentation site, into build/docs; a warning is an error. `make test` builds it, too.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# Pages and names that only repeat the code: the table of methods, commands, schemas, names in fedminmax.methods.
tables: $(READY)
	$(BIN)/python scripts/method_tables.py
	$(BIN)/python scripts/reference_pages.py

# With PEERS=1 also Flower and pfl-research, in an environment of their own.
PEERS_VENV := .venv-peers
PEERS_READY := $(PEERS_VENV)/.ready
bench: $(READY) $(if $(PEERS),$(PEERS_READY))
	$(BIN)/python -m benchmarks.round_speed
	$(BIN)/python -m benchmarks.cnn_speed
	$(BIN)/python -m benchmarks.sites_speed $(if $(PEERS),--peers $(PEERS_VENV)/bin/python)

# The markers are newer than both files exactly when the installation is up to date, so a second call
# installs nothing. Python compiles what it uses: to compile all of PyTorch takes as long as to unpack it.
$(BASIC): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "fedminmax needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@PYTHON=$(PYTHON) scripts/debian_packages.sh python3-venv
	$(PYTHON) -m venv --clear $(VENV)
	@echo "Setting up $(VENV): once, for a minute"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[cli,tables]'
	touch $(BASIC)

$(READY): $(BASIC)
	@echo "Completing $(VENV) for development: once, for a few minutes"
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

$(LOWEST_READY): pyproject.toml scripts/lowest_versions.py $(READY)
	$(PYTHON) -m venv --clear $(LOWEST_VENV)
	$(BIN)/python scripts/lowest_versions.py > $(LOWEST_VENV)/constraints.txt
	$(LOWEST_VENV)/bin/python -m pip install --disable-pip-version-check --constraint $(LOWEST_VENV)/constraints.txt \
		--editable '.[cli,flare,mlflow,onnx,privacy,sklearn,solvers,tables,tensorboard]' hypothesis pytest
	touch $(LOWEST_READY)

$(PEERS_READY): benchmarks/peers/requirements.txt
	$(PYTHON) -m venv --clear $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
	$(PEERS_VENV)/bin/python -m pip install --disable-pip-version-check --no-deps --editable .
	touch $(PEERS_READY)

clean:
	rm -rf $(VENV) $(PEERS_VENV) $(LOWEST_VENV) runs/demo build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
