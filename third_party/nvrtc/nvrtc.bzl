"""Brings in NVRTC, NVIDIA's compiler for CUDA C++, from PyPI: 23 MB, once for each folder of Bazel's output.

Where PyPI cannot be reached, @nvrtc//:library is an empty file, and tf_smddp is built without device code.
"""

def _impl(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3") or "python3"
    requirements = ctx.path(ctx.attr._requirements)
    folder = ctx.path("package")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    install += ["--only-binary=:all:", "--target", str(folder), "--requirement", str(requirements)]
    result = ctx.execute([str(python)] + install, timeout = 300)
    if result.return_code != 0:  # Debian's python3 has no pip, but can make one.
        ctx.execute([str(python), "-m", "venv", "venv"], timeout = 300)
        result = ctx.execute(["venv/bin/python"] + install, timeout = 300)
        ctx.delete("venv")
    lib = folder.get_child("nvidia").get_child("cuda_nvrtc").get_child("lib")
    if result.return_code == 0 and lib.exists:
        for file in lib.readdir():
            if file.basename.startswith("libnvrtc"):
                ctx.symlink(file, file.basename)
    else:
        # buildifier: disable=print
        print("tf_smddp is built without device code, since NVRTC cannot be installed from PyPI: " +
              "tensors on GPUs are neither packed nor compressed, and ranks that share a GPU reduce on the " +
              "host.\n" + result.stderr[-1000:])
        ctx.file("libnvrtc.so.12", "", executable = False)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.symlink(ctx.attr._build_file, "BUILD")

nvrtc = repository_rule(
    implementation = _impl,
    attrs = {
        "_build_file": attr.label(default = Label("//third_party/nvrtc:nvrtc.BUILD"), allow_single_file = True),
        "_requirements": attr.label(default = Label("//third_party/nvrtc:requirements.txt"), allow_single_file = True),
    },
)
