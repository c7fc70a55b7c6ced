PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export JAX_PLATFORMS ?= cpu

.PHONY: demo test slow lint clean

# The stamp is newer than pyproject.toml once the environment is what pyproject.toml asks for.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/sbpjax train char_lm

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m slow

lint: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) build dist
