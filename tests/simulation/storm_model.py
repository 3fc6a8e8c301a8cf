"""The rules by which Hypothesis makes trouble for a producer. Subclasses add the application, beginning and end."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulation.storm import AFTER, BEFORE, PAUSES, Storm

__all__ = ["StormModel"]

asked = precondition(lambda self: hasattr(self, "storm") and self.storm.links())


class StormModel(RuleBasedStateMachine):
    """Rules about the network, the brokers and time."""

    storm: Storm

    @rule(seconds=st.sampled_from(PAUSES))
    def time_passes(self, seconds: float) -> None:
        self.storm.time_passes(seconds)

    @asked
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())))

    @asked
    @rule(data=st.data(), code=st.sampled_from(BEFORE))
    def answer_with_an_error(self, data: Any, code: int) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())), before=code)

    @asked
    @rule(data=st.data(), code=st.sampled_from(AFTER))
    def act_and_answer_with_an_error(self, data: Any, code: int) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())), after=code)

    @asked
    @rule(data=st.data(), handled=st.integers(0, 6), late=st.booleans())
    def cut(self, data: Any, handled: int, late: bool) -> None:
        self.storm.cut(data.draw(st.sampled_from(self.storm.links())), handled, late)

    @precondition(lambda self: hasattr(self, "storm") and self.storm.late_links())
    @rule(data=st.data())
    def late_bytes(self, data: Any) -> None:
        self.storm.late_bytes(data.draw(st.sampled_from(self.storm.late_links())))

    @rule(partition=st.integers(0, 1), data=st.data())
    def leader_moves(self, partition: int, data: Any) -> None:
        self.storm.leader_moves(partition, data.draw(st.integers(1, self.storm.cluster.nodes)))

    @invariant()
    def promise(self) -> None:
        if hasattr(self, "storm"):
            self.storm.check()
