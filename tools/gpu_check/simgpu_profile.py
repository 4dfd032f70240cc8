"""A simgpu profile (tools/simgpu/profiles) from what was measured; what was not keeps its assumption. Pure."""

SIZES = ("compute_major", "compute_minor", "sm_count", "threads_per_sm", "blocks_per_sm", "registers_per_sm",
         "shared_bytes_per_sm", "shared_bytes_per_block", "shared_bytes_per_block_optin", "clock_khz", "memory_clock_khz",
         "memory_bus_bits", "l2_bytes", "memory_bytes")


def fastest(rows, kind):
    """GB/s of the largest copy of a kind; None when it was not measured."""
    of_kind = [row for row in rows if row["kind"] == kind]
    return max(of_kind, key=lambda row: row["bytes"])["gb_per_s"] if of_kind else None


def measured(launch, copies, slices, wake):
    """{profile key: (value, how)}; arguments are the probes' answers, None where a probe gave none."""
    found = {}

    def put(key, value, how, whole=True):
        if value is not None and value > 0:
            found[key] = (round(value) if whole else round(value, 3), how)

    if slices and slices["slice_ns"]["count"] >= 10:
        put("slice_ns", slices["slice_ns"]["p50"], "two processes with one spinning kernel each, median run of one")
    if slices and slices["switch_ns"]["count"] >= 10:
        put("switch_ns", slices["switch_ns"]["p50"], "from the end of one process's run to the begin of the other's, median")
    if launch:
        put("launch_ns", launch["launch_host"]["p50"], "host time of cuLaunchKernel of an empty kernel, median")
        put("min_kernel_ns", launch["event_pair_null_kernel"]["p50"] - launch["event_pair_empty"]["p50"],
            "an empty kernel between two events, less two events with nothing between, medians")
    if copies:
        rows = copies["rows"]
        small = [row["us_p50"] * 1e3 for row in rows if row["kind"] == "h2d_pinned" and row["bytes"] == 4096]
        empty = launch["event_pair_empty"]["p50"] if launch else 0
        if small:
            put("copy_latency_ns", small[0] - empty, "a pinned copy of 4 KiB between two events, less two events, median")
        for key, kind in (("h2d_gb_per_s", "h2d_pinned"), ("d2h_gb_per_s", "d2h_pinned"), ("d2d_gb_per_s", "d2d"),
                          ("memset_gb_per_s", "memset")):
            put(key, fastest(rows, kind), f"the largest {kind} copy measured, median", whole=False)
        pageable = [fastest(rows, "h2d_pageable"), fastest(rows, "d2h_pageable")]
        pinned = [fastest(rows, "h2d_pinned"), fastest(rows, "d2h_pinned")]
        if all(pageable) and all(pinned):
            put("pageable_factor", min(1.0, sum(pageable) / sum(pinned)), "pageable over pinned, both ways, largest copies", whole=False)
    if wake:
        put("control_latency_ns", wake["futex_wake"]["p50"], "a futex wake of another process, median; the daemon's own turn is not in it")
    return found


def gathered(steps):
    """{figure: {case: ..}}: what steps that passed have under "profile" in their data, together. The model has no
    part for it yet: it stands in the profile for whoever gives it one."""
    found = {}
    for step in steps.values():
        if step["verdict"] == "pass":
            for figure, cases in step["data"].get("profile", {}).items():
                found.setdefault(figure, {}).update(cases)
    return found


def _line(points):
    """(fixed, slope) through the smallest and the largest of some (x, y); None for less than two."""
    (x0, y0), *_, (x1, y1) = sorted(points) if len(points) > 1 else [(0, 0), (0, 0)]
    return None if x1 == x0 else (y0 - x0 * (y1 - y0) / (x1 - x0), (y1 - y0) / (x1 - x0))


def memory_calls(mapping, registration, checkpoints):
    """{profile key: (value, how)} of host times; `checkpoints`: the answers of those that passed."""
    found = {}
    rows = mapping["rows"] if mapping else []
    for key, column in (("create", "create_us"), ("map", "map_us"), ("access", "set_access_us"), ("unmap", "unmap_us"), ("release", "release_us")):
        line = _line([(row["bytes"] / 2**30, row[column] * 1e3) for row in rows])
        if line:
            how = "the call for the least and the most memory measured, medians"
            found[f"vmm_{key}_ns"] = (round(max(0, line[0])), how)
            found[f"vmm_{key}_ns_per_gib"] = (round(max(0, line[1])), how)
    if rows:
        found["vmm_reserve_ns"] = (round(sorted(row["reserve_us"] for row in rows)[len(rows) // 2] * 1e3),
                                   "cuMemAddressReserve, the middle one of the sizes measured, median")
    for row in registration["rows"] if registration else []:
        pages = {"anonymous, 4 KiB pages": "", "anonymous, huge pages asked for": "huge_"}.get(row["kind"])
        if pages is None:
            continue
        for key in ("populate", "register") + (("unregister",) if not pages else ()):
            value = row[f"{key}_gb_per_s"]
            if value > 0:
                found[f"{key}_{pages}gb_per_s"] = (round(value, 3), f"one thread, {row['kind']}")
    points = {}
    for answer in checkpoints:
        for call in answer["calls"]:
            if call["result"] == 0:
                points.setdefault(call["call"], []).append((answer["bytes"], call["ms"] * 1e6))
    for call in ("lock", "unlock"):
        if call in points:
            found[f"checkpoint_{call}_ns"] = (round(sorted(ns for _, ns in points[call])[len(points[call]) // 2]), f"{call} of a process, median")
    for call, key in (("checkpoint", "out"), ("restore", "back")):
        line = _line(points.get(call, []))
        if line and line[1] > 0:
            how = f"{call} of the least and the most memory measured"
            found[f"checkpoint_{key}_ns"] = (round(max(0, line[0])), how + ": what does not grow")
            found[f"checkpoint_{key}_gb_per_s"] = (round(1 / line[1], 3), how + ": what grows")
    return found


def make(base, facts, found, where, date, further=None):
    """`base`: the profile whose assumptions stand in; `further`: of `gathered`. The new profile, as a dictionary."""
    made = dict(base)
    name = facts["name"].removeprefix("simulated ")
    made["name"] = f"simulated {name}, as measured {date}"[:95]
    made["comment"] = [f"Sizes as the driver reports them. Measured {date} on {where}: " + ", ".join(sorted(found)) + ".",
                       "What `assumptions` names as an assumption was not measured."]
    made.update({key: facts[key] for key in SIZES if facts.get(key)})
    made["assumptions"] = dict(base.get("assumptions", {}))
    made["assumptions"].pop("memory_bytes", None)
    for key, (value, how) in found.items():
        made[key] = value
        made["assumptions"][key] = f"measured {date}: {how}"
    if further:
        made["measured"] = further
    return made
