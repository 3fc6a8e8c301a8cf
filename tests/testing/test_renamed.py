"""Keywords under their former names: they work and warn."""

import pytest

from barnabas.testing.renamed import renamed


@renamed(config="configs")
def create(name: str, configs: str = "none") -> str:
    return f"{name} {configs}"


def test_the_new_name_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    assert create("t", configs="x") == "t x"
    assert not recwarn.list


def test_the_former_name_works_and_names_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"create\(config=\) is configs= now"):
        assert create("t", config="x") == "t x"  # type: ignore[call-arg]
