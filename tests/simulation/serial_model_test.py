"""The independent serial model against timelines worked out by hand."""
import unittest

import serial_model


def workload(ops, kernels, pause_after_ns=0, call_ns=1, streams=1, name="high"):
    ops = list(serial_model.flatten(ops))
    return {"name": name, "flat": ops + [{"sync": "device"}], "pause_after_ns": pause_after_ns,
            "call_ns": call_ns, "streams": streams,
            "kernels": [{"name": f"k{i}", "duration_ns": ns} for i, ns in enumerate(kernels)]}


def compare(high, low, policy, latency_ns=0, **more):
    return serial_model.compare(high, low, policy, latency_ns=latency_ns, poll_ns=0, **more)


class SerialModel(unittest.TestCase):
    def test_an_iteration_alone_takes_what_host_and_device_take(self):
        # call 100, kernel until 1100, sync; pause 50 before the second call, kernel 2000.
        program = serial_model.Program(workload(
            [{"launch": 0, "pause_ns": 100}, {"sync": "stream"}, {"launch": 1, "pause_ns": 50}], [1000, 2000], 500))
        serial_model.run([program], serial_model.OpenGate(), 2)
        self.assertEqual(program.finished, [(0, 3150), (3650, 6800)])

    def test_streams_wait_for_events(self):
        program = serial_model.Program(workload(
            [{"launch": 0}, {"record": 0}, {"wait": 0, "stream": 1},
             {"copy": "d2h", "bytes": 0, "stream": 1}], [1000], streams=2))
        serial_model.run([program], serial_model.OpenGate(), 1)
        self.assertEqual(program.finished, [(0, 2500)])

    def test_two_full_streams_take_turns_under_share(self):
        high = workload([{"repeat": 100, "ops": [{"launch": 0}]}], [10_000])
        low = workload([{"repeat": 500, "ops": [{"launch": 0}]}], [30_000], name="low")
        row = compare(high, low, "share", iterations=1)
        self.assertAlmostEqual(row["high"]["device_share"], 0.25, delta=0.01)
        self.assertAlmostEqual(row["low"]["device_share"], 0.75, delta=0.01)

    def test_priority_fills_every_pause_and_costs_at_most_one_kernel(self):
        high = workload([{"launch": 0, "pause_ns": 100_000}], [100_000])
        low = workload([{"repeat": 100, "ops": [{"launch": 0}]}], [30_000], name="low")
        row = compare(high, low, "priority")
        # Each pause of 100 us takes four kernels of 30: the high one comes 20 us later.
        self.assertAlmostEqual(row["low"]["device_share"], 120 / 220, delta=0.03)
        self.assertLessEqual(row["high"]["slowdown"], 1.15)

    def test_priority_lets_a_kernel_longer_than_the_limit_go_alone(self):
        high = workload([{"launch": 0, "pause_ns": 1_000_000}], [100_000])
        low = workload([{"launch": 0}], [400_000], name="low")
        self.assertGreater(compare(high, low, "priority")["low"]["device_share"], 0.5)

    def test_fikit_runs_what_fits_and_nothing_else(self):
        high = workload([{"launch": 0, "pause_ns": 100_000}], [100_000])
        fits = workload([{"repeat": 100, "ops": [{"launch": 0}]}], [30_000], name="low")
        row = compare(high, fits, "fikit")
        # Three of 30 us in each pause of 100: the high task does not notice.
        self.assertAlmostEqual(row["low"]["device_share"], 90 / 200, delta=0.03)
        self.assertAlmostEqual(row["high"]["slowdown"], 1.0, delta=0.001)
        long = workload([{"launch": 0}], [101_000], name="low")
        self.assertEqual(compare(high, long, "fikit")["low"]["device_share"], 0)

    def test_latency_costs_filling(self):
        high = workload([{"launch": 0, "pause_ns": 100_000}], [100_000])
        low = workload([{"repeat": 100, "ops": [{"launch": 0}]}], [5_000], name="low")
        quick = compare(high, low, "fikit", latency_ns=0)["low"]["device_share"]
        slow = compare(high, low, "fikit", latency_ns=20_000)["low"]["device_share"]
        self.assertGreater(quick, slow + 0.1)


if __name__ == "__main__":
    unittest.main()
