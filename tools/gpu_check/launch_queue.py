"""Part: how far ahead of the device a program gets, what a progress marker behind each launch costs it, and
what two timing events around a kernel measure beside it."""

from gpu_check.figures import median_error
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Failed, decision

_QUESTION = 6
# What lull may add to a program that is far ahead of the device: one percent (docs, "beside an idle neighbour").
MOST_DRAG = 0.01
# native/launch_queue.cc
NOTHING, WRITE, SPARSE, EVENT, PAIR = ("nothing", "value write", "value write behind one launch in 16", "untimed event",
                                       "timed event before and behind")
_KERNEL_US = 20.0  # the kernels that the drag is judged by


def _row(rows, around, **more):
    return next((row for row in rows if row["around"] == around and all(row[k] == v for k, v in more.items())), None)


def judged(drags):
    """(answer, sentence) of what goes behind each launch of kernels of 20 us. A drag that is no larger than what is not
    known of it decides nothing."""
    most_ns = MOST_DRAG * _KERNEL_US * 1e3
    said = {}
    for around in (WRITE, SPARSE):
        row = _row(drags, around, kernel_us=_KERNEL_US)
        if row is None:
            continue
        added, error = row["added_ns"]["p50"], median_error(row["added_ns"])
        if error is None:
            continue
        said[around] = ("cheap" if added + error <= most_ns else "dear" if added - error > most_ns else "unknown",
                        f"{added:.0f} ns a launch (give or take {error:.0f})")
    if WRITE not in said:
        return UNDECIDED, "The device takes no value writes, or the host was never ahead of it."
    verdict, figure = said[WRITE]
    if verdict == "cheap":
        return "every launch", f"A marker behind every launch costs {figure}, at most {MOST_DRAG:.0%} of a kernel of {_KERNEL_US:.0f} us: mark every launch."
    if verdict == "unknown" or SPARSE not in said or said[SPARSE][0] == "unknown":
        return UNDECIDED, f"A marker behind every launch costs {figure}: too near to {MOST_DRAG:.0%} of a kernel of {_KERNEL_US:.0f} us to tell."
    sparse = said[SPARSE]
    if sparse[0] == "cheap":
        return "one launch in 16", f"Behind every launch it costs {figure}, behind one in 16 {sparse[1]}: mark only what decisions need."
    return "none", f"Even behind one launch in 16 a marker costs {sparse[1]}: learn progress from synchronisations."


def queue(context):
    wishes = ["--most", "1500", "--fills", "1", "--batch", "50", "--rounds", "3", "--hold-ms", "30", "--ahead-ms", "3"] if context.short else []
    answer = context.probe("queue", *wishes, timeout_s=120)
    depths, drags, stamps = answer["depths"], answer["drags"], answer["stamps"]
    lines = []
    for row in depths:
        if row["waited"] == row["fills"]:
            lines.append(f"{row['around']}: {row['launches_p50']:.0f} launches fit before the host waits")
        elif row["released_early"]:
            lines.append(f"{row['around']}: not known, the host was slower than the device was held")
        else:
            lines.append(f"{row['around']}: more than {row['most']} launches fit")
    tables = [{"title": "Launches that fit behind a long kernel before the host waits", "columns": ["around each", "p50", "least", "most", "fills", "waited"],
               "rows": [[row["around"], row.get("launches_p50"), row.get("launches_least"), row.get("launches_most"), row["fills"], row["waited"]]
                        for row in depths]},
              {"title": "A device that always has work: ns a launch, and what is added to bare launches of the same round",
               "columns": ["kernel us", "around each", "device p50", "added p50", "p10", "p90", "host p50", "rounds"],
               "rows": [[row["kernel_us"], row["around"], row["device_ns"]["p50"], *(row["added_ns"][q] for q in ("p50", "p10", "p90")),
                         row["host_ns"]["p50"], row["added_ns"]["count"]] for row in drags]}]
    profile = {"launch_queue": {row["around"]: round(row["launches_p50"]) for row in depths if row["waited"]},
               "drag_ns": {f"{row['around']}, kernels of {row['kernel_us']:g} us": round(row["added_ns"]["p50"]) for row in drags
                           if row["around"] != NOTHING}}
    if "skipped" in stamps:
        lines.append("events beside the kernels' own times: " + stamps["skipped"])
    else:
        names = (("events_over_kernel_ns", "two events around a kernel, less the kernel's own time"),
                 ("gap_ns", "between two kernels with two events each, by their own times"),
                 ("gap_between_events_ns", "the same gap, by the events"),
                 ("gap_without_events_ns", "between two kernels with nothing between"))
        tables.append({"title": "Kernels of 20 us on a device that always has work, ns", "columns": ["what", "mean", "p10", "p50", "p90", "count"],
                       "rows": [[what, *(stamps[key][q] for q in ("mean", "p10", "p50", "p90", "count"))] for key, what in names],
                       "note": "lulld takes 1,800 ns off each measured duration, and adds them to the gap behind it, for what the two events take themselves."})
        profile["event_times_ns"] = {key: round(stamps[key]["mean"]) for key, _ in names}
    marker, sentence = judged(drags)
    data = {"answer": answer, "lines": lines, "tables": tables, "profile": profile,
            "decision": decision(context, _QUESTION, "what does a progress marker behind every launch cost a program that is far ahead?", marker, sentence)}
    if not drags:
        raise Failed("the host was never ahead of the device: nothing is known of what markers cost", data)
    return data


def steps(context):
    del context
    return [Step("launches ahead of the device", queue, 25, question=_QUESTION)]
