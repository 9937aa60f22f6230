# make run   create the environment and answer the first question
# make test  every test
# make cuda-test  kernels and pycuda without a GPU, from nothing; needs nvcc and g++
# make gpu-wheels GPU_PYTHON=python3.12  what cuda/on_gpu.sh needs there, to be carried; needs g++ and cuda.h
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GPU_PYTHON ?= $(PYTHON)
GPU_WHEELS := build/gpu_wheels
MOST_CARRIED_MIB := 64
READY := $(VENV)/.ready
SCENARIOS := $(sort $(basename $(notdir $(wildcard scenarios/*.yaml))))
COMPARED := b300_now b300_strong_drafter b300_native_engine
PULLED := b300_now b300_strong_drafter
CALIBRATED := b300_strong_drafter b300_strong_drafter_native --to b300_now,pro6000_now
SWEEPS := $(sort $(basename $(notdir $(wildcard scenarios/sweeps/*.yaml))))

.PHONY: run test cuda-test cuda-mutants gpu-wheels lint format bench results schema clean

run: $(READY)
	$(BIN)/python -m sim run scenarios/b300_strong_drafter.yaml

test: $(READY)
	$(BIN)/python -m pytest -n auto --benchmark-disable $(PYTEST_OPTIONS)

# One file of tests to a worker: pycuda is built in one while the others go on.
cuda-test: $(READY)
	CUDA_TEST_BUILDS=1 $(BIN)/python -m pytest tests/cuda -n auto --dist loadfile --benchmark-disable -rs

# Seeded bugs in the kernels, and what catches them.
cuda-mutants: $(READY)
	$(BIN)/python tests/cuda/mutations.py

# For the version of GPU_PYTHON: pycuda is compiled for it, against the stub of libcuda.
gpu-wheels:
	rm -rf $(GPU_WHEELS)
	PYTHONPATH=. $(GPU_PYTHON) -c 'from pathlib import Path; from cuda import build; build._build_pycuda_wheel(Path("$(GPU_WHEELS)"))'
	bash -c 'eval "$$(grep ^needs= cuda/on_gpu.sh)"; $(GPU_PYTHON) -m pip download --quiet --disable-pip-version-check --only-binary=:all: --find-links $(GPU_WHEELS) --dest $(GPU_WHEELS) "$${needs[@]}"'
	du -sm $(GPU_WHEELS)
	test $$(du -sm $(GPU_WHEELS) | cut -f1) -lt $(MOST_CARRIED_MIB)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m sim bench

# The reference result of every shipped scenario, sweep and published case, and of one comparison.
results: $(READY)
	for name in $(SCENARIOS); do $(BIN)/python -m sim run scenarios/$$name.yaml --quiet || exit 1; done
	for name in $(SWEEPS); do $(BIN)/python -m sim sweep scenarios/sweeps/$$name.yaml --restart --quiet || exit 1; done
	$(BIN)/python -m sim compare $(COMPARED) --no-pictures --quiet
	$(BIN)/python -m sim levers $(PULLED) --no-pictures --quiet
	$(BIN)/python -m sim levers --investments --quiet
	$(BIN)/python -m sim validate --learn validation/residuals.csv --quiet
	$(BIN)/python -m sim calibrate $(CALIBRATED) --no-pictures --quiet

schema: $(READY)
	$(BIN)/python -m sim schema > scenarios/scenario.schema.json
	$(BIN)/python -m sim schema --sweep > scenarios/sweeps/sweep.schema.json

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info
