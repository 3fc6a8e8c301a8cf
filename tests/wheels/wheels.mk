# What is published: tools/build_wheels.py says what is built here, and pyproject.toml what cibuildwheel builds elsewhere.

.PHONY: wheels test-wheels

wheels:  ## The source distribution and the wheels that this machine can build, into dist/
	$(PYTHON) tools/build_wheels.py dist

test-wheels: wheels $(VENV)/.installed-dev  ## Install each wheel into an empty environment of each Python that is here, and use it
	PYTHONPATH=tools $(BIN)/python -m pytest tests/wheels/check_wheels.py
