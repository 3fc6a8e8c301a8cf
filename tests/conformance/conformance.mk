# librdkafka's own test-runner and franz-go's kgo suite against one broker, or against three by
# CONFORMANCE_ARGS="--brokers 3". Needs mvn, java, javac, gcc, g++, go.
CONFORMANCE_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
CONFORMANCE_ARGS ?=

.PHONY: conformance conformance-record
conformance: $(if $(VENV),$(VENV)/.installed)  ## librdkafka's and franz-go's own suites against the broker; CONFORMANCE_ARGS="--brokers 3": a cluster
	PYTHONPATH=. $(CONFORMANCE_PYTHON) tests/conformance $(CONFORMANCE_ARGS)

conformance-record: $(if $(VENV),$(VENV)/.installed)  ## The same on Apache Kafka; writes tests/conformance/expected.toml
	PYTHONPATH=. $(CONFORMANCE_PYTHON) tests/conformance --broker kafka --record $(CONFORMANCE_ARGS)
