# The whole project in a few words. Needs Python 3.11+ and make; sets up everything else in .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/npm
KERNELS := $(wildcard src/hushprice/kernels/*.py src/hushprice/kernels/*/*.py)

.PHONY: help demo test paper lint bench clean
help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8

demo: .venv/.base .venv/.kernels  ## compare policies on embedded defaults: a table and pictures in hushprice-demo/
	$(BIN)/hushprice demo

test: .venv/.dev .venv/.kernels lint  ## lint, types, layers and all tests
	$(BIN)/pytest -n 2 --dist worksteal

paper: .venv/.base .venv/.kernels  ## the paper's figures and tables, quickly: a page in hushprice-results/paper-quick/
	$(BIN)/hushprice paper run all --scale quick
	$(BIN)/hushprice paper report --scale quick

lint: .venv/.dev node_modules/.installed  ## style, types, layers and house rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.house_rules
	$(NPM) run --silent lint

bench: .venv/.bench .venv/.kernels  ## speeds, peers, and the regrets of docs/measurements.md (an hour or more on two cores)
	$(BIN)/python -m benchmarks all

clean:  ## forget everything that was set up
	rm -rf .venv node_modules

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hushprice needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	@touch $@

.venv/.dev: .venv/.base
	$(PIP) --editable '.[dev]'
	@touch $@

# The tools for the JavaScript; Node and npm themselves are Python packages among those of .venv/.dev.
node_modules/.installed: package.json package-lock.json .npmrc | .venv/.dev
	$(NPM) ci --loglevel=error
	@touch $@

.venv/.bench: .venv/.base
	$(PIP) --editable '.[bench]'
	@touch $@

# Numba's cache watches a kernel's own file but not the kernels it calls: start afresh when any of them changed.
.venv/.kernels: $(KERNELS) | .venv/bin/python
	find src -name '*.nb[ci]' -delete
	@touch $@
