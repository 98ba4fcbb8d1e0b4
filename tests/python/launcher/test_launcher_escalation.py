"""The times at which processes that should end are signalled."""

import itertools

import pytest

from smddprun.escalation import Escalation, Step

T, K, G = Step.TERMINATE, Step.KILL, Step.GIVE_UP


def walk(escalation: Escalation, until: float = 100.0) -> list[tuple[float, Step]]:
    """Returns the steps that become due, each with its deadline."""
    steps = []
    while escalation.deadline is not None and escalation.deadline <= until:
        at = escalation.deadline
        assert escalation.due(at - 1e-6) is None
        steps.append((at, escalation.due(at)))
        assert steps[-1][1] is not None
    return steps


def test_nothing_is_due_before_it_begins():
    escalation = Escalation()
    assert escalation.deadline is None and escalation.due(1e9) is None


@pytest.mark.parametrize("wait,term,kill", itertools.product([0.0, 5.0], [0.0, 5.0, 7.0], [1.0, 10.0]))
def test_steps_come_in_order_and_once(wait, term, kill):
    escalation = Escalation(term, kill)
    escalation.begin(10.0, wait)
    expected = [(10 + wait, T), (10 + wait + term, K), (10 + wait + term + kill, G)]
    assert walk(escalation) == expected
    assert escalation.due(1e9) is None


def test_the_first_failure_sets_the_clock():
    escalation = Escalation()
    escalation.begin(0.0, 5.0)
    escalation.begin(4.0, 5.0)
    assert walk(escalation)[0] == (5.0, T)


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("steps_done", range(4))
def test_hasten_makes_a_step_due_now_but_never_goes_back(step, steps_done):
    escalation = Escalation()
    escalation.begin(0.0, 5.0)
    for _ in range(steps_done):
        escalation.due(escalation.deadline)
    escalation.hasten(50.0, step)
    after = [found for _, found in walk(escalation)]
    assert after == [s for s in Step if s >= max(step, steps_done + 1)] or (
        step <= steps_done and after == [s for s in Step if s > steps_done]
    )


def test_hasten_begins():
    escalation = Escalation()
    escalation.hasten(3.0, K)
    assert walk(escalation) == [(3.0, K), (33.0, G)]
    escalation.begin(20.0, 0.0)
    assert escalation.deadline is None


def test_postpone_never_makes_a_step_due_earlier():
    escalation = Escalation()
    escalation.postpone(0.0, 1.0)
    assert escalation.deadline is None
    escalation.begin(0.0, 60.0)
    escalation.postpone(1.0, 0.5)
    assert escalation.deadline == 60.0
    escalation.postpone(59.8, 0.5)
    assert escalation.deadline == pytest.approx(60.3)
