"""Part: what simgpu assumes of a device, measured: time slice and switch, launches, events, value writes,
reaching another process, copies, virtual memory calls, pinning, the driver's checkpoint; written as a
simgpu profile; then one pair of programs on the device and on that profile, side by side."""

import json
import os
import pathlib
import shutil
import tempfile
import time

from gpu_check import block_wait, interference, mps, sharing, simgpu_profile, slices
from gpu_check.context import quiet
from gpu_check.results import write_whole
from gpu_check.steps import Step
from gpu_check.verdict import Failed, Skipped

_GIB = 1 << 30
_WATCH_MS = 400
_GO_ON = "restore\nonce more, if it failed"


def _data_of(context, step):
    """What an earlier step found; None when it did not pass."""
    found = context.results.step(f"device/{step}")
    return found["data"].get("answer") if found and found["verdict"] == "pass" else None


def _rows(answer, columns):
    return [[row.get(key) for key, _ in columns] for row in answer["rows"]]


def facts(context):
    answer = context.probe("facts")
    return {"answer": answer, "tables": [{"title": "The device, as its driver reports it", "columns": ["", ""],
                                          "rows": sorted([k, str(v)] for k, v in answer.items())}]}


_LAUNCH_ROWS = (("launch_host", "launch of an empty kernel, the call"), ("launch_until_done", "the same, until the device is done"),
                ("event_record_host", "event record, the call"), ("launch_with_event_host", "launch and timed event, the calls"),
                ("launch_with_event_until_done", "the same, until the device is done"),
                ("launch_with_untimed_event_until_done", "launch and untimed event, until done"),
                ("event_query_host", "event query"), ("event_pair_empty", "two events, nothing between"),
                ("event_pair_null_kernel", "an empty kernel between two events"), ("launch_and_wait", "launch and wait"))
_WRITE_ROWS = (("host", "value write, the call"), ("with_launch_host", "launch and value write, the calls"),
               ("with_launch_until_done", "the same, until the device is done"),
               ("launch_until_visible", "launch until the host sees the value"))


def launch(context):
    wishes = ["--calls", "100", "--batches", "5"] if context.short else []
    answer = context.probe("launch", *wishes, timeout_s=90)
    write = answer["value_write"]
    rows = [[what, answer[key]["p10"], answer[key]["p50"], answer[key]["p90"]] for key, what in _LAUNCH_ROWS if key in answer]
    rows += [[what, write[key]["p10"], write[key]["p50"], write[key]["p90"]] for key, what in _WRITE_ROWS if key in write]
    lines = []
    if "skipped" in write:
        lines.append("value writes: " + write["skipped"])
    else:
        done = {"timed event": answer["launch_with_event_until_done"]["p50"], "untimed event":
                answer["launch_with_untimed_event_until_done"]["p50"], "value write": write["with_launch_until_done"]["p50"]}
        alone = answer["launch_until_done"]["p50"]
        lines.append("what a progress marker adds to a launch, until the device is done: "
                     + ", ".join(f"{k} {v - alone:.0f} ns" for k, v in done.items()) + f"; cheapest: {min(done, key=done.get)}")
    data = {"answer": answer, "lines": lines, "tables": [{"title": "ns", "columns": ["what", "p10", "p50", "p90"], "rows": rows}]}
    if write.get("backwards") or write.get("not_there_after_synchronise"):
        raise Failed("values written by the device came out of order, or after a synchronise: they cannot mark progress", data)
    return data


_COPY_COLUMNS = (("kind", "kind"), ("bytes", "bytes"), ("us_p50", "us p50"), ("us_p90", "us p90"), ("gb_per_s", "GB/s"))


def copies(context):
    most = 16 << 20 if context.short else 64 << 20 if context.sim else _GIB
    answer = context.probe("copies", "--most-bytes", most, timeout_s=120)
    return {"answer": answer, "tables": [{"title": "Copies; both ways at once: each one's speed", "rows": _rows(answer, _COPY_COLUMNS),
                                          "columns": [name for _, name in _COPY_COLUMNS]}]}


_MAPPING_COLUMNS = (("bytes", "bytes"), ("reserve_us", "reserve us"), ("create_us", "create"), ("map_us", "map"),
                    ("set_access_us", "set access"), ("unmap_us", "unmap"), ("release_us", "release"), ("address_free_us", "address free"),
                    ("back_at_the_same_address_us", "new memory at the same address"), ("usable_at_the_same_address", "usable"))


def mapping(context):
    # The simulated device's memory is the host's: what is filled there is really taken.
    answer = context.probe("mapping", *(["--most-bytes", (2 if context.short else 32) << 20] if context.sim else []), timeout_s=90)
    data = {"answer": answer, "lines": [f"granularity {answer['granularity_bytes']} bytes, advised {answer['granularity_advised_bytes']}"],
            "tables": [{"title": "Virtual memory calls, us, medians", "rows": _rows(answer, _MAPPING_COLUMNS),
                        "columns": [name for _, name in _MAPPING_COLUMNS]}]}
    if not all(row["usable_at_the_same_address"] for row in answer["rows"]):
        raise Failed("memory mapped again at the same address did not hold what was written", data)
    return data


_PIN_COLUMNS = (("kind", "host memory"), ("bytes", "bytes"), ("populate_gb_per_s", "populate GB/s"), ("register_gb_per_s", "register GB/s"),
                ("unregister_gb_per_s", "unregister GB/s"), ("d2h_gb_per_s", "device to host GB/s"), ("h2d_gb_per_s", "host to device GB/s"))


def registration(context):
    answer = context.probe("registration", "--bytes", 16 << 20 if context.short else 64 << 20 if context.sim else 2 * _GIB, timeout_s=120)
    return {"answer": answer, "tables": [{"title": "Pinning of populated host memory, one thread", "rows": _rows(answer, _PIN_COLUMNS),
                                          "columns": [name for _, name in _PIN_COLUMNS]}]}


def _both(context, env, *probes):
    """Two of the probe's subcommands that wait for a start file, run at once: what each printed."""
    start = context.scratch / f"both-{time.monotonic_ns()}"
    program = context.program(context.bin, "lull-device-probe")
    children = [context.children.start([program, *words, "--start-file", start], env, words[0]) for words in probes]
    for child, words in zip(children, probes):
        if not child.wait_for(lambda c=child: c.line_with('{"ready"'), context.timeout(60)):
            child.end()
            if line := child.line_with('{"skipped"'):
                raise Skipped(f"{words[0]}: " + json.loads(line)["skipped"])
            raise Failed(f"{words[0]} does not get ready: " + child.last_words())
    start.touch()
    found = []
    for child, words in zip(children, probes):
        if child.wait(context.timeout(60)) != 0:
            child.end()
            raise Failed(f"{words[0]}: " + child.last_words())
        found.append(json.loads(child.out().splitlines()[-1]))
    return found


def _watch_two(context, env):
    words = ("watch", "--ms", _WATCH_MS)
    return _both(context, env, words, words)


_SPREAD_COLUMNS = ("count", "least", "p50", "p99", "most")


def _spread_cells(spread):
    return [spread["count"], *(spread.get(key) for key in ("min", "p50", "p99", "max"))]


def after_idle(context):
    """What the first kernel of a process costs behind another process's, by how long that one has been over."""
    context.needs_gpu("its switch is a parameter")
    one, other = _both(context, context.env(), ("rounds", "--ms", 3000, "--pause-us", 700),
                       ("rounds", "--ms", 3000, "--spin-us", 200, "--pause-us", 3000))
    answer, tables = {}, []
    for who, a, b in (("null kernel", one, other), ("kernel of 200 us", other, one)):
        answer[who] = found = slices.after_idle(a, b)
        tables.append({"title": f"{who}, launch and wait, without MPS, by what was on the device before, ns",
                       "columns": ["before", *_SPREAD_COLUMNS], "rows": [[case, *_spread_cells(s)] for case, s in found.items()]})
    return {"answer": answer, "tables": tables}


def _slice_data(answer, title):
    rows = [[what, *_spread_cells(answer[key])]
            for key, what in (("slice_ns", "run of one process, ns"), ("switch_ns", "from one's end to the other's begin, ns"))]
    overlap = answer["overlap"]
    return {"answer": answer, "lines": ["both at once: " + ("-" if overlap is None else f"{overlap:.1%} of the time")],
            "tables": [{"title": title, "columns": ["what", *_SPREAD_COLUMNS], "rows": rows}]}


def time_slice(context):
    context.needs_gpu("the simulated GPU runs no code, its slice is a parameter")
    answer = slices.analyse(*_watch_two(context, context.env()))
    data = _slice_data(answer, f"Two processes with a spinning kernel each, {_WATCH_MS} ms, without MPS")
    if answer["slice_ns"]["count"] < 10 and (answer["overlap"] or 0) < 0.5:
        raise Failed("the two kernels neither took turns nor ran at once: nothing to tell a slice from", data)
    return data


def with_mps(context):
    with mps.service(context) as served:
        answer = slices.analyse(*_watch_two(context, served.env()))
    return _slice_data(answer, f"Two processes with a spinning kernel each, {_WATCH_MS} ms, with MPS")


def wake(context):
    answer = context.probe("wake", timeout_s=60)
    rows = [[key.replace("_", " "), answer[key]["p50"], answer[key]["p90"], answer[key]["p99"]]
            for key in ("store_seen_by_a_spinner", "futex_wake", "socket_message")]
    return {"answer": answer, "tables": [{"title": "Reaching another process, ns one way", "columns": ["how", "p50", "p90", "p99"], "rows": rows}]}


def _checkpoint_rows(answer):
    size = answer["bytes"] / 1e9
    return [[call["call"], call["ms"], f"{size / call['ms'] * 1e3:.1f}" if call["call"] in ("checkpoint", "restore") and call["ms"] else "-",
             (call["resident_bytes"] - answer["resident_bytes_before"]) / 1e6, call["result"]] for call in answer["calls"]]


def checkpoint_data(answer, what):
    lines = [f"{key.replace('_', ' ')}: {answer[key]}" for key in ("running_again", "memory_intact", "other_thread_goes_on", "launches_while_suspended",
             "mapped_again_at_the_same_address", "gpu_memory_used_while_suspended_mib", "refused") if key in answer]
    return {"answer": answer, "lines": lines, "tables": [{
        "title": what, "columns": ["call", "ms", "GB/s", "resident memory grew by MB", "CUresult"], "rows": _checkpoint_rows(answer)}]}


def _judge(answer, what):
    data = checkpoint_data(answer, what)
    refused = answer.get("refused", "")
    if any(call["result"] == 801 for call in answer["calls"]):
        raise Skipped(f"the driver does not support it here: {refused}")
    if refused or not answer["running_again"] or not answer.get("memory_intact") or not answer.get("other_thread_goes_on"):
        raise Failed(refused or "the process is not as it was", data)
    return data


def _checkpoint(gib, *flags, user=None):
    what = f"{gib} GiB" + "".join(" " + flag for flag in flags) + (f", as user {user}" if user else "")

    def run(context):
        context.needs_gpu("the driver's checkpoint is the real driver's")
        words = ["checkpoint", "--bytes", gib * _GIB, "--pause", *flags]
        program, folder = context.program(context.bin, "lull-device-probe"), None
        if user:
            if os.geteuid() != 0:
                raise Skipped("not root: the other checkpoints ran as an ordinary user already")
            folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-check-probe-"))
            folder.chmod(0o755)
            program = pathlib.Path(shutil.copy(program, folder))
            program.chmod(0o755)
        try:
            child = context.children.start([program, *words], context.env(), "checkpoint", user=user, cwd="/")
            answer = _pausing(context, child, lambda: child.say(_GO_ON))
        except Failed as why:
            if user and "cuInit" in str(why):
                raise Skipped(f"user {user} cannot use the device here: {why}") from None
            raise
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
        return _judge(answer, what)
    return run


def _pausing(context, child, then, timeout_s=150):
    """Looks at the device's memory while the process is suspended, then goes on with it."""
    used = None
    if child.wait_for(lambda: child.line_with('{"pid"') or child.line_with('{"bytes"'), context.timeout(timeout_s)) and child.line_with('{"pid"'):
        used = quiet(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
        then()
    if child.wait(context.timeout(timeout_s)) is None:
        child.end()
        raise Failed(f"hangs: {child.out().strip()[-300:] or child.last_words()}")
    lines = [line for line in child.out().splitlines() if line.startswith("{")]
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise Failed(f"ended with {child.code()}: {child.last_words()}") from None
    if "skipped" in answer:
        raise Skipped(answer["skipped"])
    if "failed" in answer or "calls" not in answer:
        raise Failed(answer.get("failed", "no answer"), {"answer": answer})
    if used is not None:
        answer["gpu_memory_used_while_suspended_mib"] = used.splitlines()[0]
    return answer


def restore_without_memory(context):
    """Another program takes the memory meanwhile: is a failed restore the end of the process?"""
    context.needs_gpu("the driver's checkpoint is the real driver's")
    program = context.program(context.bin, "lull-device-probe")
    child = context.children.start([program, "checkpoint", "--bytes", 4 * _GIB, "--pause"], context.env(), "checkpoint")
    hog = []

    def go_on():
        hog.append(context.children.start([program, "hog", "--leave-bytes", 256 << 20], context.env(), "hog"))
        hog[0].wait_for(lambda: hog[0].line_with('{"held_bytes"'), context.timeout(60))
        child.say("restore")
        if child.wait_for(lambda: '"restore failed"' in child.out(), context.timeout(40)):
            hog[0].say("leave")
            hog[0].wait(20)
            hog[0].end()
            time.sleep(0.5)
            child.say("again")

    answer = _pausing(context, child, go_on)
    data = checkpoint_data(answer, "4 GiB, the device's memory taken while suspended; the second restore with memory free again")
    data["lines"].append("a restore without memory " + ("can be repeated" if answer["running_again"] else "is the end of the process"))
    if any(call["result"] == 801 for call in answer["calls"]):
        raise Skipped("the driver does not support it here")
    return data


def managed(context):
    """Does the checkpoint refuse a process with managed memory, and does the process live on?"""
    context.needs_gpu("the driver's checkpoint is the real driver's")
    program = context.program(context.bin, "lull-device-probe")
    child = context.children.start([program, "checkpoint", "--bytes", _GIB, "--managed", "--pause"], context.env(), "managed")
    answer = _pausing(context, child, lambda: child.say(_GO_ON))
    data = checkpoint_data(answer, "1 GiB beside one managed allocation of 2 MiB")
    if any(call["result"] == 801 and call["call"] == "lock" for call in answer["calls"]):
        raise Skipped("the driver does not support it here")
    data["lines"].append("refused, and the process " + ("lives on" if answer["running_again"] else "is lost") if "refused" in answer
                         else "not refused")
    return data


def write_profile(context):
    found_facts = _data_of(context, "facts") or context.probe("facts")
    base_name = "h200" if "H200" in found_facts["name"] else "h100"
    base = json.loads((context.root / f"tools/simgpu/profiles/{base_name}.json").read_text())
    machine = context.results.data["machine"]
    found = simgpu_profile.measured(_data_of(context, "launches"), _data_of(context, "copies"), _data_of(context, "time slice"),
                                    _data_of(context, "wake"))
    checkpoints = [_data_of(context, f"checkpoint, {gib} GiB") for gib in (1, 8, 32)]
    found |= simgpu_profile.memory_calls(_data_of(context, "mapping"), _data_of(context, "registration"),
                                         [answer for answer in checkpoints if answer])
    made = simgpu_profile.make(base, found_facts, found, f"{found_facts['name']}, driver {machine.get('driver', '-')}", machine.get("date", "-"),
                               simgpu_profile.gathered(context.results.data["steps"]))
    path = context.out / "profile.json"
    write_whole(path, json.dumps(made, indent=2) + "\n")
    check = context.env(LD_LIBRARY_PATH=context.lib / "sim", SIMGPU_DEVICE=context.scratch / "profile-device", SIMGPU_PROFILE=path)
    answer = context.probe("facts", env=check)
    if answer["name"] != made["name"]:
        raise Failed(f"simgpu does not take the profile: it says it is {answer['name']}")
    rows = [[key, base[key], value, how] for key, (value, how) in sorted(found.items())]
    kept = sorted(key for key, text in made["assumptions"].items() if text.startswith("assumption"))
    return {"measured": sorted(found) + sorted(made.get("measured", {})), "lines": ["profile.json; still assumed: " + (", ".join(kept) or "nothing")],
            "tables": [{"title": f"Assumed in {base_name}.json, and measured", "columns": ["key", "assumed", "measured", "how"], "rows": rows}]}


def both(context):
    """One pair on the device, then on the profile made of it."""
    write_profile(context)
    path = context.out / "profile.json"
    names = ("chatty_inference", "dense_inference")
    files = [context.root / f"examples/workloads/{name}.json" for name in names]
    lull = context.program(context.bin, "lull")
    words = [lull, "compare", "--high", files[0], "--low", files[1], "--policy", "share"]
    words += [] if context.short else ["--policy", "priority"]
    words += ["--iterations", "5"] if context.short else []
    tables, found = [], {}
    for where in ("hardware", "simulation"):
        if where == "hardware" and context.sim:
            continue
        out = context.scratch / f"{where}.json"
        env = context.env()
        more = ["--json", out]
        if where == "simulation":
            env.pop("SIMGPU_DEVICE", None)
            env.pop("SIMGPU_SLOW_MOTION", None)
            env["SIMGPU_PROFILE"] = str(path)
            more += ["--sim=time_slice", "--slow-motion", "8" if context.sim and not context.short else "4"]
        done = context.run(words + more, 120, env)
        if not done.good:
            raise Failed(f"{where}: lull compare: {done.why()}", found)
        found[where] = json.loads(out.read_text())
        label = "On the hardware" if where == "hardware" else "Simulated, on the profile made of it"
        tables += sharing.compare_data(found[where], f"{label}: {' beside '.join(names)}")["tables"]
    return {**found, "tables": tables}


def steps(context):
    del context
    return [
        Step("facts", facts, 5), Step("launches", launch, 15), Step("copies", copies, 20), Step("time slice", time_slice, 10),
        Step("time slice, MPS", with_mps, 15),
        Step("switch after idle", after_idle, 15), Step("mapping", mapping, 15), Step("wake", wake, 8, host_only=True), Step("registration", registration, 25),
        Step("profile", write_profile, 5, closing=True), Step("hardware and simulation", both, 75),
        Step("checkpoint, 1 GiB", _checkpoint(1), 15), Step("checkpoint, 8 GiB", _checkpoint(8), 25),
        Step("checkpoint, mapped", _checkpoint(1, "--mapped"), 15), Step("checkpoint, ordinary user", _checkpoint(1, user="nobody"), 15),
        Step("checkpoint, managed", managed, 15), Step("checkpoint, 32 GiB", _checkpoint(32), 60),
        Step("checkpoint, restore without memory", restore_without_memory, 40), *block_wait.steps(), *interference.steps(),
    ]
