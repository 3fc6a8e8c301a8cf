from pipeline.conftest import broker as broker
