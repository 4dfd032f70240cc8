"""From two processes' records of when their kernel ran (native/sharing.cc, `watch`) to the device's time
slice and switch cost. Pure. Times are of the device's own timer, the same for both, in ns."""

from gpu_check.figures import spread


def runs(watch):
    """[(start, end)] in which the kernel ran."""
    found, at = [], watch["start_ns"]
    for gap_start, gap_end in watch["gaps"]:
        found.append((at, gap_start))
        at = gap_end
    return found + [(at, watch["end_ns"])]


def analyse(a, b):
    """slice_ns and switch_ns as spreads over the time in which both kernels were there; `overlap` is the share
    of that time in which both ran at once (near 1 under MPS, near 0 when they take turns)."""
    window = (max(a["start_ns"], b["start_ns"]), min(a["end_ns"], b["end_ns"]))
    length = window[1] - window[0]
    if length <= 0:
        return {"together_ns": 0, "slice_ns": spread([]), "switch_ns": spread([]), "overlap": None}
    marked = sorted([(s, e, "a") for s, e in runs(a)] + [(s, e, "b") for s, e in runs(b)])
    inside = [(max(s, window[0]), min(e, window[1]), who, s > window[0] and e < window[1])
              for s, e, who in marked if e > window[0] and s < window[1]]
    slices, switches, both = [], [], 0
    for this, following in zip(inside, inside[1:]):
        if this[2] != following[2]:
            if following[0] >= this[1]:
                switches.append(following[0] - this[1])
            else:
                both += min(this[1], following[1]) - following[0]
    for start, end, _, whole in inside:
        if whole:
            slices.append(end - start)
    return {"together_ns": length, "slice_ns": spread(slices), "switch_ns": spread(switches), "overlap": both / length}


# What was last on the device when a round began: its own process, or the neighbour, idle for so long (us).
OWN, BUSY = "own process was last", "neighbour's kernel on the device"
IDLE = {us: f"neighbour idle since {us} us or more" for us in (0, 50, 200, 1000, 5000)}


def after_idle(one, other):
    """How long `one`'s rounds (native/sharing.cc, `rounds`) took by what the device had done before: {case: spread of ns}.
    With the neighbour's kernel still on the device: what was left after its end."""
    cases = {}
    theirs, mine, at = other["rounds"], one["rounds"], 0
    for before, (start, end) in zip(mine, mine[1:]):
        while at < len(theirs) and theirs[at][1] <= start:
            at += 1
        if at < len(theirs) and theirs[at][0] < end:  # the neighbour began before this round was over
            if theirs[at][0] < start and theirs[at][1] < end:
                cases.setdefault(BUSY, []).append(end - theirs[at][1])
            continue
        if not at or theirs[at - 1][1] < before[1]:
            cases.setdefault(OWN, []).append(end - start)
            continue
        idle_us = (start - theirs[at - 1][1]) / 1e3
        least = max(us for us in IDLE if us <= idle_us)
        cases.setdefault(IDLE[least], []).append(end - start)
    return {case: spread(cases[case]) for case in (OWN, BUSY, *IDLE.values()) if case in cases}
