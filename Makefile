# make report     the embedded experiment, from nothing to results/embedded/report.html
# make smoke      a first look, three minutes
# make rehearsal  a few steps on the real data; MIRROR=DIR if the sources are not to be fetched
# make test lint  what .ci/run checks
# make env        the environment alone; make lock resolves envs/embedded.in anew

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: report smoke rehearsal test lint env lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Snakemake 9 and NumPy 2.4 need 3.11; Ray and verl are tested up to 3.12.
FIND_PYTHON = $$(for python in $(PYTHON) python3.11 python3.12 python3 python; do \
	"$$python" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2> /dev/null && echo "$$python" && break; done || true)
CONFIG = $(if $(MIRROR),--config mirror=$(MIRROR))

report: env
	$(BIN)/snakemake $(CONFIG)

smoke: env
	$(BIN)/snakemake --configfile configs/experiments/smoke.yaml

rehearsal: env
	$(BIN)/snakemake --configfile configs/experiments/rehearsal.yaml $(CONFIG)

test: env
	$(BIN)/python -m pytest $(PYTEST)

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

env: $(STAMP)

$(STAMP): envs/embedded.txt pyproject.toml
	python="$(FIND_PYTHON)"; \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or 3.12 is needed (make PYTHON=/path/to/python3.11 env)" >&2; exit 1; fi; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' envs/embedded.txt)"
	$(BIN)/python -m pip install --quiet -r envs/embedded.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

lock:
	python="$(FIND_PYTHON)"; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	"$$python" -m venv "$$folder"; \
	"$$folder/bin/python" -m pip install --quiet -r envs/embedded.in; \
	{ grep '^#' envs/embedded.txt; "$$folder/bin/python" -m pip freeze --all \
	| grep -v '^\(nvidia-\|cuda-\|triton\|pip=\)' | sed 's/+cpu$$//'; } > "$$folder/lock"; \
	mv "$$folder/lock" envs/embedded.txt

clean:
	rm -rf results/smoke
