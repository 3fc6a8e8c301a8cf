# Benchmarks beside Apache Kafka and kfake; see docs/benchmarks.md. Needs mvn, java, gcc, go (a missing peer is skipped).
BENCH_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
BENCH_BROKERS ?= kafka,kfake,barnabas
BENCH_ARGS ?=
BENCH_INSTALLED := $(if $(VENV),$(VENV)/.installed-bench)

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo,bench,zookeeper]'
	@touch $@

.PHONY: bench bench-quick bench-growth bench-clients bench-pipes bench-compaction bench-cluster bench-spark bench-zookeeper
bench: $(BENCH_INSTALLED)  ## Every row beside Apache Kafka and kfake, about 20 minutes; writes docs/benchmarks.md
	$(BENCH_PYTHON) -m bench run --brokers $(BENCH_BROKERS) --docs docs/benchmarks.md $(BENCH_ARGS)

bench-quick: $(BENCH_INSTALLED)  ## The same with a tenth of the data, one round: shows that everything runs
	$(BENCH_PYTHON) -m bench run --quick --brokers $(BENCH_BROKERS) --json build/bench-quick.json $(BENCH_ARGS)

bench-growth: $(BENCH_INSTALLED)  ## Cost against partitions, log size and group members; plots into docs/
	$(BENCH_PYTHON) -m bench growth $(BENCH_ARGS)

bench-clients: $(BENCH_INSTALLED)  ## Python clients beside each other against our broker; writes docs/benchmarks.md
	$(BENCH_PYTHON) -m bench clients --docs docs/benchmarks.md $(BENCH_ARGS)

bench-pipes: $(BENCH_INSTALLED)  ## barnabas produce and consume beside kcat (apt-get install kcat); writes docs/benchmarks.md
	$(BENCH_PYTHON) -m bench pipes --docs docs/benchmarks.md $(BENCH_ARGS)

bench-compaction: $(BENCH_INSTALLED)  ## CPU of compaction beside Apache Kafka's, and what producers feel of it; 10 GB written
	$(BENCH_PYTHON) -m bench compaction speed $(BENCH_ARGS)
	$(BENCH_PYTHON) -m bench compaction serving --written-gb 10 --live-mb 100 --rate-mb 50 --value-bytes 2000

bench-cluster: $(BENCH_INSTALLED)  ## Three brokers beside three of Apache Kafka, 20 minutes: speed, failover, a plot; writes docs/benchmarks.md
	$(BENCH_PYTHON) -m bench cluster --docs docs/benchmarks.md $(BENCH_ARGS)

bench-zookeeper: $(BENCH_INSTALLED)  ## Failover and growth of three brokers with ZooKeeper, 25 minutes; writes docs/zookeeper.md
	$(BENCH_PYTHON) -m bench zookeeper --docs docs/zookeeper.md $(BENCH_ARGS)

# On the newest pyspark that has a JVM connector, in a virtual environment of its own.
bench-spark: spark-connector $(VENV)-pyspark-$(SPARK_CONNECTOR)/.installed-spark  ## Spark's JVM connector beside ours on our broker; 25 minutes; writes docs/benchmarks.md
	PYTHONPATH=$(CURDIR)/src $(VENV)-pyspark-$(SPARK_CONNECTOR)/bin/python -m bench spark --docs docs/benchmarks.md $(BENCH_ARGS)
