#!/usr/bin/env python3
"""An elastic launcher of torchrun's shape: all workers end and start again when their number changes.

    lull run --elastic 1:4 --job train -- restart_agent.py --rounds 20 -- WORKER ARGS...

Each worker gets RANK, LOCAL_RANK, WORLD_SIZE and a GPU of its own. A round is done when all of its workers have exited with 0; one that
is interrupted by a change of the number is repeated. LULL_DISCOVER is the command that prints the number.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time

LOOK_EVERY_S = 0.2


def number(now):
    """What lulld says; where it does not answer, as many as there are."""
    command = os.environ.get("LULL_DISCOVER") or f"lull discover {os.environ.get('LULL_JOB', '')} --count"
    said = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    return int(said.stdout) if said.returncode == 0 else now


def end(workers):
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait()


def one_round(command, world):
    """True: done. Otherwise the number has changed."""
    workers = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                                              "WORLD_SIZE": str(world), "CUDA_VISIBLE_DEVICES": str(rank)}) for rank in range(world)]
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [code for code in codes if code]
        if failed:
            end(workers)
            sys.exit(f"restart_agent: a worker failed: exit code {failed[0]}")
        if None not in codes:
            return True
        if number(world) != world:
            end(workers)
            return False
        time.sleep(LOOK_EVERY_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()
    done, world = 0, 1
    while done < wanted.rounds:
        world = number(world)
        done += one_round(wanted.command, world)
        print(f"rounds {done} world {world}", flush=True)


if __name__ == "__main__":
    main()
