FUZZ_SECONDS ?= 600
FUZZ_SEED ?= 1

.PHONY: fuzz
fuzz: $(VENV)/.installed-dev  ## Damaged batches, requests and log directories, FUZZ_SECONDS (600) each
	$(BIN)/python tests/fuzz/fuzz_records.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)
	$(BIN)/python tests/fuzz/fuzz_frames.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)
	$(BIN)/python tests/fuzz/fuzz_recovery.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)
