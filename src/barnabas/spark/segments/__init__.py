"""Log directories read straight, without a broker: archives, copies, forensics. Ours and Kafka's are the same."""
