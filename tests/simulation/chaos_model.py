"""The rules by which Hypothesis makes trouble for a producer. Subclasses add the application, beginning and end."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulation.producer_chaos import AFTER, BEFORE, PAUSES, ProducerChaos

__all__ = ["ChaosModel"]

asked = precondition(lambda self: hasattr(self, "chaos") and self.chaos.links())


class ChaosModel(RuleBasedStateMachine):
    """Rules about the network, the brokers and time."""

    chaos: ProducerChaos

    @rule(seconds=st.sampled_from(PAUSES))
    def time_passes(self, seconds: float) -> None:
        self.chaos.time_passes(seconds)

    @asked
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        self.chaos.answer(data.draw(st.sampled_from(self.chaos.links())))

    @asked
    @rule(data=st.data(), code=st.sampled_from(BEFORE))
    def answer_with_an_error(self, data: Any, code: int) -> None:
        self.chaos.answer(data.draw(st.sampled_from(self.chaos.links())), before=code)

    @asked
    @rule(data=st.data(), code=st.sampled_from(AFTER))
    def act_and_answer_with_an_error(self, data: Any, code: int) -> None:
        self.chaos.answer(data.draw(st.sampled_from(self.chaos.links())), after=code)

    @asked
    @rule(data=st.data(), handled=st.integers(0, 6), late=st.booleans())
    def cut(self, data: Any, handled: int, late: bool) -> None:
        self.chaos.cut(data.draw(st.sampled_from(self.chaos.links())), handled, late)

    @precondition(lambda self: hasattr(self, "chaos") and self.chaos.late_links())
    @rule(data=st.data())
    def late_bytes(self, data: Any) -> None:
        self.chaos.late_bytes(data.draw(st.sampled_from(self.chaos.late_links())))

    @rule(partition=st.integers(0, 1), data=st.data())
    def leader_moves(self, partition: int, data: Any) -> None:
        self.chaos.leader_moves(partition, data.draw(st.integers(1, self.chaos.cluster.nodes)))

    @invariant()
    def promise(self) -> None:
        if hasattr(self, "chaos"):
            self.chaos.check()
