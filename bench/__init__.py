"""Side-by-side benchmarks: any Kafka-speaking broker beside Apache Kafka and kfake, driven by the same clients."""
