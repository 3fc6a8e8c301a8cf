"""Values of records with types: JSON, Avro, protobuf, text. What does not parse is kept beside, with a reason."""
