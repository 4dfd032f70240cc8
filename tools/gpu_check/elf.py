"""What an ELF file asks of the machine it runs on, read without any tool. x86-64, little endian.

Used by the portability test and by the parts, which look at the driver's own exports.
"""

import struct

_SHT_STRTAB, _SHT_DYNAMIC, _SHT_DYNSYM, _SHT_VERNEED = 3, 6, 11, 0x6FFFFFFE
_DT_NEEDED = 1


class NotElf(Exception):
    pass


class Elf:
    """needed: sonames, in order; versions: {soname: {version names}}; exports: defined dynamic names."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._bytes = file.read()
        data = self._bytes
        if data[:6] != b"\x7fELF\x02\x01":
            raise NotElf(f"{path}: no 64-bit little-endian ELF file")
        self.type, self.machine = struct.unpack_from("<HH", data, 16)
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        # name, type, flags, address, offset, size, link, info, alignment, entry size
        self._sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        self.needed, self.versions, self.exports = [], {}, set()
        for section in self._sections:
            if section[1] == _SHT_DYNAMIC:
                self._dynamic(section)
            elif section[1] == _SHT_VERNEED:
                self._version_needs(section)
            elif section[1] == _SHT_DYNSYM:
                self._symbols(section)

    def _text(self, strings, offset):
        start = self._sections[strings][4] + offset
        return self._bytes[start:self._bytes.index(b"\0", start)].decode(errors="replace")

    def _dynamic(self, section):
        for at in range(section[4], section[4] + section[5], 16):
            tag, value = struct.unpack_from("<qQ", self._bytes, at)
            if tag == 0:
                break
            if tag == _DT_NEEDED:
                self.needed.append(self._text(section[6], value))

    def _version_needs(self, section):
        at = section[4]
        for _ in range(section[7]):
            _, count, file, first, following = struct.unpack_from("<HHIII", self._bytes, at)
            names = self.versions.setdefault(self._text(section[6], file), set())
            one = at + first
            for _ in range(count):
                _, _, _, name, after = struct.unpack_from("<IHHII", self._bytes, one)
                names.add(self._text(section[6], name))
                one += after
            at += following

    def _symbols(self, section):
        for at in range(section[4], section[4] + section[5], section[9] or 24):
            name, info, _, defined_in, _, _ = struct.unpack_from("<IBBHQQ", self._bytes, at)
            if defined_in != 0 and info >> 4 in (1, 2) and name != 0:
                self.exports.add(self._text(section[6], name))


def newest(versions, prefix):
    """The highest of e.g. GLIBC_2.34, as a tuple; None when there is none."""
    found = []
    for name in versions:
        if name.startswith(prefix + "_") and name[len(prefix) + 1:len(prefix) + 2].isdigit():
            found.append(tuple(int(part) for part in name[len(prefix) + 1:].split(".")))
    return max(found, default=None)
