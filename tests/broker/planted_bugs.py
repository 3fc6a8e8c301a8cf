"""Bugs of starts and of bad disks, planted on purpose, that the simulation or rounds of real processes have to find."""

from typing import Any

import pytest

from barnabas.broker import server
from barnabas.broker.cluster.storage_failures import StorageFailures
from barnabas.broker.loop_watchdog import LoopWatchdog
from barnabas.broker.startup import directory_age
from barnabas.broker.startup.directory_age import Age, DirectoryDoubts
from barnabas.metadata.image import MetadataImage
from barnabas.registry.registry import Known


def replicas_are_given_up_whoever_is_there(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts without its disk asks for nobody who has what was there."""
    decide = DirectoryDoubts._in_doubt

    def give_up(self: DirectoryDoubts, image: MetadataImage, dead: Any) -> Any:
        found = decide(self, image, dead)
        return type(found)([*found.others_decide, *found.waiting, *found.alone], {}, ())

    patch.setattr(DirectoryDoubts, "_in_doubt", give_up)


def old_directories_count_as_current(patch: pytest.MonkeyPatch) -> None:
    """Disks that were away for a start and copies of before lead again."""
    age_of = directory_age.age_of

    def believe(*args: Any, **kwargs: Any) -> Age:
        age = age_of(*args, **kwargs)
        return Age.CURRENT if age is Age.OLD else age

    patch.setattr(directory_age, "age_of", believe)


def an_old_registry_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Known, "is_newer_than", lambda *_: False)
    patch.setattr(server, "refuse_epochs_not_given", lambda *_: None)
    patch.setattr(directory_age, "age_of", lambda *_, **__: Age.CURRENT)


def a_disk_that_fails_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StorageFailures, "failed", lambda *_: None)


def a_loop_that_stands_still_keeps_its_roles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopWatchdog, "_watch", lambda _: None)
