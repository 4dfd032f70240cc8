"""Part: every kernel that the driver executed was seen, with its name and shape.

Held against CUPTI's own records of the same run (the kernel witness; PyTorch's profiler where that cannot
record), and against what the program knows of itself; and the facts about the driver that interception rests on.
"""

import json
import re

from gpu_check import counting, elf, kineto
from gpu_check.steps import Step
from gpu_check.verdict import Failed, Skipped

_LAUNCHES = 7
_SPIN_NS = 2000
_KINDS = ("kernel", "ex", "cooperative", "graph", "capture", "streams")
_MODELS = "tools/gpu_check/models.py"


def doctor(context):
    """What `lull doctor` says of this machine, with a daemon there to be found."""
    with context.daemon() as daemon:
        words = [context.program(context.bin, "lull"), "doctor", "--json"] + (["--sim"] if context.sim else [])
        done = context.run(words, 30, context.env(LULL_SOCKET=daemon.socket))
    try:
        found = json.loads(done.out)["findings"]
    except (ValueError, KeyError):
        raise Failed("lull doctor: " + done.why()) from None
    rows = [[f["check"], f["verdict"], f["seen"], f["mend"]] for f in found]
    data = {"findings": found, "tables": [{"title": "lull doctor", "columns": ["check", "verdict", "seen", "to mend"], "rows": rows}]}
    if wrong := [f"{f['check']}: {f['seen']}" for f in found if f["verdict"] == "fail"]:
        raise Failed("; ".join(wrong), data)
    return data


def version_rows(text):
    """(base, version, flags, exported name) of shim/proc_versions.def; flag 2: per-thread default stream."""
    rows = re.findall(r"^LULL_VERSION\((\w+), (\d+), (true|false), (\w+)\)", text, re.M)
    return [(base, int(version), 2 if per_thread == "true" else 0, name) for base, version, per_thread, name in rows]


def addresses(context):
    context.needs_gpu("the addresses of the real driver are asked")
    rows = version_rows((context.root / "shim/proc_versions.def").read_text())
    listed = context.scratch / "versions"
    listed.write_text("".join(f"{b} {v} {f} {n}\n" for b, v, f, n in rows))
    answer = context.probe("addresses", listed)
    data = {"asked": answer["asked"], "equal": answer["equal"], "different": answer["different"],
            "not_by_name": answer["not_by_name"], "not_by_version": answer["not_by_version"],
            "lines": [f"{answer['equal']} of {answer['asked']} look-ups by cuGetProcAddress gave the address that dlsym gives"]}
    if answer["not_by_name"]:
        data["lines"].append("not exported by this driver: " + ", ".join(answer["not_by_name"][:20]))
    if answer["not_by_version"]:
        data["lines"].append("not found by version: " + ", ".join(answer["not_by_version"][:20]))
    if answer["different"]:
        raise Failed(f"{len(answer['different'])} addresses differ, first {answer['different'][0]}: the table of versions "
                     "in the shim stands in for them", data)
    return data


def driver_file(context):
    context.needs_gpu("looks at the real driver's file")
    path = _driver_path(context)
    real = path.resolve()
    return {"path": str(real), "lines": [f"libcuda.so.1 is {real.name}"],
            "by_version": bool(re.fullmatch(r"libcuda\.so\.\d+(\.\d+)+", real.name))}


def driver_exports(context):
    context.needs_gpu("looks at the real driver's file")
    theirs = {name for name in elf.Elf(_driver_path(context)).exports if re.match("cu[A-Z]", name)}
    ours = set((context.root / "tools/simgpu/driver/driver_exports.txt").read_text().split())
    new, missing = sorted(theirs - ours), sorted(ours - theirs)
    hooked = set(re.findall(r"^\s*LULL_HOOK\w*\(\s*(\w+)", (context.root / "shim/driver_api.def").read_text(), re.M))
    lines = [f"{len(theirs)} exported calls; {len(new)} that lull's list does not know, {len(missing)} of the list that it lacks"]
    if new:
        lines.append("unknown to the list: " + ", ".join(new[:40]))
    launching = [name for name in new if re.match(r"cu(Launch|Graph.*Launch|Memcpy|Memset)", name)]
    data = {"exports": len(theirs), "new": new, "missing": missing, "hooked_and_missing": sorted(hooked & set(missing)),
            "lines": lines}
    if launching:
        raise Failed("calls that may put work on the device and that lull does not know: " + ", ".join(launching), data)
    return data


def _driver_path(context):
    import ctypes
    import pathlib
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Skipped(f"no driver: {error}") from None
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        if re.search(r"/libcuda\.so\.\d", line):
            return pathlib.Path(line.split()[-1])
    raise Skipped("the driver's file is not among those of this process")


def _count_all(context, runs, env=None, timeout_s=45):
    """`runs`: (what, words). Every one is run, whatever the one before gave."""
    rows, wrong, skipped, problems, witnessed = [], [], [], set(), True
    with context.daemon() as daemon:
        for what, words in runs:
            try:
                one = counting.count(context, daemon, words, env, timeout_s)
            except Skipped as why:
                skipped.append(f"{what}: {why}")
                continue
            except Failed as why:
                wrong.append(f"{what}: {why}")
                continue
            rows.append(one.row(what))
            wrong += [f"{what}: {line}" for line in one.differences]
            witnessed = witnessed and one.seen is not None
            if one.seen is None:
                problems.add("without CUPTI: held against the programs' own counts alone")
            else:
                problems.update(f"CUPTI {one.seen.version}: {p}" for p in one.seen.problems)
    if not rows and not wrong:
        raise Skipped("; ".join(skipped) or "nothing to run")
    data = {"tables": [{"title": "Launches seen", "columns": counting.COLUMNS, "rows": rows}],
            "lines": sorted(problems) + ["skipped: " + s for s in skipped], "differences": wrong,
            "witnessed": witnessed}
    if wrong:
        raise Failed(f"{len(wrong)} differences, first: {wrong[0]}", data)
    return data


def driver_programs(context):
    linked, per_thread = context.program(context.check, "driver_linked"), context.program(context.check, "driver_linked_per_thread")
    lookup, kinds = context.program(context.check, "driver_lookup"), context.program(context.check, "launch_kinds")
    runs = [("linked", [linked, _LAUNCHES, _SPIN_NS]), ("linked, per-thread stream", [per_thread, _LAUNCHES, _SPIN_NS])]
    ways = ("soname", "proc2", "proc2_per_thread") if context.short else ("soname", "default", "proc1", "proc2", "proc2_per_thread")
    launches = ("ex", "graph") if context.short else ("ex", "cooperative", "host_function", "graph", "capture", "threads", "streams")
    runs += [(f"looked up: {way}", [lookup, way, _LAUNCHES, _SPIN_NS]) for way in ways]
    runs += [(kind, [kinds, kind, _LAUNCHES, _SPIN_NS]) for kind in launches]
    return _count_all(context, runs)


def forks(context):
    program = context.program(context.check, "forks")
    return _count_all(context, [(kind, [program, kind, _LAUNCHES]) for kind in ("exit", "exec")])


def _runtime(name):
    def run(context):
        context.needs_gpu("NVIDIA's runtime runs on a real driver only")
        program = context.program(context.check, name)
        env = context.env()
        if "shared" in name:
            context.with_libraries(env, "libcudart.so.13")
        kinds = ("kernel",) if name.endswith("per_thread") else _KINDS
        return _count_all(context, [(kind, [program, kind, _LAUNCHES]) for kind in kinds], env)
    return run


def two_runtimes(context):
    context.needs_gpu("NVIDIA's runtime runs on a real driver only")
    program = context.program(context.check, "nvidia_two_runtimes")
    env = context.with_libraries(context.env(), "libcudart.so.13")
    return _count_all(context, [("static in a library beside shared", [program, _LAUNCHES])], env)


def _library(kind, *sonames):
    def run(context):
        context.needs_gpu("NVIDIA's libraries run on a real driver only")
        env = context.with_libraries(context.env(), *sonames)
        return _count_all(context, [(kind, [context.program(context.check, "library_work"), kind, 5])], env, 90)
    return run


def _torch(*words, timeout_s=150):
    def run(context):
        torch = context.torch()
        program = [torch["python"], context.root / _MODELS, *words]
        what = " ".join(words)
        data = _count_all(context, [(what, program)], context.env(), timeout_s)
        if data["witnessed"]:
            return data
        return _profiled(context, what, program, data, timeout_s)
    return run


def _profiled(context, what, program, before, timeout_s):
    """The same with PyTorch's profiler, where the witness could not record."""
    file = context.scratch / "profiled.json"
    with context.daemon() as daemon:
        one = counting.count(context, daemon, [*program, "--profile", file], context.env(), timeout_s, witnessed=False)
    if not file.exists():
        raise Skipped(f"neither CUPTI nor PyTorch's profiler recorded {what}")
    theirs = kineto.kernels(file.read_text())
    if not theirs:
        raise Skipped(f"PyTorch's profiler recorded no kernel of {what}, and CUPTI none either")
    lines = one.differences + kineto.differences(one.client, one.kernels, theirs, kineto.demangle([k["name"] for k in one.kernels]))
    data = {"lines": before["lines"] + [f"held against PyTorch's profiler: {sum(theirs.values())} kernels"],
            "tables": [{"title": "Launches seen", "columns": counting.COLUMNS, "rows": [one.row(what)]}], "differences": lines}
    if lines:
        raise Failed(f"{len(lines)} differences, first: {lines[0]}", data)
    return data


def steps(context):
    del context
    return [
        Step("doctor", doctor, 3),
        Step("addresses", addresses, 5),
        Step("driver file", driver_file, 1),
        Step("driver exports", driver_exports, 2),
        Step("driver API programs", driver_programs, 30),
        Step("forks", forks, 6),
        Step("NVIDIA runtime, static", _runtime("nvidia_runtime_static"), 20),
        Step("NVIDIA runtime, shared", _runtime("nvidia_runtime_shared"), 20),
        Step("NVIDIA runtime, per-thread stream", _runtime("nvidia_runtime_static_per_thread"), 5),
        Step("two NVIDIA runtimes", two_runtimes, 5),
        Step("cuBLAS", _library("cublas", "libcublas.so.13"), 15),
        Step("cuDNN", _library("cudnn", "libcudnn.so.9"), 15),
        Step("PyTorch training", _torch("resnet18", "--mode", "train", "--batch", "16", "--iterations", "4"), 30),
        Step("PyTorch inference", _torch("bert", "--batch", "1", "--iterations", "6"), 25),
        Step("PyTorch CUDA graph", _torch("resnet18", "--feature", "graph", "--batch", "8", "--iterations", "5"), 25),
        Step("PyTorch streams", _torch("resnet18", "--feature", "streams", "--batch", "8", "--iterations", "4"), 25),
        Step("PyTorch data loader workers", _torch("resnet18", "--mode", "train", "--feature", "workers", "--batch", "16",
                                                   "--iterations", "4"), 30),
        Step("PyTorch compile", _torch("mlp", "--feature", "compile", "--batch", "64", "--iterations", "4", timeout_s=200), 90),
    ]
