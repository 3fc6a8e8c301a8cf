# Real brokers, registry and clients on a virtual clock and network, one seed after the other; see tests/whole_cluster.
#   make test-simulation SEEDS=10000
#   make test-simulation SEEDS=1000 SIMULATION_ARGS=--durable        (or --zookeeper, --disks)
#   PYTHONPATH=tests python -m whole_cluster --first 354 --seeds 1 --trace     (what happened in one simulation)
SIMULATION_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
SEEDS ?= 1000
FIRST ?= 0
SIMULATION_ARGS ?=

.PHONY: test-simulation
test-simulation: $(if $(VENV),$(VENV)/.installed)  ## Whole clusters from one seed each, with faults of all kinds: no promise broken (SEEDS=10000)
	PYTHONPATH=tests $(SIMULATION_PYTHON) -m whole_cluster --first $(FIRST) --seeds $(SEEDS) $(SIMULATION_ARGS)
