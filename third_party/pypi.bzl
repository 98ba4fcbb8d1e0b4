"""For repository rules that take files from a package of PyPI."""

def install_from_pypi(ctx, requirements):
    """Installs what a file of requirements with hashes names, without what that depends on.

    Args:
      ctx: the context of the repository rule.
      requirements: the path of the file.

    Returns:
      A struct: `folder`, the path in which the packages are, and `error`, which is "" if they are there.
    """
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3") or "python3"
    folder = ctx.path("package")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    install += ["--only-binary=:all:", "--target", str(folder), "--requirement", str(requirements)]
    result = ctx.execute([str(python)] + install, timeout = 300)
    if result.return_code != 0:  # Debian's python3 has no pip, but can make one.
        ctx.execute([str(python), "-m", "venv", "venv"], timeout = 300)
        result = ctx.execute(["venv/bin/python"] + install, timeout = 300)
        ctx.delete("venv")
    error = "" if result.return_code == 0 else result.stderr[-1000:] or "pip failed without a message"
    return struct(folder = folder, error = error)
