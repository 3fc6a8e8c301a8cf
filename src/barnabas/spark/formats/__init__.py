"""Decodes the values of records with a type: JSON, Avro, protobuf, text. Keeps values that cannot be decoded."""
