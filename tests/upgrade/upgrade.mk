# Clusters that are upgraded from the release before (tests/upgrade/release_before.py) and taken back, under their clients.
UPGRADE_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
UPGRADE_ROUNDS ?= 10

.PHONY: test-upgrade
test-upgrade: $(if $(VENV),$(VENV)/.installed-dev)  ## Ten clusters of each kind upgraded from the release before, and back; docs/operations.md with that release
	BARNABAS_UPGRADE_ROUNDS=$(UPGRADE_ROUNDS) $(UPGRADE_PYTHON) -m pytest tests/upgrade
