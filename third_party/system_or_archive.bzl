"""A C++ dependency from the system where it is installed, else from upstream's archive.

$TF_SMDDP_SYSTEM_DEPS: "1" (default) takes the system's package where all its paths exist,
"0" always takes the archive. Without a network, give the archives with `--distdir=FOLDER`
(files named as in the URL).
"""

def _impl(ctx):
    use_system = ctx.os.environ.get("TF_SMDDP_SYSTEM_DEPS", "1") != "0"
    for path in ctx.attr.system_paths:
        use_system = use_system and ctx.path(path).exists

    if use_system:
        for path, link in ctx.attr.system_paths.items():
            ctx.symlink(path, link)
        build_file = ctx.attr.system_build_file
    else:
        ctx.download_and_extract(
            url = ctx.attr.url,
            sha256 = ctx.attr.sha256,
            stripPrefix = ctx.attr.strip_prefix,
        )
        build_file = ctx.attr.archive_build_file

    # The archives may bring Bazel files of their own, written for other Bazels.
    for name in ["WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", "BUILD", "BUILD.bazel"]:
        ctx.delete(name)
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.symlink(build_file, "BUILD")

system_or_archive = repository_rule(
    implementation = _impl,
    attrs = {
        "archive_build_file": attr.label(mandatory = True, allow_single_file = True),
        "sha256": attr.string(mandatory = True),
        "strip_prefix": attr.string(mandatory = True),
        "system_build_file": attr.label(mandatory = True, allow_single_file = True),
        # Absolute path on the system: where it goes in the repository.
        "system_paths": attr.string_dict(mandatory = True),
        "url": attr.string(mandatory = True),
    },
    environ = ["TF_SMDDP_SYSTEM_DEPS"],
)
