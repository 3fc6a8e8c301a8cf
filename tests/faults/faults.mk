# SIGKILL during produce, seeded; see tests/faults/crash.py.
FAULTS_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
FAULTS_ROUNDS ?= 200
FAULTS_ARGS ?=

.PHONY: test-faults
test-faults: $(if $(VENV),$(VENV)/.installed)  ## SIGKILL during produce, 200 times: nothing acknowledged lost or doubled
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults --rounds $(FAULTS_ROUNDS) $(FAULTS_ARGS)
