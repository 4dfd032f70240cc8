"""Part: are lull's times true? Kernel durations and the gaps behind them, as lull measured them,
against CUPTI's records of the same run, kernel by kernel."""

import json
import time

from gpu_check import counting, trace_check, witness
from gpu_check.figures import mean, median, quantile, relative_errors
from gpu_check.steps import Step
from gpu_check.verdict import UNDECIDED, Failed, Skipped, decision

_QUESTION = 6
MOST_ERROR = 0.1
PAUSE_NS = 10_000  # a gap that something may be put into
PAUSES, TOGETHER = "gap p50, of 10 us and more", "duration and gap together"
_LEAST = 20  # launches of a kernel before its median says something


def errors(pairs):
    """Of (ours, theirs), ns: relative error p50 and p99, the mean signed one, and the median of what ours are longer by, ns."""
    found = relative_errors(pairs)
    signed = [(ours - theirs) / theirs for ours, theirs in pairs if theirs]
    return {"kernels": len(found), "p50": quantile(found, 0.5), "p99": quantile(found, 0.99), "signed": mean(signed),
            "longer_ns": median([ours - theirs for ours, theirs in pairs])}


def durations_against(kernels, seen):
    """Pairs (predicted ns, CUPTI's median ns) for the kernels that ran often enough."""
    theirs = witness.durations_by_kernel(seen)
    pairs = []
    for kernel in kernels:
        key = (kernel["name"][:witness.NAME_SHOWN], tuple(kernel["grid"]), tuple(kernel["block"]), kernel["shared_bytes"])
        if kernel["kind"] == "kernel" and kernel["predicted_ns"] and len(theirs.get(key, ())) >= _LEAST:
            pairs.append((kernel["predicted_ns"], median(theirs[key])))
    return pairs


def recorded_lengths(workload):
    """{(name, grid, block, shared): ns} of a workload file's kernels that always take the same time."""
    def padded(shape):
        return tuple(list(shape) + [1] * (3 - len(shape)))

    varied = set()

    def visit(ops):
        for op in ops:
            if "repeat" in op:
                visit(op["ops"])
            elif "launch" in op and "duration_ns" in op:
                varied.add(op["launch"])

    visit(workload["ops"])
    return {(k["name"], padded(k["grid"]), padded(k["block"]), k.get("shared_bytes", 0)): k["duration_ns"]
            for i, k in enumerate(workload["kernels"]) if i not in varied}


def _table(title, rows):
    return {"title": title, "columns": ["what", "kernels", "error p50", "error p99", "mean signed error", "longer, ns p50"],
            "rows": [[what, e["kernels"], e["p50"], e["p99"], e["signed"], e["longer_ns"]] for what, e in rows]}


def played(context):
    """lull's prediction of each kernel against the length that the player asked for, and CUPTI's."""
    path = context.root / "examples/workloads/dense_inference.json"
    play = context.program(context.bin, "lull-play")
    wanted = recorded_lengths(json.loads(path.read_text()))
    iterations = 10 if context.sim else 30
    report, start = context.scratch / "timing.report", context.scratch / "timing.start"
    env = context.env()
    prefix = context.scratch / "timing-witness"
    env["LULL_WITNESS_OUT"] = str(prefix)
    witnessed = counting.cupti_env(context, env)
    with context.daemon() as daemon:
        child = context.children.start(
            context.lull_run(daemon.socket) + [play, path, "--until-signal", "--report", report, "--start-file", start], env, "play")
        start.touch()
        enough = child.wait_for(lambda: report.exists() and report.read_text().count('"iteration"') >= iterations,
                                context.timeout(90))
        client = daemon.client(child.pid) if enough else None
        kernels = daemon.kernels(client["id"]) if client else []
        child.signal(15)
        child.wait(20)
        child.end()
        if not kernels:
            raise Failed("no kernels to look at: " + child.last_words())
    # Kernel names go through PTX as identifiers: shapes and order tell them apart.
    by_shape = {}
    for (_, grid, block, shared), ns in wanted.items():
        by_shape.setdefault((grid, block, shared), []).append(ns)
    pairs = []
    for kernel in kernels:
        lengths = by_shape.get((tuple(kernel["grid"]), tuple(kernel["block"]), kernel["shared_bytes"]), [])
        if kernel["kind"] == "kernel" and kernel["predicted_ns"] and len(lengths) == 1:
            pairs.append((kernel["predicted_ns"], lengths[0]))
    if not pairs:
        raise Failed("lull predicts none of the played kernels", {"kernels": kernels})
    rows = [("prediction against the length asked for", errors(pairs))]
    seen = witness.read(prefix, child.pid) if witnessed else None
    lines = []
    if seen is not None and seen.usable():
        rows.append(("prediction against CUPTI's median", errors(durations_against(kernels, seen))))
    else:
        lines.append("without CUPTI's records")
    return {"lines": lines, "errors": dict(rows), "pairs": pairs, "tables": [_table("Durations of played kernels", rows)]}


def _predictions(*words):
    def run(context):
        torch = context.torch()
        with context.daemon() as daemon:
            one = counting.count(context, daemon, [torch["python"], context.root / "tools/gpu_check/models.py", *words], timeout_s=150)
        if one.seen is None:
            raise Skipped("no CUPTI records to hold lull's against")
        pairs = durations_against(one.kernels, one.seen)
        if not pairs:
            raise Failed("lull predicts no kernel that ran often enough")
        found = errors(pairs)
        return {"errors": found, "pairs": pairs,
                "tables": [_table(f"{' '.join(words)}: lull's prediction against CUPTI's median", [("durations", found)])]}
    return run


def trace_against(shown, seen):
    """From `lull trace show --json` and CUPTI: pairs (ours, theirs) in ns of p50, p99 of durations, p50 of gaps, of
    those that something fits into, and of both together, of the kernels that ran often enough; and the lines where the
    counts differ. Both together are right where lull only draws the line between kernel and gap elsewhere."""
    lengths, gaps = witness.durations_by_kernel(seen), witness.gaps_by_kernel(seen)
    rows, counts = {}, {}
    for kernel in shown.get("kernels", []):
        if kernel["kind"] == "kernel":
            key = (kernel["mangled"][:witness.NAME_SHOWN], tuple(kernel["grid"]), tuple(kernel["block"]), kernel["shared_bytes"])
            counts[key] = counts.get(key, 0) + kernel["count"]
            rows.setdefault(key, []).append(kernel)
    lines = [f"{key[0][:100]} {key[1:]}: in the trace {counts.get(key, 0)}, the driver ran {len(lengths.get(key, ()))}"
             for key in sorted(set(counts) | set(lengths), key=str) if counts.get(key, 0) != len(lengths.get(key, ()))]
    found = {"duration p50": [], "duration p99": [], "gap p50": [], PAUSES: [], TOGETHER: []}
    for key, same in rows.items():
        if len(same) != 1 or len(lengths.get(key, ())) < _LEAST:
            continue  # told apart by call site or image: one of CUPTI's kernels is several of ours
        for what, field, values, q in (("duration p50", "p50_us", lengths, 0.5), ("duration p99", "p99_us", lengths, 0.99),
                                       ("gap p50", "gap_p50_us", gaps, 0.5)):
            if same[0].get(field) is not None and values.get(key):
                found[what].append((same[0][field] * 1e3, quantile(values[key], q)))
        if same[0].get("gap_p50_us") is not None and gaps.get(key):
            gap = same[0]["gap_p50_us"] * 1e3, median(gaps[key])
            if gap[1] >= PAUSE_NS:
                found[PAUSES].append(gap)
            found[TOGETHER].append((same[0]["p50_us"] * 1e3 + gap[0], median(lengths[key]) + gap[1]))
    return found, lines


def judged(found):
    """(answer, sentence) of `errors` by what was compared."""
    asked = {what: found[what]["p50"] for what in ("duration p50", "gap p50")}
    if any(error is None for error in asked.values()):
        return UNDECIDED, "Too few kernels ran often enough."
    said = ", ".join(f"{what.removesuffix(' p50')}s {error:.1%}" for what, error in asked.items())
    said += "".join(f", {what} {found[what]['p50']:.1%}" for what in (PAUSES, TOGETHER) if found.get(what, {}).get("p50") is not None)
    if max(asked.values()) <= MOST_ERROR:
        return "yes", f"Off in the median: {said}."
    if found[TOGETHER]["p50"] is not None and found[TOGETHER]["p50"] <= MOST_ERROR:
        return "no", f"Off in the median: {said}. Together they are right: the line between them lies elsewhere, and lulld's event cost is what moves it."
    return "no", f"Off in the median: {said}."


def _model(*words):
    return " ".join(words), lambda context: [context.torch()["python"], context.root / "tools/gpu_check/models.py", *words]


def _workload(name):
    return name, lambda context: [context.program(context.bin, "lull-play"), context.root / f"examples/workloads/{name}.json",
                                  "--iterations", "60"]


def _traced(what, words_of):
    def run(context):
        context.needs_gpu("CUPTI is held against")
        trace_check.needed(context, "record", "show")
        words = words_of(context)
        prefix = context.scratch / f"traced-{time.monotonic_ns()}"  # the scratch folder is that of all steps
        env = context.env(LULL_WITNESS_OUT=prefix)
        if not counting.cupti_env(context, env):
            raise Skipped("no libcupti on this machine")
        file, child = trace_check.record(context, words, env, 150)
        texts = [p for p in sorted(context.scratch.glob(prefix.name + ".*"))]
        witnesses = [witness.parse(p.read_text(errors="replace")) for p in texts]
        seen = max(witnesses, key=lambda w: len(w.kernels), default=None)
        if seen is None or not seen.usable() or not seen.kernels:
            raise Skipped("CUPTI recorded nothing: " + "; ".join(p for w in witnesses for p in w.problems)[:300])
        shown = trace_check.show(context, file)
        pairs, lines = trace_against(shown, seen)
        rows = [(what, errors(values)) for what, values in pairs.items()]
        data = {"errors": dict(rows), "lines": [f"{shown['launches']} launches in the trace, {len(seen.kernels)} kernels of CUPTI's"],
                "tables": [_table(f"{what}: trace against CUPTI, by kernel", rows)],
                "decision": decision(context, _QUESTION, f"{what}: are durations and gaps right within {MOST_ERROR:.0%} of CUPTI's?", *judged(dict(rows)))}
        if not rows[0][1]["kernels"]:
            raise Failed("no kernel of the trace is among CUPTI's: " + child.last_words(), data)
        if lines and not shown.get("lost"):
            raise Failed(f"{len(lines)} kernels differ in number, first: {lines[0]}", data)
        return data
    return run


def steps(context):
    del context
    training = ("resnet50", "--mode", "train", "--batch", "32", "--iterations", "30")
    return [Step("played kernels", played, 20),
            Step("predictions, resnet50 training", _predictions(*training), 40),
            Step("predictions, bert inference", _predictions("bert", "--batch", "1", "--iterations", "60"), 35),
            Step("trace, played", _traced(*_workload("dense_inference")), 15, question=_QUESTION),
            Step("trace, resnet50 training", _traced(*_model(*training)), 45, question=_QUESTION),
            Step("trace, bert inference", _traced(*_model("bert", "--batch", "1", "--iterations", "60")), 40, question=_QUESTION)]
