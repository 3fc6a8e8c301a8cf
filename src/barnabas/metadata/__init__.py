"""What a broker knows of the cluster: brokers, topics, partitions, configs, as one immutable image.

Main classes: `MetadataImage`, `TopicImage`, `PartitionImage`, `MetadataDelta`. It must never know where the
image came from.
"""
