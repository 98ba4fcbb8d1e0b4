"""What `smddprun --check` says of GPUs, and what `smddprun` sets for ranks with a GPU each; without GPUs."""

import os
import types

import pytest
from test_launcher_single_node import FOUR_GPUS, made_up_devices

from smddprun import cuda, gpus
from smddprun.check import bandwidth, findings, gpu_report, self_test, self_tests
from smddprun.check.gpu_report import Framework
from smddprun.check.libraries import Nccl
from smddprun.cuda import Driver, Gpu

GIB = 1 << 30
H100 = [Gpu("H100", 80 * GIB, f"0000:{number:02x}:00.0") for number in range(8)]
WORKS = Driver(12040, 0, "", tuple(H100))


@pytest.mark.parametrize(
    "driver, files, visible, part, remedy",
    [
        (WORKS, 8, None, "8 x H100, 80 GiB; the driver is for CUDA 12.4", ""),
        (WORKS._replace(gpus=tuple(H100[:2])), 2, "0,1", "2 x H100, 80 GiB; ", ""),
        (WORKS._replace(gpus=tuple(H100[:7])), 8, None, "but 8 have a file in /dev", "nvidia-smi"),
        (WORKS._replace(gpus=(H100[0]._replace(name="H100 MIG 1g"),)), 2, "MIG-1,MIG-2", "(MIG)", ""),
        (None, 8, None, "there is no CUDA driver", "--gpus all"),
        (Driver(12040, 802, "cuInit failed: not yet initialized"), 8, None, "(error 802)", "fabricmanager"),
        (Driver(12040, 803, "cuInit failed: mismatch"), 8, None, "(error 803)", "restart the machine"),
        (Driver(12040, 100, "cuInit failed: no device"), 8, None, "(error 100)", "--gpus all"),
        (Driver(12040, 999, "cuInit failed: unknown"), 8, None, "(error 999)", "dmesg"),
    ],
)
def test_the_driver(driver, files, visible, part, remedy):
    found = gpu_report.driver_of(driver, files, visible)
    assert part in found.text and found.is_problem == bool(remedy) and remedy in found.remedy


def test_tensorflow_sees_fewer_gpus_than_there_are():
    text = gpu_report.reasons_in(
        "2026-11-28 02:00:00.1: I tsl/platform/dso_loader.cc:57] Successfully opened dynamic library libx\n"
        "2026-11-28 02:00:00.2: I tsl/platform/dso_loader.cc:63] Could not load dynamic library 'libcudnn'\n"
        "I0000 00:00:1795838720.768552   18022 dso_loader.cc:144] Could not load dynamic library 'liby'\n"
        "W0000 00:00:1795838720.768558   18022 gpu_device.cc:2365] Cannot dlopen\n"
        "2026-11-28 02:00:00.3: W tensorflow/core/gpu_device.cc:2256] Cannot dlopen\nSkipping\n"
    )
    said = ["Could not load dynamic library 'libcudnn'", "Could not load dynamic library 'liby'"]
    found = gpu_report.framework_of("TensorFlow sees", Framework(0, text, "install them"), 8)
    assert found.text.split("\n")[1:] == [*said, "Cannot dlopen"], found.text
    assert found.text.startswith("0 of 8 GPUs; a rank without one computes on the CPU\n")
    assert found.remedy == "install them"
    assert not gpu_report.framework_of("TensorFlow sees", Framework(8, text, "install them"), 8).is_problem


@pytest.mark.parametrize(
    "torch, num_gpus, reason",
    [
        (
            "class cuda: device_count = lambda: 8\nclass version: cuda = '12.4'",
            8,
            "it is built for CUDA 12.4",
        ),
        ("class cuda: device_count = lambda: 0\nclass version: cuda = None", 0, "it is built without CUDA"),
        ("raise ImportError('no libcudart')", 0, "ImportError: no libcudart"),
    ],
)
def test_torch_sees_gpus(tmp_path, torch, num_gpus, reason):
    (tmp_path / "torch.py").write_text(torch)
    found = gpu_report._torch({**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found.num_gpus == num_gpus and reason in found.text, found
    finding = gpu_report.framework_of("torch sees", found, 8)
    assert finding.is_problem == (num_gpus < 8) and ("pytorch.org" in finding.remedy) == (num_gpus < 8)


def test_parts_of_one_gpu():
    assert gpu_report.parts_of(WORKS) == []
    (found,) = gpu_report.parts_of(WORKS._replace(gpus=(H100[0], H100[1], H100[1]._replace(name="MIG"))))
    assert "devices 1, 2 are parts of one GPU (bus id 0000:01:00.0)" in found.text and found.is_problem


def test_links():
    assert "each GPU reaches" in gpu_report.links_of(WORKS).text
    apart = gpu_report.links_of(WORKS._replace(apart=((0, 4), (1, 4))))
    assert "GPUs 0 and 4, 1 and 4 do not" in apart.text and not apart.is_problem


@pytest.mark.parametrize("free, problem", [(64 << 20, True), (GIB - 4096, True), (GIB, False)])
def test_shared_memory(free, problem):
    status = types.SimpleNamespace(f_blocks=GIB // 4096, f_bavail=free // 4096, f_frsize=4096)
    found = gpu_report.shared_memory(status)
    assert found.is_problem == problem and ("--shm-size=1g" in found.remedy) == problem


def test_nccl_and_its_packages():
    assert "nvidia-nccl-cu12" in gpu_report.nccl_of(Nccl(False, "none"), "").remedy
    assert gpu_report.nccl_of(Nccl(True, "2.21.5 (/x)"), "2.21.5").lines() == [
        "  NCCL            2.21.5 (/x)"
    ]
    other = gpu_report.nccl_of(Nccl(True, "2.21.5 (/x)"), "2.16.5")
    assert other.text == "2.21.5 (/x); tensorflow[and-cuda] has 2.16.5" and not other.is_problem
    assert gpu_report.packages_of({"nvidia-nccl-cu12": "2.21.5"}, WORKS) == []
    both = {"nvidia-nccl-cu12": "2.21.5", "nvidia-nccl-cu13": "2.28.3"}
    (found,) = gpu_report.packages_of(both, WORKS)
    assert "nvidia-nccl-cu13 2.28.3 is installed, but the driver is for CUDA 12.4" in found.text
    assert "uninstall nvidia-nccl-cu13" in found.remedy and "nvidia-nccl-cu12" in found.remedy
    assert gpu_report.packages_of(both, WORKS._replace(version=13000)) == []


RATE = bandwidth.Rate(64 << 20, 64e-3, 60e-3)


def test_the_table_of_bandwidths():
    found = bandwidth.finding_of([RATE, bandwidth.Rate(1 << 20, 1e-3, None)], 8)
    first, second = found.text.splitlines()[1:]
    assert first.split() == ["64", "MiB", "1.05", "1.84", "1.12", "1.96", "94%"]
    assert second.split()[:4] == ["1", "MiB", "1.05", "1.84"] and "not measured" in second
    assert not found.is_problem
    slow = bandwidth.finding_of([RATE._replace(alone=50e-3)], 8)
    assert slow.is_problem and "at 64 MiB tf_smddp has 78% of NCCL's own speed" in slow.text
    assert not bandwidth.finding_of([RATE._replace(num_bytes=1 << 20, alone=1e-3)], 8).is_problem


def rank_says(number, past=()):
    said = {"rank": number, "host": "h", "device": f"GPU:{number}", "past_nccl": list(past)}
    return findings.encode(self_test.KIND, {**said, "right": "each collective is right"})


def starts(script):
    """Returns how a made-up test of 2 ranks starts, and a list of what it was given."""
    given = []

    def start(environ, limit, arguments):
        given.append((environ, limit, list(arguments)))
        return ["sh", "-c", script, *arguments], {**environ, "PATH": "/usr/bin:/bin"}

    return start, given


def right(past=()):
    return "".join(f"echo '{rank_says(number, past).strip()}'\n" for number in (0, 1))


def test_many_gpus_have_short_names():
    devices = [f"GPU:{number}" for number in range(8)]
    shown = [self_tests._span(devices[:count]) for count in (1, 2, 8)]
    assert shown == ["GPU:0", "GPU:0, GPU:1", "GPU:0 to GPU:7"]


def test_two_runs_on_gpus_one_of_them_without_growth():
    start, given = starts(right())
    found = self_tests.run(start, {}, 2, 30, False, True)
    assert [each.topic for each in found] == ["self test", "without growth"], found
    assert found[0].text == "2 ranks on h (GPU:0, GPU:1): each collective is right, through NCCL"
    assert not any(each.is_problem for each in found)
    assert [arguments for _, _, arguments in given] == [["bandwidth"], ["whole-memory"]]


def test_a_run_without_growth_that_fails():
    start, _ = starts(
        '[ "$0" = whole-memory ] && { echo "RuntimeError: out of memory"; exit 1; }\n' + right()
    )
    found = self_tests.run(start, {}, 2, 30, False, True)
    assert [each.is_problem for each in found] == [False, True], found
    assert "RuntimeError: out of memory" in found[1].text
    assert "TF_DEVICE_MIN_SYS_MEMORY_IN_MB" in found[1].remedy and "memory growth" in found[1].remedy


def test_past_nccl_is_a_problem():
    start, given = starts(right(["alltoall"]))
    (found,) = self_tests.run(start, {}, 2, 30, False, True)
    assert found.is_problem
    assert "but not through NCCL: alltoall went through the host's memory" in found.text
    # SMDDP_NCCL=0 is not tried: it would work, but no other way than now.
    tried = [
        [name for name in environ if "NCCL_" in name and "TIMEOUT" not in name] for environ, _, _ in given
    ]
    assert tried == [[], ["NCCL_NVLS_ENABLE"], ["NCCL_P2P_DISABLE"]]
    assert "it is the same with NCCL_NVLS_ENABLE=0 and with NCCL_P2P_DISABLE=1" in found.text
    assert "NCCL_DEBUG=INFO" in found.remedy


@pytest.mark.parametrize("setting", self_tests.SETTINGS)
@pytest.mark.parametrize("failure", ["echo 'RuntimeError: unhandled system error'; exit 1", "exit 124"])
def test_the_first_setting_that_works_is_the_remedy(setting, failure):
    name, _, value = setting.partition("=")
    start, given = starts(f'[ "${name}" = {value} ] || {{ {failure}; }}\n{right()}')
    (found,) = self_tests.run(start, {}, 2, 30, False, True)
    assert found.is_problem and f"'smddprun -x {setting} ...'" in found.remedy, found
    tried = self_tests.SETTINGS[: self_tests.SETTINGS.index(setting) + 1]
    assert len(given) == 1 + len(tried) and [limit for _, limit, _ in given[1:]] == [10] * len(tried)
    if "echo" in failure:
        assert "RuntimeError: unhandled system error" in found.text


def test_no_setting_works():
    start, given = starts("exit 3")
    (found,) = self_tests.run(start, {}, 2, 30, False, True)
    assert "the same with NCCL_NVLS_ENABLE=0 and with NCCL_P2P_DISABLE=1 and with SMDDP_NCCL=0" in found.text
    assert "exit code 3" in found.text and found.is_problem and len(given) == 4


def test_one_run_where_ranks_have_no_gpus_of_their_own():
    start, given = starts(right(["allreduce"]))
    (found,) = self_tests.run(start, {}, 2, 30, False, False)
    assert not found.is_problem and "NCCL" not in found.text and len(given) == 1


@pytest.mark.parametrize(
    "gib, room", [(8, 0), (16, 0), (19, 0), (20, 2048), (24, 2457), (40, 4096), (80, 4096), (0, 0)]
)
def test_the_room_for_nccl(gib, room):
    assert gpus.room_of(gib * GIB) == room


@pytest.fixture
def four_gpus(monkeypatch, tmp_path):
    folder = made_up_devices(tmp_path, FOUR_GPUS)
    count = gpus.count
    monkeypatch.setattr(gpus, "count", lambda environ: count(environ, folder))
    monkeypatch.setattr(gpus, "_smallest_memory", lambda environ: 80 * GIB)


ROOM, QUEUES = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.parametrize(
    "environ, num_ranks, expected",
    [
        ({}, 4, {ROOM: "4096", QUEUES: "32"}),
        ({}, 2, {ROOM: "4096", QUEUES: "32"}),
        ({ROOM: "", QUEUES: "1"}, 4, {ROOM: "", QUEUES: "1"}),
        ({}, 1, {}),
        ({}, 5, {}),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 4, {}),
    ],
)
def test_what_ranks_with_a_gpu_each_get(four_gpus, environ, num_ranks, expected):
    assert gpus.with_settings(environ, num_ranks) == {**environ, **expected}


def test_a_host_without_gpus_is_not_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "count", lambda environ: 0)
    monkeypatch.setattr(gpus, "_smallest_memory", lambda environ: pytest.fail("a driver was asked"))
    assert gpus.with_settings({"A": "1"}, 2) == {"A": "1"}


def test_a_driver_that_is_not_there():
    assert gpus._smallest_memory({"PATH": "/usr/bin:/bin"}) == 0
    assert cuda.ask() is None
