"""Part: a process's device memory out to the host and back to the same addresses: the pipeline alone, the driver's
checkpoint of what is left behind it, and both for a client of MPS; the driver's checkpoint told of every GPU."""

from gpu_check import moved, mps
from gpu_check.steps import Step
from gpu_check.verdict import Failed, Skipped, decision

_QUESTION = 7
_PAIRS_QUESTION = 9
_MIB, _GIB = 1 << 20, 1 << 30
MOST_TIMES = 1.3  # of a pinned copy of the same bytes: what a suspension or a resume may take
LEAST_FREED = 0.95  # of what went out: what lies between is the driver's own
PREPARED, ONE, FOUR = "pinned beforehand", "1 thread prepares meanwhile", "4 threads prepare meanwhile"
_WAYS = ((PREPARED, ("--prepared",)), (ONE, ("--threads", 1)), (FOUR, ("--threads", 4)))


def _sizes(context):
    return [32 * _MIB] if context.short else [64 * _MIB] if context.sim else [64 * _MIB, 256 * _MIB, _GIB, 8 * _GIB]


def _suspend(context, size, *words, env=None):
    chunk = 8 * _MIB if context.sim else 64 * _MIB
    rounds = 1 if context.short else 2 if size > _GIB else 3
    return context.probe("suspend", "--bytes", size, "--chunk-bytes", chunk, "--rounds", rounds, *words, timeout_s=120, env=env)


def over_copy(row):
    """(out, back): times a pinned copy of the same bytes."""
    return row["out_ms"] / row["copy_out_ms"], row["back_ms"] / row["copy_back_ms"]


def _gb_per_s(row, key):
    return row["bytes"] / row[key] / 1e6 if row[key] else None


def judged(rows):
    """(answer, sentence): how a suspension stays within its bar, by the largest size; rows have "how"."""
    largest = max(row["bytes"] for row in rows)
    times = {row["how"]: max(over_copy(row)) for row in rows if row["bytes"] == largest}
    said = ", ".join(f"{how} {factor:.2f}x" for how, factor in times.items())
    cold = [how for how in (ONE, FOUR) if times.get(how, MOST_TIMES + 1) <= MOST_TIMES]
    if cold:
        return cold[0], f"Of {largest / 1e9:.1f} GB against a pinned copy: {said}. Nothing needs to be prepared ahead."
    if times.get(PREPARED, MOST_TIMES + 1) <= MOST_TIMES:
        return PREPARED, f"Of {largest / 1e9:.1f} GB against a pinned copy: {said}. The host's memory is populated and pinned ahead."
    return "no way", f"Of {largest / 1e9:.1f} GB against a pinned copy: {said}. The bar of {MOST_TIMES}x is not met."


def _rows(rows):
    return [[row["bytes"] / 1e6, row["how"], row["out_ms"], _gb_per_s(row, "out_ms"), over_copy(row)[0], row["back_ms"], _gb_per_s(row, "back_ms"),
             over_copy(row)[1], row["freed_bytes"] / 1e6, row["intact"]] for row in rows]


_COLUMNS = ["MB", "host memory", "out ms", "GB/s", "times a copy", "back ms", "GB/s", "times a copy", "device memory freed MB", "intact"]


def pipeline(context):
    rows = []
    for size in _sizes(context):
        for how, words in _WAYS:
            rows.append({"how": how, **_suspend(context, size, *words)})
    answer, sentence = judged(rows)
    largest = max(row["bytes"] for row in rows)
    data = {"answer": rows, "tables": [{"title": "Device memory out to the host, and back to its addresses, in chunks", "columns": _COLUMNS, "rows": _rows(rows)}],
            "profile": {"suspend_gb_per_s": {row["how"]: round(_gb_per_s(row, "out_ms"), 2) for row in rows if row["bytes"] == largest and row["out_ms"]},
                        "resume_gb_per_s": {row["how"]: round(_gb_per_s(row, "back_ms"), 2) for row in rows if row["bytes"] == largest and row["back_ms"]}},
            "decision": decision(context, _QUESTION, f"which suspension stays within {MOST_TIMES}x of a pinned copy?", answer, sentence)}
    if not all(row["intact"] for row in rows):
        raise Failed("memory that was brought back is not what it was", data)
    if kept := [row for row in rows if row["freed_bytes"] < LEAST_FREED * row["bytes"]]:
        raise Failed(f"{kept[0]['bytes'] / 1e6:.0f} MB, {kept[0]['how']}: only {kept[0]['freed_bytes'] / 1e6:.0f} MB of the device's memory were free "
                     "when it was out", data)
    return data


def checkpoint_says(answer):
    """(answer, sentence) of the driver's checkpoint of a process whose memory is out."""
    found = answer["checkpoint"]
    if "refused" in found:
        lives = found.get("running_again", True)
        return ("refused" if lives else "lost"), f"{found['refused']}; the process {'lives on' if lives else 'is lost'}."
    ms = {call["call"]: call["ms"] for call in found["calls"]}
    if not answer.get("intact"):
        return "broken", "The memory that was brought back behind it is not what it was."
    out, back = ms["lock"] + ms["checkpoint"], ms["restore"] + ms["unlock"]
    return "works", f"It adds {out:.0f} ms to a suspension and {back:.0f} ms to a resume, and the memory comes back intact behind it."


def _checkpointed(context, asked, sizes, env=None):
    rows, lines, said = [], [], None
    for size in sizes:
        answer = _suspend(context, size, "--prepared", "--checkpoint", env=env)
        said = checkpoint_says(answer)
        lines.append(f"{answer['bytes'] / 1e6:.0f} MB: {said[0]}: {said[1]}")
        for call in answer["checkpoint"].get("calls", []):
            grew = (call["resident_bytes"] - answer["checkpoint"]["resident_bytes_before"]) / 1e6
            rows.append([answer["bytes"] / 1e6, call["call"], call["ms"], grew, call["result"]])
        if said[0] == "broken":
            raise Failed(said[1], {"answer": answer, "lines": lines})
    data = {"lines": lines, "profile": {"checkpoint_of_the_rest_ms": {f"{row[0]:.0f} MB, {row[1]}": round(row[2]) for row in rows if row[4] == 0}},
            "decision": decision(context, _QUESTION, asked, *said),
            "tables": [{"title": "The driver's checkpoint while the memory is out", "columns": ["MB", "call", "ms", "resident memory grew by MB", "CUresult"],
                        "rows": rows}]}
    if said[0] == "lost":
        raise Failed(lines[-1], data)
    return data


def behind(context):
    sizes = _sizes(context)[:1] if context.sim else [_GIB, 8 * _GIB]
    return _checkpointed(context, "does the driver checkpoint a process whose memory is out already?", sizes)


def mps_client(context):
    with mps.service(context) as service:
        plain = {"how": PREPARED, **_suspend(context, _GIB, "--prepared", env=service.env())}
        data = _checkpointed(context, "does the driver checkpoint a client of MPS?", [_GIB], service.env())
    data["tables"].insert(0, {"title": "A client of MPS: memory out and back", "columns": _COLUMNS, "rows": _rows([plain])})
    data["answer"] = plain
    if not plain["intact"]:
        raise Failed("memory of a client of MPS that was brought back is not what it was", data)
    return data


NOT_SET, ALL, REORDERED = "not set", "every GPU, in order", "every GPU, in another order"


def pairs_say(outcomes):
    """(answer, sentence) of restores that name every GPU; `outcomes`: how CUDA_VISIBLE_DEVICES was set -> what the driver
    refused, or None."""
    if outcomes[NOT_SET]:
        return "never", f"{outcomes[NOT_SET]}, also where CUDA_VISIBLE_DEVICES is not set: no job is migrated on this driver."
    broken = {how: why for how, why in outcomes.items() if why}
    if not broken:
        return "works", "lull may put a job's own GPU first by CUDA_VISIBLE_DEVICES" + (
            "." if REORDERED in outcomes else "; one GPU here, so that another order was not tried.")
    return "breaks", "; ".join(f"{how}: {why}" for how, why in broken.items()) + \
        ": lull must not set CUDA_VISIBLE_DEVICES for a job that is to migrate."


def visible_devices(context):
    """Does setting CUDA_VISIBLE_DEVICES at all break a restore by pairs (NVIDIA/cuda-python#1983)?"""
    env = context.env(**({"SIMGPU_DEVICE": context.scratch / "two-devices", "SIMGPU_DEVICES": 2} if context.sim else {}))
    env.pop("CUDA_VISIBLE_DEVICES", None)

    def restored(**more):
        return context.probe("checkpoint", "--bytes", 64 * _MIB, "--pairs", env={**env, **more})

    answers = {NOT_SET: restored()}
    if any(call["result"] == 801 for call in answers[NOT_SET]["calls"]):
        raise Skipped(f"the driver does not support it here: {answers[NOT_SET]['refused']}")
    seen = answers[NOT_SET]["visible"]
    answers[ALL] = restored(CUDA_VISIBLE_DEVICES=",".join(seen))
    if len(seen) > 1:
        answers[REORDERED] = restored(CUDA_VISIBLE_DEVICES=",".join(reversed(seen)))
    outcomes = {}
    for how, answer in answers.items():
        failed = next((call for call in answer["calls"] if call["result"] != 0), None)
        outcomes[how] = f"{failed['call']} answers {failed['result']}" if failed else \
            None if answer.get("memory_intact") and answer["running_again"] else "memory is not what it was"
    said = pairs_say(outcomes)
    return {"answer": answers, "lines": [f"CUDA_VISIBLE_DEVICES {how}: {why or 'restored'}" for how, why in outcomes.items()],
            "decision": decision(context, _PAIRS_QUESTION, "does setting CUDA_VISIBLE_DEVICES break a restore by pairs of GPUs?", *said)}


def steps(context):
    del context
    return [Step("visible devices and pairs", visible_devices, 15, question=_PAIRS_QUESTION),
            Step("pipeline", pipeline, 90, question=_QUESTION), Step("checkpoint behind it", behind, 40, question=_QUESTION),
            Step("client of MPS", mps_client, 40, question=_QUESTION), *moved.steps()]
