"""`lull simulate` on a serial device against the independent model of one (tests/simulation): the shares of device
time, which depend on no clock. Every figure is simulated, and the same in every run."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = pathlib.Path(os.environ.get("LULL_BUILD_DIR", ROOT / "build/dev")) / "bin/lull"
sys.path.insert(0, str(ROOT / "tests/simulation"))
import serial_model  # noqa: E402

POLICIES = ("share", "priority", "fikit")  # those that the model knows
PAIRS = (("chatty_inference", "dense_inference", 10), ("chatty_inference", "chatty_inference", 10), ("chatty_inference", "training_step", 10),
         ("chatty_inference", "batch_long_kernels", 4), ("dense_inference", "chatty_inference", 10))
# The model learns nothing, is told true means, and knows of each launch when it is done; of the device's time, 0.038 is the most that this makes.
MOST = 0.05


class Agreement(unittest.TestCase):
    def test_device_shares_agree_with_an_independent_model_of_the_serial_device(self):
        for high, low, iterations in PAIRS:
            files = [ROOT / f"examples/workloads/{name}.json" for name in (high, low)]
            words = [LULL, "simulate", "--high", files[0], "--low", files[1], "--sharing", "serial", "--low-greedy", "--max-hold", "0", "--free-markers",
                     "--iterations", str(iterations), "--no-oracle", "--json", "-", *(word for policy in POLICIES for word in ("--policy", policy))]
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            shares = {(row["policy"].split()[0], row["role"]): row["device_share"] for row in json.loads(done.stdout)["rows"]}
            workloads = [serial_model.read_workload(file) for file in files]
            for policy in POLICIES:
                model = serial_model.compare(*workloads, policy, iterations)
                for role in ("high", "low"):
                    with self.subTest(high=high, low=low, policy=policy, role=role):
                        self.assertAlmostEqual(shares[policy, role], model[role]["device_share"], delta=MOST)


if __name__ == "__main__":
    unittest.main()
