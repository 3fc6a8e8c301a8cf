# Real clients against the broker. `make test-interop` builds what can be built here; what is missing is skipped with its reason.
#
#   make test-interop                        against Barnabas
#   make test-interop-kafka                  against Apache Kafka, to prove the tests themselves
#   make test-interop-kafka-before           the release of Apache Kafka before: its Java client and tools with Barnabas, ours with it
#   make test-interop-kafka-old              our own clients against Kafka 2.4.1 and its ZooKeeper
#   make test-interop INTEROP_ARGS="-k groups"
#   BARNABAS_TEST_BROKER=HOST:PORT make test-interop

INTEROP := tests/interop
INTEROP_BUILD := build/interop
INTEROP_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
INTEROP_VENV := $(if $(VENV),$(VENV)/.installed-dev)
INTEROP_ARGS ?=
KAFKA_OLD := 2.4.1
KAFKA_NEW := 4.4.0
KAFKA_BEFORE := 4.3.1
# What is fetched has an end: a registry that stalls is told as a client that could not be built, like one that refuses.
LIMITED := $(if $(shell command -v timeout),timeout -k 10 600)
LIMITED_ALL := $(if $(LIMITED),timeout -k 10 1500)
JAVAC_FLAGS := -nowarn -Xlint:none -encoding UTF-8

.PHONY: test-interop test-interop-kafka test-interop-kafka-before test-interop-kafka-old interop-clients

test-interop: interop-clients  ## Real clients of eight makes against Barnabas
	$(INTEROP_PYTHON) -m pytest $(INTEROP) -q -ra $(INTEROP_ARGS)

test-interop-kafka: interop-clients  ## The same tests against Apache Kafka, which proves the tests
	BARNABAS_TEST_PEER=kafka $(INTEROP_PYTHON) -m pytest $(INTEROP) -q -ra $(INTEROP_ARGS)

test-interop-kafka-before: export BARNABAS_TEST_KAFKA := $(KAFKA_BEFORE)
test-interop-kafka-before: export BARNABAS_TEST_CLIENTS := java-$(KAFKA_BEFORE),kafka-tools,barnabas
test-interop-kafka-before: interop-clients $(INTEROP_BUILD)/java-$(KAFKA_BEFORE).done  ## Java client and tools of the release before against Barnabas, and ours against its broker
	$(INTEROP_PYTHON) -m pytest $(INTEROP) -q -ra $(INTEROP_ARGS)
	BARNABAS_TEST_PEER=kafka $(INTEROP_PYTHON) -m pytest $(INTEROP) -q -ra $(INTEROP_ARGS)

test-interop-kafka-old: interop-clients  ## Our clients against Apache Kafka 2.4.1, the oldest that they promise to work with
	$(INTEROP_PYTHON) -m pytest $(INTEROP)/test_old_kafka.py -q -ra $(INTEROP_ARGS)

# Each client is built if its tools are here; a failed build is told and skipped, so that the others are still tested.
interop-clients: $(INTEROP_VENV)  ## Install or build the clients
	@date '+%T clients of other makes'
	@$(LIMITED_ALL) $(MAKE) --no-print-directory -k $(INTEROP_BUILD)/python.done \
	  $(if $(shell command -v kcat),,$(INTEROP_BUILD)/kcat.done) \
	  $(if $(and $(shell command -v mvn),$(shell command -v javac)),$(INTEROP_BUILD)/java-$(KAFKA_OLD).done $(INTEROP_BUILD)/java-$(KAFKA_NEW).done $(INTEROP_BUILD)/kafka-broker-$(KAFKA_OLD)/.jars) \
	  $(if $(shell command -v go),$(INTEROP_BUILD)/franz-go) \
	  $(if $(shell command -v npm),$(INTEROP_BUILD)/node.done) \
	  || echo "interop: not every client could be built; the tests say which they skip"

$(INTEROP_BUILD)/python.done: $(INTEROP)/clients/python/requirements.txt $(INTEROP_VENV)
	@mkdir -p $(@D)
	$(LIMITED) $(INTEROP_PYTHON) -m pip install --quiet -r $<
	@touch $@

$(INTEROP_BUILD)/kcat.done:
	@mkdir -p $(@D)
	test "$$(id -u)" = 0 && $(LIMITED) apt-get update -qq && $(LIMITED) apt-get install -y -qq kcat >/dev/null && touch $@

$(INTEROP_BUILD)/kafka-%/.jars: $(INTEROP)/clients/java/pom-%.xml
	@mkdir -p $(@D)
	$(LIMITED) mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D))
	@touch $@

$(INTEROP_BUILD)/kafka-4.%/.jars: $(INTEROP)/clients/java/pom-4.xml
	@mkdir -p $(@D)
	$(LIMITED) mvn -q -B -f $< dependency:copy-dependencies -Dkafka.version=4.$* -DoutputDirectory=$(abspath $(@D))
	@touch $@

$(INTEROP_BUILD)/java-%.done: $(INTEROP)/clients/java/InteropClient.java $(INTEROP)/clients/java/KafkaTools.java $(INTEROP_BUILD)/kafka-%/.jars
	@mkdir -p $(INTEROP_BUILD)/classes-$*
	javac $(JAVAC_FLAGS) -cp "$(INTEROP_BUILD)/kafka-$*/*" -d $(INTEROP_BUILD)/classes-$* $(filter-out $(if $(filter $(KAFKA_OLD),$*),%/KafkaTools.java),$(filter %.java,$^))
	@touch $@

$(INTEROP_BUILD)/franz-go: $(INTEROP)/clients/go/main.go $(INTEROP)/clients/go/go.mod
	cd $(INTEROP)/clients/go && $(LIMITED) go build -o $(abspath $@) .

$(INTEROP_BUILD)/node.done: $(INTEROP)/clients/node/package.json
	@mkdir -p $(INTEROP_BUILD)/node
	cp $< $(INTEROP_BUILD)/node/package.json
	$(LIMITED) npm install --prefix $(INTEROP_BUILD)/node --no-package-lock --no-audit --no-fund --silent
	@touch $@

.PRECIOUS: $(INTEROP_BUILD)/kafka-%/.jars $(INTEROP_BUILD)/kafka-4.%/.jars
