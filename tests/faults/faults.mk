# SIGKILL under load, seeded; see tests/faults/crash.py and tests/faults/transactions.py. What proves the second one itself:
#   PYTHONPATH=. python tests/faults workers --broker kafka     (kills of Apache Kafka itself leave transactions open)
FAULTS_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
FAULTS_ROUNDS ?= 200
FAULTS_TRANSACTION_ROUNDS ?= 300
FAULTS_ARGS ?=

FAULTS_MEMBER_ROUNDS ?= 24
FAULTS_STARTS ?= 50

FAULTS_CLUSTER_SECONDS ?= 60
FAULTS_ZOOKEEPER_ROUNDS ?= 100

.PHONY: test-faults test-faults-cluster test-faults-compaction test-faults-consumer test-faults-disk test-faults-members test-faults-planted test-faults-producer test-faults-starts test-faults-transactions test-faults-zookeeper
test-faults: $(if $(VENV),$(VENV)/.installed)  ## SIGKILL during produce, 200 times: nothing acknowledged lost or doubled
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults produce --rounds $(FAULTS_ROUNDS) $(FAULTS_ARGS)

test-faults-cluster: $(if $(VENV),$(VENV)/.installed)  ## Three brokers killed, cut off, without memory, with bad disks, mounts away, old copies or registries, 200 times: no anomaly
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults cluster --rounds $(FAULTS_ROUNDS) --seconds $(FAULTS_CLUSTER_SECONDS) $(FAULTS_ARGS)

test-faults-compaction: $(if $(VENV),$(VENV)/.installed)  ## SIGKILL of brokers and cleaners, 200 times: the last record of each key stands
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults compaction --rounds $(FAULTS_ROUNDS) $(FAULTS_ARGS)

test-faults-consumer: $(if $(VENV),$(VENV)/.installed)  ## Brokers and our own consumers killed, these stopped too, 200 times: nothing lost after, nothing twice before
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults consumer --rounds $(FAULTS_ROUNDS) $(FAULTS_ARGS)

test-faults-disk: $(if $(VENV),$(VENV)/.installed-dev)  ## Every call to the file system fails in turn, or is the last one, in every way
	BARNABAS_EVERY_FAULT=1 $(FAULTS_PYTHON) -m pytest tests/log/test_log_faults.py tests/log/cleaner/test_cleaner_faults.py tests/replication/test_log_dir_move_faults.py

test-faults-members: $(if $(VENV),$(VENV)/.installed)  ## Fifty members come, go and die for ten minutes: none stuck, no partition owned twice
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults members --rounds $(FAULTS_MEMBER_ROUNDS) $(FAULTS_ARGS)

test-faults-planted: $(if $(VENV),$(VENV)/.installed-dev)  ## Bugs planted on purpose: each is found by its test or by a round of faults; half an hour
	$(FAULTS_PYTHON) -m pytest -m slow tests/broker/test_planted_bugs.py tests/faults/cluster/test_planted_bugs.py

test-faults-producer: $(if $(VENV),$(VENV)/.installed)  ## Brokers and our own producers killed, 200 times: nothing lost or doubled
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults producer --rounds $(FAULTS_ROUNDS) $(FAULTS_ARGS)

test-faults-starts: $(if $(VENV),$(VENV)/.installed-dev)  ## Three brokers started at the same moment 50 times, with a file and with ZooKeeper: one cluster, one controller
	BARNABAS_STARTS=$(FAULTS_STARTS) $(FAULTS_PYTHON) -m pytest tests/testing/cluster/test_starting_together.py

test-faults-transactions: $(if $(VENV),$(VENV)/.installed)  ## Brokers and copiers killed 300 times: each record copied exactly once
	PYTHONPATH=. $(FAULTS_PYTHON) tests/faults transactions --rounds $(FAULTS_TRANSACTION_ROUNDS) $(FAULTS_ARGS)

test-faults-zookeeper: $(if $(VENV),$(VENV)/.installed-dev)  ## Three machines with broker and ZooKeeper, their processes and links hit for a minute, 100 times
	$(FAULTS_PYTHON) -m pytest -m slow tests/testing/cluster/test_zookeeper_ensemble.py tests/broker/startup/test_start_table.py tests/test_operations_page.py
	PYTHONPATH=.:tests $(FAULTS_PYTHON) tests/faults cluster --machines --keep --rounds $(FAULTS_ZOOKEEPER_ROUNDS) --seconds $(FAULTS_CLUSTER_SECONDS) $(FAULTS_ARGS)
