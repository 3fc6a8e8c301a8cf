from pipeline.conftest import broker as broker
from pipeline.conftest import project as project
