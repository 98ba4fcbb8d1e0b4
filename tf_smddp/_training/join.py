"""join: ranks that have different numbers of batches end a loop together.

A rank that is at the end of its data leaves all its process sets. The collectives of the others then neither
wait for it nor include it, whatever they are and wherever they are called: in a `tf.function`, in a program
that XLA has compiled, in `fit`. When all ranks have left, all are back. The engine does this
(`Engine::Leave` and `Engine::Return`), and knows which rank was the last: it has taken part in all steps, so
the others get its variables.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Optional, Sequence, Tuple, Type

from smddp import communicators, process_sets
from tf_smddp._collectives.broadcast import broadcast_variables
from tf_smddp._graphs.call_site import check_can_act
from tf_smddp._guards import loop_check, periodic_check
from tf_smddp._guards.start_weights import note_equal
from tf_smddp._training.local_sgd import after_join
from tf_smddp._training.model_variables import optimizers_in, variables_in
from tf_smddp._training.optimizers.reclassing import is_distributed, state_of
from tf_smddp._training.optimizers.sharding import ShardedReduction


class join:
    """A loop that ranks may end at different times, because they have different numbers of batches.

        with sdp.join(model, optimizer):
            for images, labels in dataset:
                train_step(images, labels)

    Collective: every rank of the job must have it around the same loop, once in each epoch. A rank that comes
    to its end waits there for the others, and contributes nothing to their collectives meanwhile: a sum, an
    average, a minimum and so on is over the ranks that still run, and a gathered tensor has their rows. When
    all ranks are there, those that had less data get the variables of the rank that had most.

    While a rank waits here, the others cannot make process sets, or broadcast from it; `alltoall` needs all
    ranks, too. These raise errors. Process sets of some ranks are left and joined in the same way.
    An exception inside of the block is not caught, and is an error on the other ranks, as everywhere.

    Attributes:
        last_rank: after the block, the rank that was the last to come to the end; None before.
    """

    last_rank: Optional[int] = None
    _num_open = 0  # blocks that this process is in

    @classmethod
    def is_open(cls) -> bool:
        """Returns whether this process is in such a block."""
        return cls._num_open > 0

    def __init__(self, *state: Any):
        """Makes it; nothing is sent.

        Args:
            *state: what the loop changes, and what must be the same on all ranks after it: models, their
                optimizers, variables, or lists of these. A compiled Keras model brings its optimizer.

        Raises:
            RuntimeError: before `init`, or while a function is traced.
            TypeError: nothing was given, or something that has no variables.
            ValueError: the state of an optimizer is sharded.
        """
        check_can_act("join")
        if not state:
            raise TypeError(
                "join() needs what the loop changes, so that all ranks have the same after it: "
                "join(model, optimizer)."
            )
        variables_in(state, "join")
        check_may_join(state, "join()")
        self._state: Tuple[Any, ...] = state

    def __enter__(self) -> join:
        """Begins the loop. Collective if SMDDP_CHECK_EVERY is set."""
        periodic_check.prepare()
        join._num_open += 1
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Collective, unless there is an error: waits for all ranks, and makes the variables equal.

        Raises:
            RuntimeError: a rank has ended without coming here, or the job has ended; the text says which.
            tf.errors.InternalError: the ranks have different numbers of variables, or different shapes.
        """
        join._num_open -= 1
        if kind is None:
            self.last_rank = last = leave_and_return()
            variables = variables_in(self._state, "join")
            after_join(self._state, lambda: broadcast_variables(variables, root_rank=last))
            note_equal(variables)


def check_may_join(state: Sequence[Any], caller: str) -> None:
    """Checks that ranks can go on without one of them: each has the state of the optimizers.

    Raises:
        ValueError: the state of one is sharded.
    """
    for optimizer in optimizers_in(state):
        if is_distributed(optimizer) and isinstance(state_of(optimizer).reduction, ShardedReduction):
            raise ValueError(
                f"{caller} is not for DistributedOptimizer(shard_state=True), since a rank that waits cannot "
                "update its part. Give all ranks equally many batches, as shard() does by default."
            )


def leave_and_return() -> int:
    """Waits until all ranks have called this; meanwhile the collectives of the others are without this rank.

    Returns:
        The rank that called it last.

    Raises:
        RuntimeError: a rank has ended without calling it, or the job has ended; the text says which.
    """
    last = communicators.leave_and_return(process_sets.joined_communicators())
    loop_check.after_join()
    return last
