# make report     the embedded experiment, from nothing to results/embedded/report.html
# make smoke      a first look, three minutes
# make rehearsal  a few steps on the real data; MIRROR=DIR if the sources are not to be fetched
# make test lint  what .ci/run checks
# make test-gpu   what needs a GPU; make test-faults what kills, spoils and starves runs
# make env        the environment alone; make lock resolves envs/embedded.in anew
# make env-paper  the environment for CUDA GPUs; make lock-paper resolves envs/paper.in anew

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: report smoke rehearsal test test-gpu test-faults lint env lock env-paper lock-paper clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PAPER_VENV := .venv-paper
PAPER_BIN := $(PAPER_VENV)/bin
PAPER_STAMP := $(PAPER_VENV)/.installed
PAPER_PYTHON := 3.11
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

test-gpu: env-paper
	$(PAPER_BIN)/python -m pytest -m gpu $(PYTEST)

# The plugin is in no environment for CPUs: it goes where only these tests see it. Without slurm-wlm they are skipped.
test-faults: env
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/slurm \
		$$(grep '^snakemake-executor-plugin-slurm' envs/paper.txt)
	PYTHONPATH="$(abspath $(VENV))/slurm$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m pytest tests/test_survival.py \
		tests/test_resume.py tests/test_cluster.py tests/test_sglang_server.py tests/test_servers.py tests/test_policy.py \
		tests/test_training.py tests/test_tracking.py tests/test_secrets.py tests/test_files.py tests/test_attempts.py \
		tests/test_status.py tests/test_workflow.py tests/test_slurm.py $(PYTEST)

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
	sed -i "s/[0-9a-f]\{64\}/$$(sha256sum < envs/embedded.txt | cut -c -64)/" envs/embedded.post-deploy.sh

env-paper: $(PAPER_STAMP)

# --no-deps: the lock is complete, and what it overrides would contradict it
$(PAPER_STAMP): envs/paper.txt pyproject.toml
	python="$(FIND_PYTHON)"; \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or 3.12 is needed (make PYTHON=/path/to/python3.11 env-paper)" >&2; exit 1; fi; \
	test -x $(PAPER_BIN)/python || "$$python" -m venv $(PAPER_VENV)
	echo '*' > $(PAPER_VENV)/.gitignore
	$(PAPER_BIN)/python -m pip install --quiet --no-deps -r envs/paper.txt
	$(PAPER_BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# Versions stay where paper.in lets them: at embedded.txt's for what both have, at paper.txt's for the rest.
lock-paper: env
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	awk -F== 'NF == 2 && !seen[$$1]++' envs/embedded.txt envs/paper.txt > "$$folder/lock"; \
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --no-python-downloads --python-version $(PAPER_PYTHON) \
		--python-platform x86_64-manylinux_2_34 --override envs/paper.overrides envs/paper.in \
		--output-file "$$folder/lock" > /dev/null; \
	{ grep '^[#-]' envs/paper.txt; cat "$$folder/lock"; } > "$$folder/paper.txt"; \
	mv "$$folder/paper.txt" envs/paper.txt
	sed -i "s/[0-9a-f]\{64\}/$$(sha256sum < envs/paper.txt | cut -c -64)/" envs/paper.post-deploy.sh

clean:
	rm -rf results/smoke
