"""Random training programs on the ranks, against one process with the whole batch."""

import pytest
from training_programs import check

pytestmark = [pytest.mark.all_cases, pytest.mark.min_ranks(2)]

# `make quick` runs the first two programs, `make test` ten, `make test-all` 300.
SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10)),
    *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 300)),
]


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed):
    """`smddprun -np 2 python training_programs.py SEED` runs it again."""
    check(seed)
