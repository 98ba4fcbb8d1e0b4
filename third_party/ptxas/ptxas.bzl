"""Brings in ptxas, NVIDIA's assembler for PTX, from PyPI: 40 MB, once for each folder of Bazel's output.

Only a test needs it. Where PyPI cannot be reached, that test is not built, with pip's error.
"""

load("//third_party:pypi.bzl", "install_from_pypi")

def _impl(ctx):
    installed = install_from_pypi(ctx, ctx.path(ctx.attr._requirements))
    if installed.error:
        fail("ptxas cannot be installed from PyPI: " + installed.error)
    program = installed.folder.get_child("nvidia").get_child("cuda_nvcc").get_child("bin").get_child("ptxas")
    ctx.symlink(program, "ptxas")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD", 'exports_files(["ptxas"])\n')

ptxas = repository_rule(
    implementation = _impl,
    attrs = {
        "_requirements": attr.label(default = Label("//third_party/ptxas:requirements.txt"), allow_single_file = True),
    },
)
