# make demo   the main job end to end: a mesh, clients, a verdict
# make test   all tests
# make lint   style and types
# make bench  throughput and latency on this machine, with a load generator in C
# Each sets up .venv first if that has not been done.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

# The tests with a JavaScript client run where npm is installed.
INTEROP_LOCK := $(if $(shell command -v npm),$(wildcard tests/interop/package-lock.json))
INTEROP_READY := $(INTEROP_LOCK:package-lock.json=node_modules/.ready)

.PHONY: setup demo test lint bench bench-tools clean

setup: $(READY) $(INTEROP_READY)
	@:

$(READY): pyproject.toml
	@echo "setting up $(VENV) (once)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

tests/interop/node_modules/.ready: tests/interop/package-lock.json
	@npm ci --prefix tests/interop --silent --no-audit --no-fund
	@touch $@

demo: setup
	@$(VENV)/bin/oncemesh demo

test: setup
	@$(VENV)/bin/python -m pytest

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

bench: setup
	@$(VENV)/bin/python -m tests.bench

# What the load generator is built with; once, on Debian and as root.
bench-tools:
	apt-get update -qq
	apt-get install -y -qq gcc libc6-dev libqpid-proton11-dev

clean:
	rm -rf $(VENV) tests/interop/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
