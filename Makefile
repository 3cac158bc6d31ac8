# Two commands do everything: `make train` runs the main job, `make test` checks the project.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
VENV2 := .venv-tianshou2
ARGS ?=
TIANSHOU2_TESTS := tests/host tests/replay tests/envs tests/fast/test_compiled_updates.py \
	tests/training/test_resume.py --ignore tests/replay/test_compact_with_tianshou.py \
	--ignore tests/envs/test_atari_tianshou.py -m "host or not (slow or process)"
# The default package index has torch for Linux with CUDA: gigabytes on disk, and 300 MB more memory
# per process. Without an NVIDIA GPU, make installs the CPU build from PyTorch's index if it is
# reachable. `make train TORCH_INDEX=` selects the default index; a URL selects another.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)

.PHONY: train test test-tianshou1 test-tianshou2 test-fast lint format pages docs install-test clean

train: $(VENV)/train-installed
	$(BIN)/python atari/atari_medqn.py --task QbertNoFrameskip-v4 --buffer-size 100000 $(ARGS)

# The whole suite with Tianshou 1.2, and with Tianshou 2 the part that depends on the version.
test: test-tianshou1 test-tianshou2

# One process per core, one thread each: the networks of the tests are tiny.
test-tianshou1: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --dist worksteal $(ARGS)

# It compares trainings in both environments. `OTHER=` leaves that out, and with it Tianshou 1.2,
# which cannot be installed on Python 3.13.
OTHER ?= $(BIN)/python
test-tianshou2: $(VENV2)/test-installed $(if $(OTHER),$(VENV)/test-installed)
	OMP_NUM_THREADS=1 $(if $(OTHER),OTHER_PYTHON=$(OTHER)) $(VENV2)/bin/python -m pytest \
		--numprocesses logical --dist worksteal $(TIANSHOU2_TESTS) $(ARGS)

# All but the tests that take long or start processes.
test-fast: $(VENV)/test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --dist worksteal \
		-m "not slow and not process" $(ARGS)

lint: $(VENV)/test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

format: $(VENV)/test-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every page, table and figure that follows from the code and the committed runs.
pages: $(VENV)/test-installed
	$(BIN)/python campaign/page.py
	$(BIN)/python -m docs.figures.return_memory
	$(BIN)/python docs/which.py
	$(BIN)/python docs/fidelity.py
	$(BIN)/python docs/flags.py
	$(BIN)/python docs/architecture.py

# The documentation site at http://127.0.0.1:8000, rebuilt at every change.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/test-installed
	$(BIN)/mkdocs serve --strict

# The Dockerfile's install steps in a clean environment, and a short training there: minutes.
install-test:
	PYTHON=$(PYTHON) docker/check_install.sh

# Run again only when the dependencies change.
$(VENV)/train-installed: EXTRAS := atari
$(VENV)/test-installed: EXTRAS := atari,minatar,play,report,sweep,wandb,docs,dev
$(VENV)/%-installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),-$(BIN)/python -m pip install --quiet --retries 0 --timeout 15 \
		--constraint constraints.txt --extra-index-url $(TORCH_INDEX) torch)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -c "from importlib.metadata import version; print('torch', version('torch'))"
	touch $@

$(VENV2)/test-installed: pyproject.toml constraints-tianshou2.txt
	$(PYTHON) -m venv $(VENV2)
	$(if $(TORCH_INDEX),-$(VENV2)/bin/python -m pip install --quiet --retries 0 --timeout 15 \
		--constraint constraints-tianshou2.txt --extra-index-url $(TORCH_INDEX) torch)
	$(VENV2)/bin/python -m pip install --quiet --constraint constraints-tianshou2.txt \
		--editable '.[atari,minatar]' hypothesis pytest pytest-xdist
	touch $@

clean:
	rm -rf $(VENV) $(VENV2) build site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
