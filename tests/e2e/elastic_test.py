"""Elastic jobs: the example launchers follow `lull resize`, each in its way, with workers on the simulated GPU."""

import pathlib
import re
import sys

import lab

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/elastic"
WORKER = (lab.BUILD / "examples/vector_add", 2000)


def lines_of(child):
    """As they come: the launcher flushes each."""
    for line in child.stdout:
        print("   ", line.rstrip())
        yield line.rstrip()


def run_elastic(here, *launcher, **more):
    return here.start(lab.BIN / "lull", "run", "--socket", here.socket, "--sim", "--elastic", "1:4", "--job", "train", "--",
                      sys.executable, *launcher, "--", *WORKER, shim=False, **more)


def follow(here, child, sizes, what):
    """Resizes when the launcher has reached the size before. The sizes that it went through, and the workers that ended well."""
    seen, wanted, done = [], list(sizes), 0
    for line in lines_of(child):
        found = re.search(rf"{what} (\d+)$", line)
        if not found:
            done += "copies are right" in line
            continue  # a worker's line
        size = int(found[1])
        if not seen or seen[-1] != size:
            seen.append(size)
        if wanted and (len(wanted) == len(sizes) or size == sizes[len(sizes) - len(wanted) - 1]):
            code, out, err = here.lull("resize", "train", "--gpus", wanted.pop(0))
            assert code == 0, (out, err)
    code = child.wait(lab.DEADLINE_S)
    assert code == 0, child.stderr.read()
    return seen, done


def discover(here, *options):
    code, out, err = here.lull("discover", "train", *options)
    assert code == 0, err
    return out.strip()


def workers_restart_with_another_world_size():
    with lab.Lab(devices=4) as here:
        here.lulld()
        child = run_elastic(here, EXAMPLES / "restart_agent.py", "--rounds", 12,
                            LULL_DISCOVER=f"{lab.BIN / 'lull'} discover train --count")
        sizes, done = follow(here, child, (2, 3, 1), "world")
        assert sizes[-3:] == [2, 3, 1] and done >= 12 + sizes[0] - 1, (sizes, done)
        assert discover(here) == "localhost:1"


def workers_come_and_go_by_the_script():
    with lab.Lab(devices=4) as here:
        here.lulld()
        script = here.folder / "hosts.sh"
        assert discover(here, "--elastic", "1:4", "--host", "node1", "--script", script) == ""
        code, out, err = here.run(script, shim=False)
        assert (code, out) == (0, "node1:4\n"), (out, err)
        child = run_elastic(here, EXAMPLES / "poll_hosts.py", "--script", script, "--shards", 24)
        sizes, done = follow(here, child, (2, 3, 1), "slots")
        assert sizes == [4, 2, 3, 1] and done >= 24, (sizes, done)


def without_lulld_the_script_says_nothing_and_fails():
    with lab.Lab() as here:
        code, out, err = here.lull("discover", "train", "--elastic", "1:4")
        assert code == 1 and out == "" and err.startswith("lull: discover: "), (code, out, err)


if __name__ == "__main__":
    for test in (workers_restart_with_another_world_size, workers_come_and_go_by_the_script,
                 without_lulld_the_script_says_nothing_and_fails):
        print(test.__name__, flush=True)
        test()
