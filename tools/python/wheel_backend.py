#!/usr/bin/env python3
"""Makes the wheel: the command, the daemon, the player, the preloaded library, the simulated GPU, their
manual pages, and the Python package.

    tools/python/wheel_backend.py --build build/release --output FOLDER

and, as pip's build backend (PEP 517), `pip wheel ./tools/python`, whose build is $LULL_BUILD_DIR or
build/release, made by the preset `demo` where it is not there. Python's own library only.

Programs go where a wheel's scripts go, all else beside them (../lib/lull, ../share), so that an
installation looks as every other of lull's. No library is renamed: one is preloaded by its path, one
stands for the driver by its name. The tag says the oldest glibc that all files run on, as read from the
files themselves.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from gpu_check import elf  # noqa: E402

# What every Linux has that a manylinux wheel may be installed on (PEP 600).
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6",
          "ld-linux-x86-64.so.2"}
PROCESSORS = {62: "x86_64", 183: "aarch64"}  # e_machine
# Of an installation: what a wheel has no use for.
LEFT_OUT = re.compile(r"etc/|lib/systemd/|lib/sysusers\.d/|share/(doc|lintian)/|.*\.a$")
SUMMARY = "Lets several unmodified CUDA programs share one GPU without hurting the one that matters"


class CannotBuild(Exception):
    """One line: what failed, why, what to do."""


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    named = (config_settings or {}).get("build") or os.environ.get("LULL_BUILD_DIR")
    build = pathlib.Path(named) if named else ROOT / "build/release"
    if not named:
        run("cmake", "--preset", "demo", cwd=ROOT)
        run("cmake", "--build", "--preset", "demo", cwd=ROOT)
        run("cmake", "--build", str(build), "--target", "simgpu_cudart", "simgpu_cudart_static", cwd=ROOT)
    return make_wheel(build.resolve(), pathlib.Path(wheel_directory)).name


def make_wheel(build, output):
    """The wheel's path."""
    version = cache_value(build, "CMAKE_PROJECT_VERSION")
    with tempfile.TemporaryDirectory(prefix="lull-wheel-") as folder:
        prefix = pathlib.Path(folder)
        for component in ("lull", "sim"):
            run("cmake", "--install", str(build), "--component", component, "--prefix", folder, "--strip")
        files = {}
        for path in sorted(prefix.rglob("*")):
            name = path.relative_to(prefix).as_posix()
            # A wheel has no links: those here are for linking programs, and are left out.
            if path.is_dir() or path.is_symlink() or LEFT_OUT.match(name):
                continue
            scheme = f"scripts/{path.name}" if name.startswith("bin/") else f"data/{name}"
            files[f"lull-{version}.data/{scheme}"] = path.read_bytes()
        tag = tag_of(path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink())
    for path in sorted((HERE / "lull").iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            files[f"lull/{path.name}"] = path.read_bytes()
    info = f"lull-{version}.dist-info"
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: lull\nRoot-Is-Purelib: false\nTag: {tag}\n").encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    wheel = output / f"lull-{version}-{tag}.whl"
    write_zip(wheel, files, f"{info}/RECORD")
    return wheel


def tag_of(paths):
    """py3-none-manylinux_2_N_PROCESSOR: by the newest symbol that any of the files asks of glibc."""
    newest, processor = (2, 5), None
    for path in paths:
        try:
            file = elf.Elf(path)
        except elf.NotElf:
            continue
        foreign = set(file.needed) - SYSTEM
        if foreign:
            raise CannotBuild(f"{path.name} needs {', '.join(sorted(foreign))}: not on every Linux: link it statically")
        processor = PROCESSORS[file.machine]
        versions = set().union(*file.versions.values()) if file.versions else set()
        newest = max(newest, elf.newest(versions, "GLIBC") or newest)
    if processor is None:
        raise CannotBuild("no program in the build: build the preset demo first")
    return f"py3-none-manylinux_{newest[0]}_{newest[1]}_{processor}"


def metadata(version):
    description = (HERE / "DESCRIPTION.md").read_text()
    return (f"Metadata-Version: 2.1\nName: lull\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
            "Requires-Python: >=3.9\nProvides-Extra: pandas\nRequires-Dist: pandas; extra == 'pandas'\n"
            "Provides-Extra: pyarrow\nRequires-Dist: pyarrow; extra == 'pyarrow'\n"
            f"Description-Content-Type: text/markdown\n\n{description}")


def write_zip(path, files, record):
    """The same bytes for the same files: names in order, one time."""
    lines = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(archive, name, data, 0o755 if ".data/scripts/" in name else 0o644)
        add(archive, record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)


def add(archive, name, data, mode):
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def cache_value(build, key):
    cache = build / "CMakeCache.txt"
    found = re.search(rf"^{key}:\w+=(.*)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    if not found:
        raise CannotBuild(f"{build} is no build of lull: name one, as build/release")
    return found[1]


def run(*words, cwd=None):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="a build of lull")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), help="the folder to write to")
    words = parser.parse_args()
    try:
        print(make_wheel(words.build.resolve(), words.output))
    except CannotBuild as error:
        print(f"lull: cannot make the wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
