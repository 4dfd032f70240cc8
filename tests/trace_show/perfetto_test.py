"""The Perfetto export, read by a decoder of the wire format that knows nothing of the exporter, and
checked against perfetto's public schema as far as it is used (protos/perfetto/trace: field numbers,
types, and what track_event.proto asks of tracks, slices and interned names)."""

import collections
import pathlib
import struct
import unittest

import lab

# field number: (name, type); a dict as type is a message, a list marks a repeated field.
PROCESS = {1: ("pid", "int32"), 6: ("process_name", "string")}
COUNTER = {3: ("unit", "enum")}
TRACK = {1: ("uuid", "uint64"), 2: ("name", "string"), 3: ("process", PROCESS), 5: ("parent_uuid", "uint64"),
         8: ("counter", COUNTER)}
ANNOTATION = {3: ("uint_value", "uint64"), 4: ("int_value", "int64"), 6: ("string_value", "string"),
              10: ("name", "string")}
EVENT = {4: ("debug_annotations", [ANNOTATION]), 9: ("type", "enum"), 10: ("name_iid", "uint64"),
         11: ("track_uuid", "uint64"), 22: ("categories", ["string"]), 23: ("name", "string"),
         30: ("counter_value", "int64"), 47: ("flow_ids", ["fixed64"])}
NAME = {1: ("iid", "uint64"), 2: ("name", "string")}
INTERNED = {2: ("event_names", [NAME])}
PACKET = {8: ("timestamp", "uint64"), 10: ("trusted_packet_sequence_id", "uint32"), 11: ("track_event", EVENT),
          12: ("interned_data", INTERNED), 13: ("sequence_flags", "uint32"), 60: ("track_descriptor", TRACK)}
TRACE = {1: ("packet", [PACKET])}
WIRE = {"string": 2, "fixed64": 1}
BEGIN, END, INSTANT, COUNT = 1, 2, 3, 4


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            assert value < 1 << 64
            return value, at
        shift += 7
        assert shift < 70, "a varint of more than ten bytes"


def decode(data, schema):
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        field, wire = key >> 3, key & 7
        assert field in schema, f"field {field} is not in the schema"
        name, kind = schema[field]
        repeated = isinstance(kind, list)
        kind = kind[0] if repeated else kind
        assert wire == (2 if isinstance(kind, dict) else WIRE.get(kind, 0)), (name, wire)
        if wire == 0:
            value, at = varint(data, at)
            if kind in ("int32", "int64") and value >= 1 << 63:
                value -= 1 << 64
            if kind in ("uint32", "enum"):
                assert value < 1 << 32
        elif wire == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        else:
            length, at = varint(data, at)
            assert at + length <= len(data), f"{name} reaches beyond its message"
            value, at = data[at:at + length], at + length
            value = decode(value, kind) if isinstance(kind, dict) else value.decode("utf-8")
        if repeated:
            out.setdefault(name, []).append(value)
        else:
            assert name not in out, f"{name} twice"
            out[name] = value
    return out


class Model:
    """What an importer of the format makes of the packets."""

    def __init__(self, packets):
        self.tracks, self.names = {}, {}
        self.slices, self.instants, self.counters = [], [], collections.defaultdict(list)
        open_slices = collections.defaultdict(list)
        assert packets[0]["sequence_flags"] & 1, "the first packet clears the incremental state"
        events = []
        for number, packet in enumerate(packets):
            assert packet["trusted_packet_sequence_id"] != 0
            if number:
                assert packet["sequence_flags"] == 2
            for entry in packet.get("interned_data", {}).get("event_names", []):
                assert entry["iid"] != 0 and entry["iid"] not in self.names
                self.names[entry["iid"]] = entry["name"]
            if "track_descriptor" in packet:
                track = packet["track_descriptor"]
                assert track["uuid"] != 0 and track["uuid"] not in self.tracks
                if "parent_uuid" in track:
                    assert track["parent_uuid"] in self.tracks, "a parent is described first"
                self.tracks[track["uuid"]] = track
            if "track_event" in packet:
                event = packet["track_event"]
                assert event["track_uuid"] in self.tracks, "a track is described before its events"
                if "name_iid" in event:
                    assert event["name_iid"] in self.names, "a name is interned before its use"
                events.append((packet["timestamp"], number, event))
        for at, _, event in sorted(events, key=lambda one: one[:2]):  # as trace_processor does
            track = event["track_uuid"]
            is_counter = "counter" in self.tracks[track]
            assert is_counter == (event["type"] == COUNT)
            if event["type"] == BEGIN:
                open_slices[track].append((at, event))
            elif event["type"] == END:
                began, begin = open_slices[track].pop()
                self.slices.append((track, began, at, begin))
            elif event["type"] == INSTANT:
                self.instants.append((track, at, event))
            else:
                self.counters[track].append((at, event["counter_value"]))
        assert not any(open_slices.values()), "every slice ends"

    def name_of(self, event):
        return event.get("name") or self.names[event["name_iid"]]


class Perfetto(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = lab.scratch()
        at = pathlib.Path(cls.folder.name)
        cls.trace = lab.make_trace(at / "t.lull", 6000)
        lab.lull("trace", "export", cls.trace, "--format", "perfetto", "-o", at / "t.pftrace")
        cls.packets = decode((at / "t.pftrace").read_bytes(), TRACE)["packet"]
        cls.model = Model(cls.packets)
        cls.report = lab.show(cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def track(self, name):
        return next(uuid for uuid, track in self.model.tracks.items() if track.get("name") == name)

    def test_tracks_are_devices_streams_processes_threads_and_counters(self):
        tracks = self.model.tracks
        device = self.track("GPU 0 Made-up GPU (simulated)")
        for name in ("serve (1) stream 0", "train (2) stream 0"):
            self.assertEqual(tracks[self.track(name)]["parent_uuid"], device)
        processes = {t["process"]["process_name"]: t for t in tracks.values() if "process" in t}
        self.assertEqual({name: t["process"]["pid"] for name, t in processes.items()},
                         {"serve (1)": 1001, "train (2)": 1002})
        counters = [t for t in tracks.values() if "counter" in t]
        self.assertEqual({t["counter"]["unit"] for t in counters}, {2, 3})
        self.assertTrue(all(t["parent_uuid"] in {p["uuid"] for p in processes.values()} for t in counters))

    def test_slices_of_streams_are_the_units_with_their_lengths(self):
        total = collections.Counter()
        count = collections.Counter()
        streams = {self.track("serve (1) stream 0"), self.track("train (2) stream 0")}
        for track, start, end, event in self.model.slices:
            if track not in streams:
                continue
            notes = {note["name"]: note for note in event["debug_annotations"]}
            self.assertEqual(notes["duration_ns"]["int_value"], end - start)
            self.assertEqual(event["categories"], ["kernel"])
            total[self.model.name_of(event)] += end - start
            count[self.model.name_of(event)] += 1
        for row in self.report["kernels"]:
            self.assertEqual(count[row["name"]], row["count"])
            self.assertEqual(total[row["name"]], round(row["total_us"] * 1000))
        self.assertIn("</script><script>window.broken=1</script>", count)

    def test_held_launches_are_slices_of_the_thread_and_the_gate_counts_them(self):
        held = [(end - start, event) for _, start, end, event in self.model.slices
                if event["categories"] == ["gate"]]
        wanted = self.report["held"][0]
        self.assertEqual(len(held), wanted["count"])
        self.assertEqual(sum(length for length, _ in held), round(wanted["total_us"] * 1000))
        notes = {note["name"]: note for note in held[0][1]["debug_annotations"]}
        self.assertEqual(notes["held_by"]["string_value"], "serve (1)")
        gate = self.track("gate (1: a launch is held)")
        values = self.model.counters[gate]
        self.assertEqual(values, sorted(values, key=lambda one: one[0]))
        self.assertEqual({value for _, value in values}, {0, 1})
        ones = [at for at, value in values if value == 1]
        zeros = [at for at, value in values if value == 0]
        self.assertEqual(sum(zeros) - sum(ones), round(wanted["total_us"] * 1000))

    def test_each_launch_flows_to_its_unit(self):
        launches = {event["flow_ids"][0]: at for _, at, event in self.model.instants}
        self.assertEqual(len(launches), 6000)
        units = {event["flow_ids"][0]: start for _, start, _, event in self.model.slices if "flow_ids" in event}
        self.assertEqual(set(units), set(launches))
        self.assertTrue(all(launches[flow] <= start for flow, start in units.items()))

    def test_ranges_are_slices_of_a_track_for_each_depth(self):
        ranges = {row["name"]: row for row in lab.show(self.trace)["ranges"] if row["client"] == 1}
        for level, name in ((1, "step </script>"), (2, "load")):
            serve = next(uuid for uuid, t in self.model.tracks.items() if t.get("process", {}).get("pid") == 1001)
            track = next(uuid for uuid, t in self.model.tracks.items() if t.get("parent_uuid") == serve
                         and t["name"] == f"ranges of thread 0, level {level}")
            lengths = [end - begin for on, begin, end, event in self.model.slices
                       if on == track and self.model.name_of(event) == name]
            self.assertEqual(len(lengths), ranges[name]["count"])
            self.assertAlmostEqual(sum(lengths) / 1e3, ranges[name]["total_us"], delta=0.01)

    def test_memory_is_a_counter_in_bytes(self):
        memory = [uuid for uuid, track in self.model.tracks.items() if track.get("name") == "memory on GPU 0"]
        self.assertEqual(len(memory), 2)
        for uuid in memory:
            self.assertEqual({value for _, value in self.model.counters[uuid]}, {1 << 30, 3 << 30})


if __name__ == "__main__":
    unittest.main()
