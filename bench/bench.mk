# Benchmarks beside Apache Kafka and kfake; see docs/benchmarks.md. Needs mvn, java, gcc, go (a missing peer is skipped).
BENCH_PYTHON ?= $(or $(PYTHON),python3)
BENCH_BROKERS ?= kafka,kfake,barnabas
BENCH_ARGS ?=

.PHONY: bench bench-quick bench-growth
bench: ## every row on every broker, three rounds, about 25 minutes; writes docs/benchmarks.md
	$(BENCH_PYTHON) -m bench run --brokers $(BENCH_BROKERS) --docs docs/benchmarks.md $(BENCH_ARGS)

bench-quick: ## a tenth of the data, one round: shows that everything runs
	$(BENCH_PYTHON) -m bench run --quick --brokers $(BENCH_BROKERS) --json build/bench-quick.json $(BENCH_ARGS)

bench-growth: ## cost against partitions, log size and group members; plots into docs/
	$(BENCH_PYTHON) -m bench growth $(BENCH_ARGS)
