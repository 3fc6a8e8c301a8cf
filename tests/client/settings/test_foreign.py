"""Settings of other clients: ignored, refused, or known by another name."""

from barnabas.client.settings import ConsumerSettings


def test_settings_of_the_jvm_are_taken_with_a_warning() -> None:
    settings = ConsumerSettings({"metric.reporters": "x", "client.dns.lookup": "use_all_dns_ips"})
    assert settings.warnings == ("settings of Kafka without effect here: client.dns.lookup, metric.reporters",)
