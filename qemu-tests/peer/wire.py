# SPDX-License-Identifier: GPL-2.0
"""The data on an iWARP connection, built and parsed byte by byte: MPA (RFC 5044, 6581), DDP (RFC 5041)
and RDMAP (RFC 5040, 7306). Building checks nothing: any field can have a wrong value."""

import struct

# --- MPA start-up frames (RFC 5044 7.1.1, RFC 6581 6 and 9)

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
# Control flags of the enhanced data. A and B are in the word of IRD, C and D in that of ORD.
A_P2P, B_SEND, C_WRITE, D_READ = 0x8000, 0x4000, 0x8000, 0x4000
MANUAL = 0x3fff  # IRD or ORD: no negotiation


def frame(key, flags, revision, data=b"", length=None):
    """A start-up frame; `length` is the length of the private data in its header, if not the true one."""
    return key + struct.pack(">BBH", flags, revision, len(data) if length is None else length) + data


def depths(ird, ord_):
    """The enhanced data. Either depth may have its control flags or'ed in."""
    return struct.pack(">HH", ird, ord_)


class Frame:
    """A start-up frame that was received."""

    def __init__(self, head, data=b""):
        self.key, self.flags, self.revision, self.length = struct.unpack(">16sBBH", head)
        self.data = data

    @property
    def enhanced(self):
        return bool(self.flags & ENHANCED)

    @property
    def words(self):
        """The two words of the enhanced data, flags included."""
        return struct.unpack(">HH", self.data[:4])

    @property
    def ird(self):
        return self.words[0] & 0x3fff

    @property
    def ord(self):
        return self.words[1] & 0x3fff

    @property
    def rtr(self):
        """(A, B, C, D)"""
        first, second = self.words
        return tuple(bool(x) for x in (first & A_P2P, first & B_SEND, second & C_WRITE, second & D_READ))

    @property
    def private(self):
        """Private data of the ULP."""
        return self.data[4:] if self.enhanced else self.data

    def __repr__(self):
        return (f"Frame({self.key.decode('latin1')!r}, flags {self.flags:#x}, revision {self.revision}, "
                f"data {self.data.hex()})")


# --- CRC32c (RFC 5044 4.4)

def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data):
    crc = 0xffffffff
    table = _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xff]
    return crc ^ 0xffffffff


# --- FPDUs (RFC 5044 4)

class Framer:
    """The sender of one direction of a stream: makes FPDUs of ULPDUs, with CRC and markers."""

    def __init__(self, crc=True, markers=False):
        self.crc, self.markers = crc, markers
        self.position = 0

    def fpdu(self, ulpdu, length=None, pad=None, crc_xor=0, marker_xor=0):
        """The FPDU of a ULPDU. `length` sets a wrong length field, `pad` wrong pad bytes; the others flip bits."""
        body = struct.pack(">H", len(ulpdu) if length is None else length) + ulpdu
        body += bytes(-len(body) % 4) if pad is None else pad
        out = bytearray()
        start = None
        for at in range(0, len(body), 4):
            self._marker(out, start, marker_xor)
            if start is None:
                start = self.position + len(out)
            out += body[at:at + 4]
        self._marker(out, start, marker_xor)
        out += struct.pack("<I", (crc32c(out) ^ crc_xor) & 0xffffffff) if self.crc else bytes(4)
        self.position += len(out)
        return bytes(out)

    def _marker(self, out, start, xor):
        if self.markers and (self.position + len(out)) % 512 == 0:
            distance = 0 if start is None else self.position + len(out) - start
            out += struct.pack(">HH", 0, distance ^ xor)


class WireError(Exception):
    """The device sent something that the RFCs do not allow."""


class Deframer:
    """The receiver of one direction of a stream. Checks length, pad, CRC and markers."""

    def __init__(self, crc=True, markers=False):
        self.crc, self.markers = crc, markers
        self.position = 0  # of the first byte of `buffer`
        self.buffer = bytearray()

    def feed(self, data):
        self.buffer += data

    def next(self):
        """The next ULPDU, or None if it is not complete."""
        buffer = self.buffer
        plain, covered, at = bytearray(), bytearray(), 0
        start, want = None, 2
        while True:
            if self.markers and (self.position + at) % 512 == 0:
                if len(buffer) < at + 4:
                    return None
                zero, distance = struct.unpack(">HH", buffer[at:at + 4])
                right = 0 if start is None else self.position + at - start
                if distance != right or zero:
                    raise WireError(f"marker at {self.position + at} says {zero:#x}, {distance}, not {right}")
                covered += buffer[at:at + 4]
                at += 4
                continue
            if start is None:
                start = self.position + at
            if len(buffer) < at + 4:
                return None
            word = buffer[at:at + 4]
            at += 4
            if want == 2:
                length = struct.unpack(">H", word[:2])[0]
                want = -(-(2 + length) // 4) * 4
            if len(plain) < want:
                plain += word
                covered += word
                continue
            break
        crc = struct.unpack("<I", word)[0]
        if crc != (crc32c(covered) if self.crc else crc):
            raise WireError(f"CRC {crc:#x} is wrong")
        if any(plain[2 + length:]):
            raise WireError(f"pad is not zero: {plain[2 + length:].hex()}")
        del buffer[:at]
        self.position += at
        return bytes(plain[2:2 + length])


# --- DDP and RDMAP (RFC 5041 4, RFC 5040 4)

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)
IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE = range(8, 12)
SEND_IMM = 15  # our own: the field of the STag to invalidate has the data, a reserved bit asks for an event
QN_SEND, QN_READ, QN_TERMINATE, QN_ATOMIC = range(4)
FETCH_ADD, CMP_SWAP = 0, 2
TAGGED, LAST = 0x80, 0x40


def control(tagged, last, opcode, dv=1, rv=1, ddp_rsvd=0, rdmap_rsvd=0):
    """The two control octets: T, L, four reserved bits, DV; RV, two reserved bits, opcode."""
    return bytes(((TAGGED if tagged else 0) | (LAST if last else 0) | ddp_rsvd << 2 | dv,
                  rv << 6 | rdmap_rsvd << 4 | opcode))


def tagged(stag, to, data=b"", opcode=WRITE, last=True, **bits):
    return control(True, last, opcode, **bits) + struct.pack(">IQ", stag, to & (1 << 64) - 1) + data


def untagged(qn, msn, mo=0, data=b"", opcode=SEND, last=True, inv=0, **bits):
    return control(False, last, opcode, **bits) + struct.pack(
        ">IIII", inv, qn & 0xffffffff, msn & 0xffffffff, mo & 0xffffffff) + data


def write(stag, to, data=b"", last=True, **bits):
    return tagged(stag, to, data, WRITE, last, **bits)


def read_response(stag, to, data=b"", last=True, **bits):
    return tagged(stag, to, data, READ_RESPONSE, last, **bits)


def send(msn, data=b"", mo=0, last=True, opcode=SEND, inv=0, qn=QN_SEND, **bits):
    return untagged(qn, msn, mo, data, opcode, last, inv, **bits)


def read_request(msn, sink_stag, sink_to, size, src_stag, src_to, qn=QN_READ, mo=0, last=True, opcode=READ_REQUEST,
                 **bits):
    return untagged(qn, msn, mo, struct.pack(">IQIIQ", sink_stag, sink_to, size, src_stag, src_to), opcode, last,
                    **bits)


def immediate(msn, data, opcode=IMMEDIATE, qn=QN_SEND, **bits):
    """Immediate Data (RFC 7306 6); `data` should have 8 bytes."""
    return untagged(qn, msn, data=data, opcode=opcode, **bits)


def atomic_request(msn, stag, to, code, data, mask, compare=0, compare_mask=(1 << 64) - 1, ident=0x1d, qn=QN_READ,
                   rest=b"", **bits):
    """An Atomic Request (RFC 7306 5.2.1)."""
    header = struct.pack(">IIIQQQQQ", code, ident, stag, to & (1 << 64) - 1, data, mask, compare, compare_mask)
    return untagged(qn, msn, data=header + rest, opcode=ATOMIC_REQUEST, **bits)


def atomic_response(msn, ident, value, qn=QN_ATOMIC, rest=b"", **bits):
    return untagged(qn, msn, data=struct.pack(">IQ", ident, value) + rest, opcode=ATOMIC_RESPONSE, **bits)


class AtomicRequest:
    def __init__(self, data):
        (self.code, self.ident, self.stag, self.to, self.data, self.mask, self.compare,
         self.compare_mask) = struct.unpack(">IIIQQQQQ", data)


def terminate(layer, etype, code, hdrct=0, rest=b"", msn=1, **bits):
    """`hdrct`: the bits M, D, R as 4, 2, 1."""
    return untagged(QN_TERMINATE, msn, 0, struct.pack(">BBH", layer << 4 | etype, code, hdrct << 13) + rest,
                    TERMINATE, True, **bits)


class ReadRequest:
    def __init__(self, data):
        self.sink_stag, self.sink_to, self.size, self.src_stag, self.src_to = struct.unpack(">IQIIQ", data[:28])

    def __repr__(self):
        return (f"ReadRequest(sink {self.sink_stag:#x}+{self.sink_to:#x}, {self.size} bytes of "
                f"{self.src_stag:#x}+{self.src_to:#x})")


class Segment:
    """A DDP segment that was received."""

    def __init__(self, ulpdu):
        self.ulpdu = ulpdu
        first, second = ulpdu[:2]
        self.tagged, self.last = bool(first & TAGGED), bool(first & LAST)
        self.ddp_rsvd, self.dv = first >> 2 & 15, first & 3
        self.rv, self.rdmap_rsvd, self.opcode = second >> 6, second >> 4 & 3, second & 15
        if self.tagged:
            self.stag, self.to = struct.unpack(">IQ", ulpdu[2:14])
            self.data = ulpdu[14:]
        else:
            self.inv, self.qn, self.msn, self.mo = struct.unpack(">IIII", ulpdu[2:18])
            self.data = ulpdu[18:]

    @property
    def header(self):
        """The DDP header with RDMAP's control octet: what a Terminate carries back."""
        return self.ulpdu[:14 if self.tagged else 18]

    def __repr__(self):
        where = (f"stag {self.stag:#x} to {self.to:#x}" if self.tagged
                 else f"qn {self.qn} msn {self.msn} mo {self.mo} inv {self.inv:#x}")
        return (f"Segment(opcode {self.opcode}, {where}, {len(self.data)} bytes"
                f"{', last' if self.last else ''}, dv {self.dv} rv {self.rv})")


class Terminate:
    """The body of a Terminate (RFC 5040 4.8): `code` is (layer, etype, code); `length` is that of the DDP segment it
    complains about, `ddp` that segment's header as bytes, `read` the Read Request in it; None if not carried."""

    def __init__(self, data):
        first, code, flags = struct.unpack(">BBH", data[:4])
        self.code = (first >> 4, first & 15, code)
        self.m, self.d, self.r = (bool(flags & bit) for bit in (0x8000, 0x4000, 0x2000))
        self.reserved = flags & 0x1fff
        rest = data[4:]
        self.length = self.ddp = self.read = None
        if self.m or self.d:
            # One 16-bit field; valid only with M (RFC 5040 4.8).
            self.length = struct.unpack(">H", rest[:2])[0] if self.m else None
            rest = rest[2:]
        if self.d:
            size = 14 if rest[0] & TAGGED else 18
            self.ddp, rest = rest[:size], rest[size:]
        if self.r:
            self.read, rest = ReadRequest(rest), rest[28:]
        self.rest = rest

    def __repr__(self):
        layer, etype, code = self.code
        return (f"Terminate({layer}/{etype}/{code:02x}, M{self.m:d} D{self.d:d} R{self.r:d}, length {self.length}, "
                f"ddp {self.ddp.hex() if self.ddp else None}, read {self.read})")
