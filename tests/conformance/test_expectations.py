"""What a run of a foreign suite is held to mean."""

from pathlib import Path

from expectations import FAILED, PASSED, SKIPPED, Expectations, Outcome, judge, load, save

EXPECTED = Expectations(
    passes=["TestFetch", "TestGroup", "TestGroup/classic", "TestGroup/848", "TestTxn"],
    exceptions={"TestTxn": "transactions: issue 5", "TestGroup/848": "KIP-848"},
    kafka_fails={"TestOldFormat": "Kafka 4 dropped it"},
    skips={"TestScram": "no SCRAM"},
    three_brokers={"TestFollower": "three replicas"},
)


def outcomes(**results: str) -> dict[str, Outcome]:
    return {name.replace("__", "/"): Outcome(name.replace("__", "/"), result) for name, result in results.items()}


def whole(**changed: str) -> dict[str, Outcome]:
    return outcomes(**{"TestFetch": PASSED, "TestGroup": PASSED, "TestGroup__classic": PASSED, **changed})


def test_all_that_must_pass_passed() -> None:
    verdict = judge(EXPECTED, whole(TestScram=SKIPPED, TestOldFormat=FAILED, TestTxn__range=FAILED))
    assert verdict.good
    assert verdict.passed == ["TestFetch", "TestGroup", "TestGroup/classic"]
    assert verdict.kafka_fails_too == ["TestOldFormat"]


def test_a_failure_of_what_kafka_passes_is_a_failure() -> None:
    verdict = judge(EXPECTED, whole(TestFetch=FAILED))
    assert not verdict.good
    assert list(verdict.failures) == ["TestFetch"]


def test_a_skip_and_a_test_that_did_not_run_are_gaps() -> None:
    verdict = judge(EXPECTED, outcomes(TestFetch=SKIPPED, TestGroup=PASSED))
    assert set(verdict.gaps) == {"TestFetch", "TestGroup/classic"}


def test_a_skip_that_kafka_does_not_have_is_a_gap() -> None:
    assert list(judge(EXPECTED, whole(TestShare=SKIPPED)).gaps) == ["TestShare"]


def test_chosen_tests_alone_leave_no_gap() -> None:
    assert judge(EXPECTED, outcomes(TestFetch=PASSED), complete=False).good


def test_passing_exceptions_and_more_than_kafka_are_said() -> None:
    verdict = judge(EXPECTED, whole(TestTxn=PASSED, TestOldFormat=PASSED))
    assert verdict.good
    assert (verdict.stale_exceptions, verdict.beyond_kafka) == (["TestTxn"], ["TestOldFormat"])


def test_expectations_survive_saving(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    save({"kgo": EXPECTED}, "4.4.0", path)
    assert load(path) == {"kgo": EXPECTED}


def test_every_exception_names_what_lifts_it() -> None:
    for suite in load().values():
        for reason in suite.exceptions.values():
            assert "issue " in reason or "feature " in reason


def test_what_barnabas_must_pass_beyond_kafka() -> None:
    expected = Expectations(passes=["TestFetch"], kafka_fails={"Small": "why"}, beyond_kafka={"Small": "why not here"})
    assert judge(expected, outcomes(TestFetch=PASSED, Small=PASSED)).passed == ["TestFetch", "Small"]
    assert list(judge(expected, outcomes(TestFetch=PASSED, Small=FAILED)).failures) == ["Small"]
    assert list(judge(expected, outcomes(TestFetch=PASSED)).gaps) == ["Small"]


def test_what_needs_three_brokers_must_pass_on_three_and_is_left_out_on_one() -> None:
    expected = Expectations(passes=["TestFetch"], three_brokers={"TestFollower": "three replicas"})
    assert judge(expected, outcomes(TestFetch=PASSED)).good
    cluster = expected.of_cluster()
    assert list(judge(cluster, outcomes(TestFetch=PASSED)).gaps) == ["TestFollower"]
    assert list(judge(cluster, outcomes(TestFetch=PASSED, TestFollower=FAILED)).failures) == ["TestFollower"]
    assert judge(cluster, outcomes(TestFetch=PASSED, TestFollower=PASSED)).good
