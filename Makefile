# make setup       .venv, dependencies and vendored sources; does nothing when nothing changed
# make demo        what each line of a few modules costs
# make test        ruff, mypy and all tests that belong to a change
# make test-quick  ruff and the unit tests: a quarter of the time of `make test`
# make test-slow   the other tests: whole models, fetched code bases, browser, Dask, the real Claude CLI, README.md
# make test-long   the tests that take minutes each, beside alike ones in test-slow: before a release
# make audit      executes 40 families and the own modules of benchmarks/ at drawn points; writes reports/audit.json
# make clean       removes what can be made again, results included; what git has stays

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.lmp-setup

LLAMA := transformers.models.llama.modeling_llama
DEMO := $(addprefix $(LLAMA).,LlamaRMSNorm LlamaMLP LlamaAttention LlamaDecoderLayer) torch.nn.Linear

PYTEST := $(BIN)/pytest -n auto --dist loadgroup

.PHONY: setup demo repositories lint test test-quick test-slow test-long audit clean

setup: $(STAMP)
	@$(BIN)/lmp vendor --quiet

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'lmp needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

MODEL = meta-llama/Meta-Llama-3.1-8B

demo: setup
	@$(BIN)/lmp analyze-module $(DEMO)
	@for class in $(DEMO); do $(BIN)/lmp verify --quiet $$class || exit; done
	@$(BIN)/lmp expand --model-id $(MODEL)
	@$(BIN)/lmp evaluate --model-id $(MODEL) --phase prefill --batch-size 1 --seq-len 2048
	@$(BIN)/lmp evaluate --model-id $(MODEL) --phase decode --batch-size 64 --cache-len 32768 --by bytes

# The code bases that slow tests read; does nothing where they are there.
repositories: setup
	@$(BIN)/python scripts/fetch_repositories.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The tiers are set by tests/conftest.py.
test: lint
	$(BIN)/mypy
	$(PYTEST) -m 'unit or engine'

test-quick: lint
	$(PYTEST) -m unit

test-slow: setup repositories
	$(PYTEST) -m slow

test-long: setup
	$(PYTEST) -m long

AUDIT_POINTS ?= 200
AUDIT_SEED ?= 0

audit: setup
	$(BIN)/python scripts/audit.py --points $(AUDIT_POINTS) --seed $(AUDIT_SEED) --write reports/audit.json

clean:
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf transformers/src pytorch/torch transformers/.lmp-* pytorch/.lmp-*
	git clean -fdqX analysis_results reports
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
