"""The copy of the cluster's metadata beside the logs of each broker, from which a lost registry is made anew.

A copy is a sequence of the messages in which the controller pushes a whole image (`metadata_messages`), each with its
length and its CRC-32C in front. It is written a second after a change at the earliest, without a sync
(`broker/metadata_copier.py`). `barnabas cluster recover` takes the newest one, and decides by the logs which replica of
a partition has all its records. A start refuses a registry that is older than a copy
(`broker/startup/registry_age.py`).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from barnabas.broker.cluster.metadata_messages import message_of, update_of
from barnabas.errors import CorruptMessage
from barnabas.log.directories.checkpoints import replace_file
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.update import MetadataUpdate, UpdateReceiver, parts_of_update
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest
from barnabas.records.checksum import crc32c

__all__ = ["CopyVersion", "read_copy", "read_version", "write_copy"]

_HEAD: Final = Struct(">II")
"""Length and CRC-32C."""
_VERSION: Final = 0


class CopyVersion(NamedTuple):
    """Which image a copy has."""

    cluster_id: str
    controller_epoch: int
    version: int


def write_copy(path: str, image: MetadataImage) -> None:
    """Replaces the copy. Raises OSError."""
    parts = []
    for update in parts_of_update(image, None):
        data = encode(message_of(update), _VERSION)
        parts += [_HEAD.pack(len(data), crc32c(data)), data]
    replace_file(path, b"".join(parts), sync=False)


def read_copy(path: str | os.PathLike[str]) -> MetadataImage:
    """Returns the image of a copy. Raises OSError, and CorruptMessage if the file is damaged."""
    receiver, change = UpdateReceiver(EMPTY_IMAGE), None
    for update in _updates(path):
        change = receiver.receive(update)
    if change is None:
        raise CorruptMessage(f"{path} is damaged: its end is missing")
    return change.image


def read_version(path: str | os.PathLike[str]) -> CopyVersion:
    """Returns which image a copy has, by its first part. Raises OSError, and CorruptMessage if that is damaged."""
    for update in _updates(path):
        return CopyVersion(update.cluster_id, update.controller_epoch, update.version)
    raise CorruptMessage(f"{path} is damaged: it is empty")


def _updates(path: str | os.PathLike[str]) -> Iterator[MetadataUpdate]:
    data = Path(path).read_bytes()
    position = 0
    while position < len(data):
        body, checksum = b"", -1
        if position + _HEAD.size <= len(data):
            length, checksum = _HEAD.unpack_from(data, position)
            position += _HEAD.size
            body = data[position : position + length]
            position += length
        if crc32c(body) != checksum or position > len(data):
            raise CorruptMessage(f"{path} is damaged")
        try:
            yield update_of(decode(PushMetadataRequest, _VERSION, body)[0])
        except (MalformedMessage, ValueError) as error:
            raise CorruptMessage(f"{path} is damaged: {error}") from None
