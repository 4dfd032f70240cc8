#!/usr/bin/env python3
"""An elastic launcher of Horovod's shape: polls a host discovery script ("HOST:SLOTS" lines) and adds or ends single
workers; those that stay are not disturbed.

    lull discover train --elastic 1:4 --script hosts.sh
    lull run --elastic 1:4 --job train -- poll_hosts.py --script ./hosts.sh --shards 20 -- WORKER ARGS...

The work is a number of shards; a worker does one, then another. The shard of a worker that is ended is done again.
"""

import argparse
import os
import subprocess
import sys
import time

LOOK_EVERY_S = 0.2


def slots(script, now):
    """The sum over all hosts; where the script fails, what there was."""
    said = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=False)
    if said.returncode != 0:
        return now
    return sum(int(line.rsplit(":", 1)[1]) for line in said.stdout.splitlines() if line.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", required=True)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args()
    left, workers, room, done = list(range(wanted.shards)), {}, 0, 0  # workers: by slot, each (shard, process)
    while done < wanted.shards:
        now = slots(wanted.script, room)
        if now != room:
            room = now
            print(f"shards {done} slots {room}", flush=True)
        for slot in [slot for slot in workers if slot >= room]:
            shard, worker = workers.pop(slot)
            worker.terminate()
            worker.wait()
            left.insert(0, shard)
        for slot, (shard, worker) in list(workers.items()):
            if worker.poll() is None:
                continue
            if worker.returncode != 0:
                for _, other in workers.values():
                    other.terminate()
                sys.exit(f"poll_hosts: shard {shard} failed: exit code {worker.returncode}")
            del workers[slot]
            done += 1
        for slot in range(room):
            if left and slot not in workers:
                shard = left.pop(0)
                environment = {**os.environ, "SHARD": str(shard), "CUDA_VISIBLE_DEVICES": str(slot)}
                workers[slot] = shard, subprocess.Popen(wanted.command, env=environment)
        time.sleep(LOOK_EVERY_S)
    print(f"shards {done} slots {room}", flush=True)


if __name__ == "__main__":
    main()
