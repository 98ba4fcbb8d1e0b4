"""What torch does with a process group: the same as on Gloo, to the bit. And torch's own tests of groups."""

import json

import pytest
import torch_suite
from conftest import SCRIPTS
from harness import run_job

# One of each kind, and those that have found something.
SOME = [
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_group",
    "test_all_reduce_coalesced_group_max",
    "test_all_reduce_sum_async",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_group",
    "test_destroy_group",
    "test_get_future",
    "test_reduce_group_product",
    "test_scatter_complex",
    "test_scatter_object_list",
    "test_send_recv_any_source",
    "test_sparse_all_reduce_sum",
    "test_static_graph_api_cpu",
]


def test_equal_to_gloo(tmp_path):
    """DDP, FSDP, ZeRO, compiled modules, checkpoints and all collectives; scripts/backend.py has them."""
    job = run_job(2, str(SCRIPTS / "backend.py"), str(tmp_path))
    assert job.exit_code == 0, str(job)
    for rank in range(2):
        found = json.loads((tmp_path / f"results-{rank}").read_text())
        wrong = {name: text for name, text in found.items() if text}
        assert not wrong, "\n".join(f"{name}:\n{text}" for name, text in wrong.items())


def test_some_tests_of_torch(tmp_path):
    found = torch_suite.run_tests("smddp", 3, SOME, tmp_path / "log")
    wrong = {test: outcome for test, outcome in found.items() if outcome != "passed"}
    assert not wrong, f"{wrong}\n{(tmp_path / 'log').read_text(errors='replace')}"


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3])
def test_all_tests_of_torch(tmp_path, ranks):
    wrong = torch_suite.compare(ranks, log=tmp_path)
    assert not wrong, "\n".join(wrong)
