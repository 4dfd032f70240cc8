"""How long a run will take: probes on this machine, and what each case will simulate."""

from evaluation import runner
from evaluation.cases import Case

_LEARN_S, _LEARN_ITERATIONS = 0.2, 3  # as tools/simulate/experiment.cc lets each run alone first
_PROBE_S = 1.0                        # simulated, of each pair


def simulated_s(case, alone_s):
    """Device time that a case simulates, with the time of a request alone by workload."""
    high, low = alone_s[case.high.name], alone_s[case.low.name]
    apart = high / case.load if case.load else high

    def lasts(requests):
        return min(case.seconds, requests * apart)

    learn = sum(max(_LEARN_S, _LEARN_ITERATIONS * one) for one in (high, low))
    return lasts(case.iterations) + len(case.policies) * (learn + lasts(case.warmup) + lasts(case.iterations))


def text(chosen, folder, jobs, deadline_s):
    missing = [case for case in chosen if folder.find(case) is None]
    first = f"{len(chosen)} cases, {len(chosen) - len(missing)} of them are in {folder.path} already"
    if not missing:
        return first
    alone_s, start, more, problems = {}, {}, {}, []

    def probe(probes, use):
        def done(case, result, cpu_s, problem):
            if problem:
                problems.append(f"{case.name}: {problem}")
            else:
                use(case, result, cpu_s)
        runner.run(probes, folder.lull, jobs, deadline_s, done)

    def started(case, result, cpu_s):
        alone_s[case.high.name] = result["rows"][0]["jct_ms_mean"] / 1e3
        start[case.high.name] = (cpu_s, simulated_s(case, alone_s))

    def ran(case, _, cpu_s):
        """What a simulated second costs, beyond reading the files."""
        base_cpu_s, base_s = (sum(start[w.name][i] for w in (case.high, case.low)) / 2 for i in (0, 1))
        rate = max(0.0, cpu_s - base_cpu_s) / (simulated_s(case, alone_s) - base_s)
        more[case.high, case.low, case.policies] = (base_cpu_s, base_s, rate)

    used = {w.name: w for case in missing for w in (case.high, case.low)}
    probe([Case(w, w, iterations=2, warmup=0, policies=("share",), more=("--no-oracle",)) for w in used.values()], started)
    pairs = {(case.high, case.low, case.policies) for case in missing}
    if not problems:
        probe([Case(high, low, iterations=2 + round((_PROBE_S + alone_s[low.name]) / alone_s[high.name]), warmup=0,
                    policies=policies, more=("--no-oracle",))
               for high, low, policies in sorted(pairs, key=str)], ran)
    if problems:
        return "\n".join([first, *problems])
    total_s = 0.0
    for case in missing:
        base_cpu_s, base_s, rate = more[case.high, case.low, case.policies]
        total_s += base_cpu_s + rate * max(0.0, simulated_s(case, alone_s) - base_s)
    hours = sum(simulated_s(case, alone_s) for case in missing) / 3600
    return (f"{first}\nthe other {len(missing)} simulate at most {hours:.1f} h of device time: about {total_s / 60:.0f} min of processor time, "
            f"{total_s / 60 / jobs:.0f} min with {jobs} jobs (by short probes of every pair on this machine)")
