"""The HTML report in a real browser: headless Chromium, driven by selenium. Skips, saying so, where
the browser is not installed (tools/setup/install has it)."""

import os
import pathlib
import re
import shutil
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "trace_show"))
import lab  # noqa: E402

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    webdriver = None

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
UNITS = {"s": 1e6, "ms": 1e3, "\u00b5s": 1, "ns": 1e-3}


def shown_us(text):
    """What a cell says, in us."""
    if text in ("0", "-"):
        return 0.0
    number, unit = text.lstrip("~").split()
    return float(number) * UNITS[unit]


@unittest.skipUnless(webdriver and CHROMIUM and DRIVER, "no Chromium, chromedriver or selenium here")
class Html(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = lab.scratch()
        cls.at = pathlib.Path(cls.folder.name)
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for word in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1200",
                     f"--user-data-dir={cls.at / 'profile'}", "--no-first-run", "--disable-extensions"):
            options.add_argument(word)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium's own does not run as root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        cls.trace = lab.make_trace(cls.at / "small.lull", 7200)
        cls.report = lab.show(cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    def load(self, trace):
        page = self.at / (trace.name + ".html")
        lab.lull("trace", "export", trace, "--format", "html", "-o", page)
        self.browser.get(page.as_uri())
        WebDriverWait(self.browser, 120).until(
            lambda browser: browser.find_element(By.TAG_NAME, "html").get_attribute("data-ready") == "yes")
        self.canvas = self.browser.find_element(By.ID, "timeline")
        return page

    def tearDown(self):
        # No console error or warning, and nothing asked of a network: no request but for the page.
        self.assertEqual(self.browser.get_log("browser"), [])
        for entry in self.browser.get_log("performance"):
            if '"Network.requestWillBeSent"' in entry["message"]:
                self.assertRegex(entry["message"], r'"url":"(file|data|about|chrome)')

    def visible(self):
        self.browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        return float(self.canvas.get_attribute("data-from")), float(self.canvas.get_attribute("data-to"))

    def length(self):
        low, high = self.visible()
        return high - low

    def wheel(self, x, pixels):
        ActionChains(self.browser).scroll_from_origin(ScrollOrigin.from_element(self.canvas, x, 0), 0, pixels).perform()

    def table(self, name):
        """Rows of {key: (data-value, text)}."""
        return self.browser.execute_script("""
          return [...document.querySelectorAll('#' + arguments[0] + ' tbody tr')].map((row) =>
            Object.fromEntries([...row.cells].filter((cell) => cell.dataset.key).map((cell) =>
              [cell.dataset.key, [cell.dataset.value ?? null, cell.textContent]])))""", name)

    def test_the_numbers_are_those_of_show_json(self):
        self.load(self.trace)
        for name, key in (("kernels", "name"), ("tasks", "task"), ("held", "task"), ("iterations", "task"),
                          ("streams", "task"), ("idle", "task"), ("ranges", "task")):
            rows = self.table(name)
            self.assertEqual(len(rows), len(self.report[name]), name)
            for row, wanted in zip(rows, self.report[name]):
                for field, (value, text) in row.items():
                    if field not in wanted or isinstance(wanted[field], list):
                        continue
                    if wanted[field] is None:
                        self.assertIsNone(value)
                    elif isinstance(wanted[field], str):
                        self.assertEqual(value, wanted[field])
                    else:
                        self.assertEqual(float(value), wanted[field], (name, field))
                    if field.endswith("_us") and wanted[field] is not None:
                        self.assertAlmostEqual(shown_us(text), wanted[field],
                                               delta=0.006 * wanted[field] + 0.0006, msg=text)
        facts = self.browser.find_element(By.ID, "facts").text
        self.assertIn("7,200", facts)
        self.assertIn(f"{100 * self.report['devices'][0]['busy_share']:.1f} %", facts)
        self.assertTrue(self.browser.find_element(By.ID, "simulated").is_displayed())
        self.assertRegex(self.browser.title, r"^small\.lull, [0-9.]+ (ns|us|ms|s) to [0-9.]+ (ms|s)$")

    def test_hostile_names_are_text(self):
        self.load(self.trace)
        self.assertIsNone(self.browser.execute_script("return window.broken ?? null"))
        names = {row["name"][0] for row in self.table("kernels")}
        self.assertIn("</script><script>window.broken=1</script>", names)
        self.assertIn("quote\"backslash\\ampersand&<b>", names)

    def test_the_timeline_zooms_with_the_wheel_and_comes_back(self):
        self.load(self.trace)
        whole = self.visible()
        self.assertGreater(whole[1] - whole[0], 1e6)
        self.wheel(100, -400)
        near = self.visible()
        self.assertLess(near[1] - near[0], 0.7 * (whole[1] - whole[0]))
        for _ in range(3):
            self.wheel(100, 400)
        self.assertEqual(self.visible(), whole)

    def test_the_timeline_zooms_around_the_pointer(self):
        self.load(self.trace)
        low, high = self.visible()
        box = self.canvas.rect["width"]
        x = box * 0.75
        share = (x - 190) / (box - 190)
        under = low + share * (high - low)
        self.wheel(int(x - box / 2), -600)
        low, high = self.visible()
        self.assertAlmostEqual((low + share * (high - low)) / under, 1, delta=0.01)

    def test_the_timeline_moves_by_dragging_and_by_keys(self):
        self.load(self.trace)
        self.wheel(0, -600)
        before = self.visible()
        (ActionChains(self.browser).key_down(Keys.SHIFT).drag_and_drop_by_offset(self.canvas, -150, 0)
         .key_up(Keys.SHIFT).perform())
        after = self.visible()
        self.assertGreater(after[0], before[0])
        self.assertAlmostEqual((after[1] - after[0]) / (before[1] - before[0]), 1, delta=1e-6)
        self.canvas.send_keys(Keys.ARROW_LEFT)
        self.assertLess(self.visible()[0], after[0])
        length = self.length()
        self.canvas.send_keys("+")
        self.assertLess(self.length(), length)
        self.canvas.send_keys("0")
        self.assertGreater(self.length(), length)
        self.browser.find_element(By.ID, "zoom-in").click()
        self.browser.find_element(By.ID, "zoom-all").click()

    def test_the_timeline_is_drawn_and_says_what_is_under_the_pointer(self):
        self.load(self.trace)
        colours = self.browser.execute_script("""
          const c = document.getElementById('timeline'), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
          const seen = new Set();
          for (let i = 0; i < p.length; i += 4) seen.add(p[i] << 16 | p[i + 1] << 8 | p[i + 2]);
          return seen.size""")
        self.assertGreater(colours, 10)
        self.visible()
        for _ in range(12):
            self.wheel(100, -240)
        tip = self.browser.find_element(By.ID, "tip")
        found = set()
        for y in range(-70, 90, 12):
            ActionChains(self.browser).move_to_element_with_offset(self.canvas, 100, y).perform()
            found.update(tip.text.splitlines()[:1])
        names = {row["name"] for row in self.report["kernels"]}
        self.assertTrue(found & names, found)

    def test_the_table_sorts_and_filters(self):
        self.load(self.trace)
        rows = [float(row["total_us"][0]) for row in self.table("kernels")]
        self.assertEqual(rows, sorted(rows, reverse=True))
        head = self.browser.find_element(By.CSS_SELECTOR, "#kernels th[data-key=p50_us]")
        head.click()
        values = [float(row["p50_us"][0]) for row in self.table("kernels")]
        self.assertEqual(values, sorted(values, reverse=True))
        self.browser.find_element(By.CSS_SELECTOR, "#kernels th[data-key=p50_us]").click()
        self.assertEqual([float(row["p50_us"][0]) for row in self.table("kernels")], values[::-1])
        self.browser.find_element(By.ID, "filter").send_keys("vectoradd")
        self.assertEqual([row["name"][0] for row in self.table("kernels")],
                         ["vectorAdd(float const*, float const*, float*, int)"])

    def test_both_themes_are_readable(self):
        self.load(self.trace)
        seen = set()
        for _ in range(2):
            self.browser.find_element(By.ID, "theme").click()
            page, ink = self.browser.execute_script("""
              const style = getComputedStyle(document.body);
              return [style.backgroundColor, style.color]""")
            bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (page, ink)]
            self.assertGreater(abs(bright[0] - bright[1]), 350)
            seen.add(page)
        self.assertEqual(len(seen), 2)

    def drag(self, x0, x1):
        """From one distance from the canvas' middle to another, in pixels."""
        (ActionChains(self.browser).move_to_element_with_offset(self.canvas, x0, 0).click_and_hold()
         .move_to_element_with_offset(self.canvas, (x0 + x1) // 2, 0)
         .move_to_element_with_offset(self.canvas, x1, 0).release().perform())
        return tuple(map(float, self.canvas.get_attribute("data-selection").split()))

    def test_a_dragged_range_shows_its_figures(self):
        self.load(self.trace)
        self.assertFalse(self.browser.find_element(By.ID, "selection").is_displayed())
        # All of it: what the tables say.
        whole = self.visible()
        low, high = self.drag(-int(self.canvas.rect["width"] / 2) + 191, int(self.canvas.rect["width"] / 2) - 1)
        self.assertTrue(self.browser.find_element(By.ID, "selection").is_displayed())
        self.assertLess(low - whole[0], 0.01 * (whole[1] - whole[0]))
        self.browser.find_element(By.ID, "drop-selection").click()
        self.assertFalse(self.browser.find_element(By.ID, "selection").is_displayed())
        events = lab.csv_rows(self.trace)
        for x0, x1 in ((-100, 300), (50, 120), (100, 130)):
            low, high = self.drag(x0, x1)
            part = lambda row: min(high, row["end"]) - max(low, row["start"])
            wanted, units = {}, {}
            for row in events:
                if part(row) > 0:
                    wanted[row["name"]] = wanted.get(row["name"], 0) + part(row)
                    units[row["name"]] = units.get(row["name"], 0) + 1
            rows = {row["name"][0]: row for row in self.table("selected-kernels")}
            self.assertEqual(set(rows), set(wanted))
            for name, ns in wanted.items():
                self.assertAlmostEqual(float(rows[name]["total_us"][0]), ns / 1e3, delta=1e-3)
                self.assertEqual(float(rows[name]["count"][0]), units[name])
            kinds = self.table("selected-kinds")
            self.assertAlmostEqual(sum(float(row["total_us"][0]) for row in kinds), sum(wanted.values()) / 1e3, delta=0.1)
            # Each task's busy and idle time fill the range, where the task goes on beyond it.
            whole_range = [task for task in self.report["tasks"] if min(
                row["start"] for row in events if row["client"] == task["client"]) <= low and max(
                row["end"] for row in events if row["client"] == task["client"]) >= high]
            self.assertTrue(whole_range)
            for task in whole_range:
                own = sorted((max(low, row["start"]), min(high, row["end"])) for row in events
                             if row["client"] == task["client"] and part(row) > 0)
                busy, until = 0, low
                for start, end in own:
                    busy += max(0, end - max(start, until))
                    until = max(until, end)
                idle = sum(float(row["total_us"][0]) for row in self.table("selected-idle")
                           if row["task"][0] == f"{task['task']} ({task['client']})")
                self.assertAlmostEqual(busy / 1e3 + idle, (high - low) / 1e3, delta=0.1)
        self.browser.find_element(By.ID, "zoom-selection").click()
        self.assertEqual(self.visible(), (low, high))
        self.canvas.send_keys(Keys.ESCAPE)
        self.assertFalse(self.browser.find_element(By.ID, "selection").is_displayed())

    def test_a_large_trace_is_drawn_in_levels_of_detail(self):
        page = self.load(lab.make_trace(self.at / "large.lull", 720_000))
        self.assertLess(page.stat().st_size, 16 << 20)
        self.assertFalse(self.browser.find_element(By.ID, "aggregated").is_displayed())
        self.visible()
        boxes = lambda: int(self.canvas.get_attribute("data-boxes"))
        # At no zoom more boxes than a few a pixel and lane; near, each unit is one.
        pixels = self.canvas.rect["width"]
        seen = [boxes()]
        for _ in range(20):
            self.wheel(100, -240)
            self.visible()
            seen.append(boxes())
        self.assertLess(max(seen), 8 * pixels)
        self.assertLess(self.length(), 1e6)
        low, high = self.visible()
        near = [row for row in lab.csv_rows(self.at / "large.lull") if row["end"] >= low and row["start"] <= high]
        self.assertGreater(len(near), 0)
        self.assertGreaterEqual(seen[-1], len(near))
        self.assertIn("720,000", self.browser.find_element(By.ID, "facts").text)

    def test_a_trace_beyond_the_bound_says_that_neighbours_are_drawn_as_one(self):
        page = self.load(lab.make_trace(self.at / "huge.lull", 3_000_000))
        self.assertLess(page.stat().st_size, 32 << 20)
        self.assertIn("drawn as one", self.browser.find_element(By.ID, "aggregated").text)


if __name__ == "__main__":
    unittest.main()
