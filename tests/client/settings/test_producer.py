"""A producer's settings that depend on each other."""

from barnabas.client.settings import ProducerSettings


def test_idempotence_gives_way_to_what_was_asked_for() -> None:
    settings = ProducerSettings(acks="1")
    assert not settings.enable_idempotence
    assert settings.acks == 1
    assert "acks=1" in settings.warnings[0]
    assert not ProducerSettings(retries=0).enable_idempotence
    assert ProducerSettings(enable_idempotence=False, max_in_flight_requests_per_connection=9).warnings == ()
    assert ProducerSettings(acks="ALL").acks == ProducerSettings(acks=-1).acks == -1


def test_delivery_timeout_follows_what_it_must_cover() -> None:
    assert ProducerSettings(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    assert ProducerSettings().delivery_timeout_ms == 120_000


def test_compression_level_is_that_of_the_codec() -> None:
    assert ProducerSettings().compression_level is None
    assert ProducerSettings(compression_type="GZIP").compression_level == -1
    assert ProducerSettings(compression_type="zstd", compression_zstd_level=9).compression_level == 9
