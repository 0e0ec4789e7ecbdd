# Two commands do everything on a fresh Debian 12: `make demo` and `make test`.
# Both need root for the lab (namespaces, mounts, overlay); as another user they ask for sudo and say why.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
APT_PACKAGES := debootstrap iproute2 nftables openssh-client
APT_PACKAGES_DEV := openssh-server  # tests start their own sshd on loopback; RUNLEVEL=1 below keeps apt from starting one
HOST_CODE := src/cudaup/host src/cudaup/smoke src/cudaup/audit
SHELL := /bin/bash
HOSTS ?= 8
MINUTES ?= 5

.PHONY: demo test check unit lab-tests test-real sweep sweep-part soak format setup setup-dev system clean

demo: setup
	@$(if $(SUDO),echo "the lab makes network namespaces and mounts: asking for sudo",:)
	$(SUDO) $(BIN)/python tests/demo/demo.py

test: check unit lab-tests

check: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vermin --target=3.8- --violations --no-tips --eval-annotations $(HOST_CODE)
	$(BIN)/yamllint --strict playbooks stacks
	cd playbooks && PATH=$(abspath $(BIN)):$$PATH ANSIBLE_COLLECTIONS_PATH=$$PWD/collections ansible-lint --offline
	$(BIN)/pytest -q tests/architecture

unit: setup-dev
	$(BIN)/pytest -q -n 2 --dist worksteal tests/unit tests/property

lab-tests: setup-dev
	@$(if $(SUDO),echo "the lab makes network namespaces and mounts: asking for sudo",:)
	$(SUDO) $(BIN)/pytest -q tests/lab/test_lab.py  # alone: it counts what all labs of the machine share
	$(SUDO) $(BIN)/pytest -q -n 4 --dist worksteal tests/lab --ignore tests/lab/test_lab.py --ignore tests/lab/test_sweep.py

test-real: setup-dev  # audits 2.3 GB of wheels as they are on the index; not part of `test`
	$(BIN)/pytest -q tests/real

sweep-part: setup-dev
	$(SUDO) $(BIN)/pytest -q tests/lab/test_sweep.py

# Every write of both journals with every fault, on HOSTS lab hosts; and random faults for MINUTES.
sweep: setup-dev
	$(SUDO) $(BIN)/python -m tests.lab.sweep run --hosts $(HOSTS) $(CASES)

soak: setup-dev
	$(SUDO) $(BIN)/python -m tests.lab.sweep soak --hosts $(HOSTS) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(CASES)

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: system $(VENV)/.installed
setup-dev: EXTRA_PACKAGES := $(APT_PACKAGES_DEV)
setup-dev: system $(VENV)/.installed-dev

# Only what is missing is asked for: a second `make` changes nothing and needs no network.
system:
	@missing=""; for p in $(APT_PACKAGES) $(EXTRA_PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ]; then echo "installing:$$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
