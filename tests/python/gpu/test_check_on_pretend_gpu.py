"""`smddprun --check` on a host with GPUs."""

import re
import subprocess
import sys

import pytest
from pretend_gpu import FOLDER

pytestmark = pytest.mark.pretend_gpu


def check(tmp_path, *arguments, limit=150):
    """Runs it, and returns its exit code and its output."""
    words = [sys.executable, "-m", "smddprun", "--check", "--timeout", str(limit), *arguments]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=1500)
    return ended.returncode, ended.stdout + ended.stderr


def without(tmp_path, monkeypatch, name):
    """Has all programs find a folder of CUDA's libraries that lacks some."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for file in FOLDER.iterdir():
        if not file.name.startswith(name):
            (folder / file.name).symlink_to(file)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


@pytest.mark.long
def test_eight_gpus(gpus, tmp_path):
    gpus(8)
    # Eight processes import TensorFlow, perhaps on two cores.
    code, output = check(tmp_path, limit=400)
    assert "  GPUs            8 x Pretend GPU, 2 GiB; the driver is for CUDA 12.5" in output, output
    assert "  TensorFlow sees all 8" in output and "  links           each GPU reaches" in output, output
    right = r"8 ranks on \S+ \(GPU:0 to GPU:7\): each collective is right, through NCCL"
    assert re.search(rf"  self test       {right}\n", output), output
    assert re.search(rf"  without growth  {right}\n", output), output
    # The pretend GPU's memory has room for two sizes; its speed has no meaning.
    rates = re.findall(r"^ +(\d+ MiB) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +\d+%$", output, re.MULTILINE)
    assert rates == ["1 MiB", "8 MiB"], output
    assert code == 0 and output.endswith("no problem was found\n"), output


def test_tensorflow_sees_none_of_them(gpus, tmp_path, monkeypatch):
    gpus(2)
    without(tmp_path, monkeypatch, "libcudnn")
    code, output = check(tmp_path)
    assert "! TensorFlow sees 0 of 2 GPUs; a rank without one computes on the CPU" in output, output
    assert "Cannot dlopen some GPU libraries." in output, output
    assert "pip install 'tensorflow[and-cuda]==" in output, output
    assert re.search(r"self test       2 ranks on \S+ \(CPU:0\): each collective is right\n", output), output
    assert code == 1 and output.endswith("1 problem: the lines that begin with '!', and their remedies\n"), (
        output
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, setting, said",
    [
        ("init_fails:1", "NCCL_NVLS_ENABLE=0", "NVLS"),
        ("kernel_hangs:0", "NCCL_P2P_DISABLE=1", "did not end"),
    ],
)
def test_the_setting_with_which_nccl_works(gpus, tmp_path, monkeypatch, fault, setting, said):
    """NCCL fails or hangs at its start; the remedy is the first setting with which it does not."""
    gpus(2)
    monkeypatch.setenv("SMDDP_NCCL_LIBRARY", str(FOLDER / "libnccl_faulty.so"))
    monkeypatch.setenv("FAULTY_NCCL", fault)
    monkeypatch.setenv("FAULTY_NCCL_TEXT", "Failed to bind NVLink SHARP (NVLS) Multicast memory")
    monkeypatch.setenv("FAULTY_NCCL_UNLESS", setting)
    code, output = check(tmp_path, "-x", "SMDDP_NCCL_TIMEOUT=5")
    # The job goes on through the host, so the results are right.
    assert "each collective is right, but not through NCCL: allgather, allreduce, alltoall" in output, output
    assert "NCCL does not work here" in output and said in output, output
    assert f"remedy: with {setting} it works: start jobs with 'smddprun -x {setting} ...'" in output, output
    assert "without growth" not in output and code == 1, output


@pytest.mark.long
def test_nccl_fails_later(gpus, tmp_path, monkeypatch):
    """Each run with NCCL fails, whatever is set for it, and that without NCCL is the remedy."""
    gpus(2)
    monkeypatch.setenv("PRETEND_GPU_NCCL_FAIL", "1:12")
    code, output = check(tmp_path, limit=300)
    assert "! self test       2 ranks were started" in output and "NCCL" in output, output
    assert "remedy: with SMDDP_NCCL=0 it works" in output, output
    assert "without growth" not in output and code == 1, output


@pytest.mark.long
def test_parts_of_one_gpu(gpus, tmp_path, monkeypatch):
    gpus(2)
    monkeypatch.setenv("PRETEND_GPU_SLICES", "2")
    code, output = check(tmp_path)
    assert "! parts of a GPU  devices 0, 1 are parts of one GPU (bus id 0000:10:00.0)" in output, output
    assert re.search(
        r"  self test       2 ranks on \S+ \(GPU:0, GPU:1\): each collective is right\n", output
    ), output
    assert code == 1, output


@pytest.mark.long
def test_nccl_finds_no_memory_without_growth(gpus, tmp_path, monkeypatch):
    """TensorFlow leaves 1.5 of 8 GiB to others, and NCCL takes 2 GiB."""
    gpus(2)
    monkeypatch.setenv("PRETEND_GPU_MEMORY_MB", "8192")
    monkeypatch.setenv("PRETEND_GPU_NCCL_MEMORY_MB", "2048")
    code, output = check(tmp_path)
    assert re.search(r"  self test       2 ranks on \S+ \(GPU:0, GPU:1\): .*, through NCCL\n", output), output
    assert re.search(
        r"! without growth  2 ranks .*: each collective is right, but not through NCCL", output
    ), output
    assert "NCCL does not work here" in output and "CUDA calloc" in output, output
    assert "remedy: leave NCCL more of the GPU's memory: set memory growth in scripts" in output, output
    assert code == 1 and "1 problem:" in output, output


@pytest.mark.long
def test_without_nccl(gpus, tmp_path, monkeypatch):
    gpus(2)
    without(tmp_path, monkeypatch, "libnccl")
    code, output = check(tmp_path)
    assert "! NCCL            NCCL cannot be opened: " in output, output
    assert re.search(
        r"  self test       2 ranks on \S+ \(GPU:0, GPU:1\): each collective is right\n", output
    ), output
    assert code == 1, output


@pytest.mark.long
@pytest.mark.parametrize("count", [0, 1])
def test_no_gpu_and_one(gpus, tmp_path, count):
    gpus(count)
    code, output = check(tmp_path)
    assert code == 0, output
    if count == 0:
        (line,) = [line for line in output.splitlines() if "GPU" in line]
        assert line == "  GPUs            none, so neither CUDA's driver nor NCCL is needed"
    else:
        assert "  TensorFlow sees all 1\n" in output and " links " not in output, output
        assert re.search(r"  self test       2 ranks on \S+ \(GPU:0\): each collective is right\n", output), (
            output
        )
