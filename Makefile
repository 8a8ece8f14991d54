# make up     everything that is needed, then start and wait until it is ready
# make test   everything that the tests need, then all checks and tests, some of them on both engines
# make check  formatting, lint, types
# make bench  the figures of docs/operations.md, measured on this machine
# make chaos  the whole kill matrix; writes docs/chaos.md (CHAOS_ROUNDS, CHAOS_JOBS), or with
#             CHAOS_ENGINE=harness that of the embedded engine
# make down   stop
# make lock   choose new versions of the dependencies
#
# Needed beforehand: git, Python 3.11 to 3.13 with venv, npm (Node.js 20 or newer).  Each step leaves a
# stamp, so a second run does nothing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:

# The first interpreter that runs and has a supported version; a name in PATH alone proves nothing (pyenv
# has shims for versions that are not there).
SUPPORTED := import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c '$(SUPPORTED)' >/dev/null 2>&1 && echo "$$p" && break; done)
PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet

GROK := 1.0.41
GROK_DIR := .cache/grok
GROK_BINARY := $(GROK_DIR)/node_modules/@xai-official/grok/bin/grok-native
GROK_STAMP := $(GROK_DIR)/installed-$(GROK)

# Pi wants Node.js 22, which comes from npm, too.
PI := 1.6.0
PI_NODE := 22.23.3
PI_DIR := .cache/pi
TYPESCRIPT := 5.9.3
PI_STAMP := $(PI_DIR)/installed-$(PI)-$(PI_NODE)-$(TYPESCRIPT)
PI_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x64)

# Two workers: the tests start many processes, and more of them at once only make each other late.
TEST_JOBS ?= 2

CHAOS_ROUNDS ?= 1
CHAOS_JOBS ?= 4
CHAOS_ENGINE ?= grok
CHAOS_PAGE := $(if $(filter harness,$(CHAOS_ENGINE)),docs/chaos-embedded.md,docs/chaos.md)

.PHONY: up down test test-grok test-embedded check bench chaos lock

up: .venv/installed
	.venv/bin/grok-gateway up

down: .venv/installed
	.venv/bin/grok-gateway down

test: check test-grok test-embedded

PYTEST := .venv/bin/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
test-grok: .venv/installed-test $(GROK_STAMP) $(PI_STAMP)
	$(PYTEST)

# What runs on either engine, once more on the embedded one: a selection, or all of it
# (EMBEDDED_TESTS="tests/e2e tests/pi tests/chaos").
EMBEDDED_TESTS ?= tests/chaos tests/pi/test_gates.py $(addprefix tests/e2e/test_, losses.py turns.py \
	requests.py lent_tools.py)
test-embedded: .venv/installed-test $(GROK_STAMP) $(PI_STAMP)
	GROK_GATEWAY_TEST_ENGINE=harness $(PYTEST) -o cache_dir=.pytest_cache/embedded $(EMBEDDED_TESTS)

check: .venv/installed-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

chaos: .venv/installed-test $(GROK_STAMP)
	.venv/bin/python -m tests.chaos --engine $(CHAOS_ENGINE) --jobs $(CHAOS_JOBS) --rounds $(CHAOS_ROUNDS) \
	  --write $(CHAOS_PAGE)

bench: .venv/installed
	.venv/bin/grok-gateway bench

.venv/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "No Python 3.11, 3.12 or 3.13 with the venv module found. Install one (Debian: python3-venv)," \
	    "or name it: make PYTHON=/path/to/python3" >&2; exit 1; fi
	$(PYTHON) -m venv .venv

# Versions and hashes are locked; the project itself is installed in place.
.venv/installed: requirements/run.txt pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.venv/installed-test: requirements/test.txt .venv/installed
	$(PIP) install --require-hashes -r requirements/test.txt
	touch $@

# npm 11 does not run the install script of a package that nobody approved; it unpacks the native binary.
# The script would also put a copy into the user's own GROK_HOME, hence another one.
$(GROK_STAMP):
	@command -v npm >/dev/null && command -v node >/dev/null || { \
	  echo "No npm found. The tests run the real grok, which comes from npm: install Node.js 20 or newer." >&2; \
	  exit 1; }
	mkdir -p $(GROK_DIR)
	npm install --prefix $(GROK_DIR) --no-save --no-audit --no-fund --ignore-scripts @xai-official/grok@$(GROK)
	home=$$(mktemp -d) && trap 'rm -rf "$$home"' EXIT && GROK_HOME="$$home" \
	  npm_config_user_agent=npm/0.0.0 node $(GROK_DIR)/node_modules/@xai-official/grok/bin/postinstall.js
	test -x $(GROK_BINARY)
	touch $@

$(PI_STAMP):
	@command -v npm >/dev/null || { echo "No npm found. The tests run the real Pi, which comes from npm." >&2; \
	  exit 1; }
	mkdir -p $(PI_DIR)
	npm install --prefix $(PI_DIR) --no-save --no-audit --no-fund --ignore-scripts \
	  node-linux-$(PI_ARCH)@$(PI_NODE) @earendil-works/pi-coding-agent@$(PI) typescript@$(TYPESCRIPT) @types/node@22.20.7
	$(PI_DIR)/node_modules/node-linux-$(PI_ARCH)/bin/node --version
	touch $@

# `uv` resolves for all supported versions and platforms at once, which pip cannot.
LOCK := .cache/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate pyproject.toml requirements/build.in
lock: | .venv/bin/python
	[ -x .cache/uv/bin/uv ] || { $(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install --quiet uv; }
	$(LOCK) --upgrade -o requirements/run.txt
	$(LOCK) --upgrade --extra test -c requirements/run.txt -o requirements/test.txt
