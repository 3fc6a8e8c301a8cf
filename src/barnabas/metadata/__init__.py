"""The metadata of the cluster: brokers, topics, partitions, settings, as one immutable image.

Main classes: `MetadataImage`, `TopicImage`, `PartitionImage`, `MetadataDelta`. It must never know where the
image came from.
"""
