"""The consumer: subscription, membership in a group, positions, committed offsets, and the records for the application.

Main classes: `KafkaConsumer` (all parts on a network client), `SubscriptionState`, `group.Membership`, and the fronts
`front.Consumer` and `aio_front.Consumer`.
"""
