"""Faults around a process group: errors, times that are over, threads, processes that fork or end."""

import textwrap

START = """
dist.init_process_group("smddp")
rank, size = dist.get_rank(), dist.get_world_size()
"""
END = "\ndist.barrier()\n"


def succeeds(run_job, script, num_ranks=2):
    job = run_job(num_ranks, START + textwrap.dedent(script) + END)
    assert job.exit_code == 0, str(job)
    return job


def test_works_that_nobody_waits_for(run_job):
    script = """
    import gc, time

    tensors = [torch.full((n,), float(rank)) for n in range(1, 200)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        time.sleep(0.5)  # the other rank waits for it in destroy_process_group()
    dist.all_reduce(torch.ones(10_000_000), async_op=True)  # nothing else refers to it
    large = torch.ones(10_000_000)
    dist.all_reduce(large, async_op=True)
    dist.destroy_process_group()
    assert all((tensor == 1).all() for tensor in tensors) and (large == 2).all()
    gc.collect()
    dist.init_process_group("smddp", f"file://{os.getcwd()}/store2", rank=rank, world_size=size)
    dist.barrier()
    """
    succeeds(run_job, script)


def test_callbacks_of_futures_wait_for_later_works(run_job):
    script = """
    def again(future):
        tensor = future.value()[0].clone()
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        return tensor

    for _ in range(20):
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again)
        assert future.wait().tolist() == [size**3] * 3

    def fail(future):
        raise ValueError("mine")

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fail)
    try:
        future.wait()
        report("error", "none")
    except Exception as error:
        report("error", str(error))
    """
    job = succeeds(run_job, script)
    assert all("ValueError: mine" in each["error"] for each in job.reports), str(job)


def test_the_time_of_a_wait_is_over(run_job):
    script = """
    from datetime import timedelta

    if rank == 0:
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        begin = time.monotonic()
        try:
            work.wait(timedelta(seconds=0.5))
            report("error", "none")
        except dist.DistBackendError as error:
            report("error", str(error))
        report("seconds", time.monotonic() - begin)
        dist.send(tensor, 1)
        work.wait()
        assert tensor.tolist() == [2, 2, 2]
    else:
        dist.recv(torch.empty(3), 0)
        dist.all_reduce(torch.ones(3))
    """
    first = succeeds(run_job, script).reports[0]
    assert "Timed out" in first["error"] and 0.5 <= first["seconds"] < 2, first


def test_data_loader_workers_fork(run_job):
    script = """
    from torch.utils.data import DataLoader

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return torch.full((4,), float(index))

    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for _ in range(2):
        for batch in DataLoader(Data(), 3, num_workers=2, multiprocessing_context="fork"):
            module(batch).sum().backward()
            dist.all_reduce(batch)
    """
    succeeds(run_job, script)


def test_two_threads_with_two_groups(run_job):
    script = """
    import threading

    groups, results = [dist.group.WORLD, dist.new_group()], [[], []]

    def work(index):
        for i in range(200):
            tensor = torch.full((100,), float(i))
            pending = dist.all_reduce(tensor, group=groups[index], async_op=True)
            if i % 3:
                pending.wait()
            else:
                pending.get_future().wait()
            results[index].append(tensor[0].item())

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[2.0 * i for i in range(200)]] * 2
    """
    succeeds(run_job, script)


def test_a_rank_dies_in_training(run_job):
    """Torch's DDP waits for futures in C++, where an error must be one, too."""
    script = """
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    module(torch.ones(2, 4)).sum().backward()
    if rank == 1:
        os._exit(7)
    begin = time.monotonic()
    try:
        module(torch.ones(2, 4)).sum().backward()
        report("error", "none")
    except RuntimeError as error:
        report("error", str(error))
    report("seconds", time.monotonic() - begin)
    """
    job = run_job(2, START + textwrap.dedent(script))
    assert job.exit_code == 7, str(job)
    assert "rank 1" in job.reports[0]["error"] and "exited with code 7" in job.reports[0]["error"], str(job)
    assert job.reports[0]["seconds"] < 5, str(job)


def test_ctrl_c_in_a_wait(run_job):
    script = """
    import signal, threading

    if rank == 0:
        begin = time.monotonic()
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            work.wait()
            report("error", "none")
        except KeyboardInterrupt:
            report("error", "KeyboardInterrupt")
        report("seconds", time.monotonic() - begin)
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
        try:
            dist.all_reduce(torch.ones(3))
            report("error", "none")
        except RuntimeError as error:
            report("error", str(error))
    """
    job = succeeds(run_job, script)
    assert job.reports[0]["error"] == "KeyboardInterrupt" and job.reports[0]["seconds"] < 5, str(job)
    assert "interrupt" in job.reports[1]["error"], str(job)


def test_the_end_with_works_and_callbacks_under_way(run_job):
    script = """
    for _ in range(10):
        work = dist.all_reduce(torch.ones(100_000), async_op=True)
        work.get_future().then(lambda future: time.sleep(0.1))
    """
    job = run_job(2, START + textwrap.dedent(script))
    assert job.exit_code == 0, str(job)


def test_spawn(run_job):
    script = """
    import socket

    def rank_of(rank, methods):
        for method in methods:  # also again in one process
            dist.init_process_group("smddp", method, rank=rank, world_size=2)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [2, 2, 2]
            dist.destroy_process_group()

    if __name__ == "__main__":
        # A port each: torch's store of a rank that is early would meet the server of the group before.
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("127.0.0.1", 0))
            again = [f"tcp://127.0.0.1:{free.getsockname()[1]}" for free in (one, other)]
        for methods in ([f"file://{os.getcwd()}/store"], again):
            torch.multiprocessing.spawn(rank_of, (methods,), nprocs=2)
    """
    job = run_job(1, textwrap.dedent(script), launcher=False)
    assert job.exit_code == 0, str(job)
