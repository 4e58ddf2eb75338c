# The commands of this project. Everything they need is put into .venv, and the agents that the tests run into .agents;
# nothing else on the machine is changed.

VENV := .venv
BIN := $(VENV)/bin
# Tried in this order; `make PYTHON=/path/to/python demo` names another one.
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Three at a time, also on two cores: a third of what tests take is waiting for time limits, disks and ends of processes.
# Whoever has nothing left to do takes from the others. `make test SEED=1` runs them in another order.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal --with-parent $(if $(SEED),-p randomly --randomly-seed=$(SEED))
# What `make test` leaves to `make test-all`.
REST := real_agents or cluster or browser or containers or packaging or postgresql

# Each worker would rewrite the assertions of all tests anew, which takes ten seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test test-all test-root test-agents bench docs clean

help:
	@echo "make demo         set up, run the quick-start suite and show where its results are"
	@echo "make test         set up, then lint, types, import contracts and the tests to wait for"
	@echo "make test-all     the same, and the tests with real agents, PostgreSQL, a browser, containers and a cluster,"
	@echo "                  and those that build and install whet"
	@echo "make test-root    as root: set up, then the tests that differ for root"
	@echo "make test-agents  set up, then the tests that run OpenCode, Copilot and Gemini"
	@echo "make bench        set up, then measure what whet costs beside the agents"
	@echo "make docs         set up, then build these pages as a site in site/"
	@echo "make clean        remove what these commands made"

demo: $(VENV)/.installed
	@$(BIN)/whet run examples/basic/suite.py
	@echo
	@echo "The record of this run is in examples/basic/.whet/runs/latest/"
	@echo "  results.json    every verdict, with its reason"
	@echo "  trials/         what each agent printed and changed, and how it was graded"
	@echo
	@echo "Next: . $(BIN)/activate, then whet run on a suite of your own (docs/tutorial.md)."

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python bench/house.py

test: check
	$(PYTEST) -m 'not ($(REST))'

test-all: check
	$(PYTEST)

# Overlay mounts, control groups and boundaries differ for root. The first line runs what an ordinary user skips, the
# second what holds for both, and has to.
test-root: $(VENV)/.installed-dev
	$(PYTEST) -m root
	$(PYTEST) -m 'not root' tests/contract tests/flow/test_boundary.py tests/flow/test_workspaces.py tests/unit/test_workspace.py

# Their installations weigh 640 MB, so they are not part of `make test-all`, which does the same with Claude Code and Codex.
test-agents: $(VENV)/.installed-dev
	$(PYTEST) -m more_agents tests/agents

bench: $(VENV)/.installed-dev
	$(BIN)/python bench/run.py

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/site/build.py
	@echo "To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

clean:
	rm -rf site $(VENV) .agents .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache examples/*/.whet
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps, so that a second `make` has nothing to do. --no-build-isolation: the build backend and its helper are pinned too.
$(VENV)/.made:
	@found=; \
	for python in $(PYTHONS); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "whet needs Python 3.11 or newer, and none was found (tried: $(PYTHONS))." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 demo" >&2; \
	    exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)."; \
	if ! "$$found" -m venv $(VENV); then \
	    echo "A virtual environment could not be made. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	    exit 1; \
	fi
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml hatch_build.py constraints.txt
	@echo "Installing whet and what it needs."
	@$(PIP) install -c constraints.txt hatchling editables
	@$(PIP) install -c constraints.txt --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need."
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@
