"""Brings in NVRTC, NVIDIA's compiler for CUDA C++, from PyPI: 23 MB, once for each folder of Bazel's output.

Where PyPI cannot be reached, @nvrtc//:library is an empty file, and tf_smddp is built without device code.
"""

load("//third_party:pypi.bzl", "install_from_pypi")

def _impl(ctx):
    installed = install_from_pypi(ctx, ctx.path(ctx.attr._requirements))
    lib = installed.folder.get_child("nvidia").get_child("cuda_nvrtc").get_child("lib")
    if installed.error == "" and lib.exists:
        for file in lib.readdir():
            if file.basename.startswith("libnvrtc"):
                ctx.symlink(file, file.basename)
    else:
        # buildifier: disable=print
        print("tf_smddp is built without device code, since NVRTC cannot be installed from PyPI: " +
              "tensors on GPUs are neither packed nor compressed, and ranks that share a GPU reduce on the " +
              "host.\n" + installed.error)
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
