"""launch_queue: from the probe's figures to how often lull marks progress."""

import unittest

import lab
from gpu_check import launch_queue
from gpu_check.launch_queue import NOTHING, SPARSE, WRITE
from gpu_check.verdict import UNDECIDED


def drag(around, added_ns, spread_ns=20.0, count=31, kernel_us=20.0):
    spread = {"count": count, "p10": added_ns - spread_ns / 2, "p50": added_ns, "p90": added_ns + spread_ns / 2}
    return {"around": around, "kernel_us": kernel_us, "added_ns": spread, "device_ns": spread, "host_ns": spread, "rounds_left_out": 0}


class Marks(unittest.TestCase):
    def answer(self, *drags):
        return launch_queue.judged([drag(NOTHING, 0.0), *drags])[0]

    def test_one_percent_of_a_kernel_decides(self):
        self.assertEqual(self.answer(drag(WRITE, 150), drag(SPARSE, 10)), "every launch")
        self.assertEqual(self.answer(drag(WRITE, 450), drag(SPARSE, 30)), "one launch in 16")
        self.assertEqual(self.answer(drag(WRITE, 4500), drag(SPARSE, 300)), "none")

    def test_a_drag_nearer_to_the_bar_than_it_is_known_decides_nothing(self):
        self.assertEqual(self.answer(drag(WRITE, 210, spread_ns=400), drag(SPARSE, 10)), UNDECIDED)
        self.assertEqual(self.answer(drag(WRITE, 450), drag(SPARSE, 210, spread_ns=400)), UNDECIDED)
        self.assertEqual(self.answer(drag(WRITE, 450)), UNDECIDED)

    def test_other_kernels_and_too_few_rounds_do_not_count(self):
        self.assertEqual(self.answer(drag(WRITE, 10, kernel_us=0.0)), UNDECIDED)
        self.assertEqual(self.answer(drag(WRITE, 10, count=4)), UNDECIDED)


class OnTheSimulatedGpu(unittest.TestCase):
    def test_its_queue_has_1024_places_and_marks_take_them(self):
        with lab.context() as context:
            found = launch_queue.queue(context)
        places = found["profile"]["launch_queue"]
        # The held kernel and the event behind it are in the queue too.
        self.assertEqual(places["nothing"], 1022)
        self.assertEqual(places["value write"], 511)
        self.assertEqual(places["timed event before and behind"], 340)
        self.assertIn("runs no code", found["answer"]["stamps"]["skipped"])
        self.assertEqual({row["around"] for row in found["answer"]["drags"]}, set(name for name in (
            NOTHING, WRITE, SPARSE, launch_queue.EVENT, launch_queue.PAIR)))
        self.assertEqual(found["decision"]["answer"], UNDECIDED)


if __name__ == "__main__":
    unittest.main()
