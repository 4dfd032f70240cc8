"""`lull trace record --call-sites`: one kernel launched from two functions is shown as two, each with
the functions it came through by name; in a program loaded anywhere and in one with fixed addresses."""

import json
import unittest

import lab

ROUNDS = 10


class CallSites(unittest.TestCase):
    def record(self, here, program, *options):
        path = here.folder / f"{program}.lull"
        # What it launches before it attaches is in no trace.
        code, _, err = here.lull("trace", "record", "--sim", *options, "-o", path, "--",
                                 "env", "LULL_REQUIRE_COORDINATOR=1", lab.PROGRAMS / program, ROUNDS)
        self.assertEqual(code, 0, err)
        code, out, err = here.lull("trace", "show", "--json", path)
        self.assertEqual(code, 0, err)
        return path, [k for k in json.loads(out)["kernels"] if k["name"] == "spin"]

    def both_functions_are_named(self, program):
        with lab.Lab() as here:
            path, kernels = self.record(here, program, "--call-sites")
            self.assertEqual(len(kernels), 2, kernels)
            self.assertEqual(len({k["id"] for k in kernels}), 2)
            counts = {k["call_site"][0].split("(")[0]: k["count"] for k in kernels}
            self.assertEqual(counts, {"launch_from_warmup": ROUNDS // 2, "launch_from_training": ROUNDS})
            for kernel in kernels:
                self.assertEqual(kernel["call_site"][1], f"main [{program}]")
                self.assertIn(f"[{program}]", kernel["call_site"][0])
            code, text, err = here.lull("trace", "show", path)
            self.assertEqual(code, 0, err)
            for name in ("launch_from_warmup(DriverWork&", "launch_from_training(DriverWork&"):
                self.assertEqual(len([line for line in text.splitlines() if name in line]), 1, text)

    def test_a_kernel_launched_from_two_functions_is_listed_with_both_names(self):
        self.both_functions_are_named("call_sites")

    def test_so_it_is_in_a_program_with_fixed_addresses(self):
        self.both_functions_are_named("call_sites_fixed")

    def test_without_call_sites_it_is_one_kernel_without_any(self):
        with lab.Lab() as here:
            _, kernels = self.record(here, "call_sites")
            self.assertEqual([k["count"] for k in kernels], [ROUNDS + ROUNDS // 2])
            self.assertFalse(kernels[0].get("call_site"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
