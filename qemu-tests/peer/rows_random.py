# SPDX-License-Identifier: GPL-2.0
"""Random traffic and random errors, the same in every run."""

import random

import verbs
import wire
from rows import OWN, row

SIZE = 8192
SINK = 0x5151  # an STag of the peer's

def pieces(rng, data):
    """Cut into segments at random: (offset, part, whether it is the last)."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 0, 1, 2, 5))))
    cuts = [0, *cuts, len(data)]

    for start, end, last in zip(cuts, cuts[1:], [False] * (len(cuts) - 2) + [True]):
        yield start, data[start:end], last

def merge(rng, *streams):
    """Merges several streams, each of which keeps its order."""
    streams = [list(stream) for stream in streams if stream]
    while streams:
        stream = rng.choice(streams)
        yield stream.pop(0)
        if not stream:
            streams.remove(stream)

class Traffic:
    """A connection on which both sides send all kinds of messages at once."""

    def __init__(self, t, seed):
        self.rng = random.Random(seed)
        self.cq = t.make_cq(256)
        # On every second connection the peer asks for markers.
        flags = wire.CRC | wire.ENHANCED | (wire.MARKERS if seed & 1 else 0)
        self.conn = t.active(flags, send_wr=64, recv_wr=64, recv_cq=self.cq)
        self.written, self.source, self.sink, self.received = (t.mr(SIZE) for _ in range(4))
        self.source.put(self.rng.randbytes(SIZE))
        self.model = bytearray(SIZE)
        self.msn = self.read_msn = 1

    def range(self, most=4000):
        size = self.rng.choice((0, 1, self.rng.randrange(64), self.rng.randrange(most)))
        return self.rng.randrange(SIZE - size + 1), size

    def post(self, number):
        """One random work request of the program: (opcode, offset, size, number)."""
        rng, conn = self.rng, self.conn
        offset, size = self.range()
        flags = verbs.SIGNALED | (verbs.FENCE if rng.random() < .2 else 0)
        kind = rng.choice((wire.SEND, wire.WRITE, wire.READ_REQUEST))
        if kind == wire.SEND:
            conn.post_send(self.source, size, offset, number, flags)
        elif kind == wire.WRITE:
            conn.post_write(self.source, number, offset, size, offset, number, flags)
        else:
            # The Reads of a round have separate places, so that their order does not matter.
            size = min(size, 500)
            offset = 512 * number
            conn.post_read(self.sink, number, number, size, offset, number, flags)
        return kind, offset, size, number

    def from_peer(self):
        """The actions of the peer: its FPDUs, the messages to be received, and the Reads to be answered."""
        rng = self.rng
        tagged, plain, messages, reads = [], [], [], []
        room = 0
        for _ in range(rng.randrange(12)):
            kind = rng.choice((wire.SEND, wire.WRITE, wire.READ_REQUEST))
            offset, size = self.range(1000 if kind == wire.SEND else 4000)
            if kind == wire.WRITE:
                data = rng.randbytes(size)
                self.model[offset:offset + size] = data
                tagged += [wire.write(self.written.rkey, self.written.addr + offset + at, part, last)
                           for at, part, last in pieces(rng, data)]
            elif kind == wire.SEND and room + size <= SIZE:
                data = rng.randbytes(size)
                self.conn.post_recv(self.received, size + rng.choice((0, min(7, SIZE - room - size))), room,
                                    len(messages))
                messages.append((room, data))
                room += size
                plain += [wire.send(self.msn, part, mo=at, last=last) for at, part, last in pieces(rng, data)]
                self.msn += 1
            elif kind == wire.READ_REQUEST:
                plain.append(wire.read_request(self.read_msn, SINK, self.read_msn, size, self.source.rkey,
                                               self.source.addr + offset))
                reads.append((self.read_msn, offset, size))
                self.read_msn += 1
        stream = b"".join(self.conn.raw.tx.fpdu(ulpdu) for ulpdu in merge(rng, tagged, plain))
        return stream, messages, reads

    def round(self):
        rng, conn = self.rng, self.conn
        stream, messages, reads = self.from_peer()
        posted = [self.post(number) for number in range(rng.randrange(15))]
        while stream:
            size = rng.choice((1, 3, 17, 500, 1448, 5000))
            conn.push(stream[:size])
            stream = stream[size:]
        sinks, to_come = {}, list(posted)
        while to_come or reads:
            first, data = conn.message()
            if first.opcode == wire.READ_RESPONSE:
                msn, offset, size = reads.pop(0)
                assert first.to == msn and data == self.source.get(offset, size), first
                continue
            kind, offset, size, number = to_come.pop(0)
            assert first.opcode == kind, first
            if kind == wire.READ_REQUEST:
                read = wire.ReadRequest(data)
                assert (read.size, read.src_stag, read.src_to) == (size, number, number), read
                sinks[offset] = rng.randbytes(size)
                conn.send(*[wire.read_response(read.sink_stag, read.sink_to + at, part, last)
                            for at, part, last in pieces(rng, sinks[offset])])
            else:
                assert data == self.source.get(offset, size), first
                assert kind == wire.SEND or (first.stag, first.to) == (number, offset), first
        for number in range(len(posted)):
            conn.wc(wr_id=number)
        for number, (offset, data) in enumerate(messages):
            wc = conn.wc(wr_id=number, recv=True)
            assert wc.byte_len == len(data) and self.received.get(offset, len(data)) == data, wc
        for offset, data in sinks.items():
            assert self.sink.get(offset, len(data)) == data
        # A Write of the peer is in place when a message behind it has arrived.
        conn.post_recv(self.received, 0, wr_id=99)
        conn.send(wire.send(self.msn))
        self.msn += 1
        conn.wc(wr_id=99, recv=True)
        assert self.written.get() == self.model
        for mr in self.written, self.source, self.sink, self.received:
            mr.intact()

@row("random-traffic", "own",
     "Messages of all kinds in both directions at once, cut anywhere, arrive whole and complete in order",
     OWN)
def traffic(t):
    for seed in range(4):
        exchange = Traffic(t, seed)
        for _ in range(8):
            exchange.round()

def mistaken(rng, ulpdu):
    """A segment with a possible error."""
    bad = bytearray(ulpdu)
    how = rng.randrange(5)
    if how == 0:
        bad[rng.randrange(min(len(bad), 46))] ^= 1 << rng.randrange(8)
    elif how == 1:
        for _ in range(rng.randrange(1, 5)):
            bad[rng.randrange(min(len(bad), 46))] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
    elif how == 2:
        del bad[rng.randrange(len(bad)):]
    elif how == 3:
        at = rng.randrange(len(bad))
        bad[at:at] = rng.randbytes(rng.randrange(1, 40))
    else:
        at = rng.randrange(2, min(len(bad), 40))
        bad[at:at + 4] = rng.choice((bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
    return bytes(bad)

@row("random-mistakes", "own",
     "Whatever is wrong with a header: only permitted memory is touched, and the stream ends",
     OWN, timeout=150)
def mistakes(t):
    rng = random.Random(3)
    mr, buf = t.mr(1000), t.mr(300)
    foreign, closed = t.mr(1000, pd=t.make_pd()), t.mr(1000, access=verbs.LOCAL_WRITE)
    for _ in range(100):
        conn = t.active()
        for wr_id in 1, 2:
            conn.post_recv(buf, wr_id=wr_id)
        conn.post_read(buf, 1, 2, 200, wr_id=3)
        read = wire.ReadRequest(conn.segment().data)
        good = [wire.write(mr.rkey, mr.addr + 100, bytes(400)), wire.send(1, bytes(200)),
                wire.send(1, bytes(100), opcode=wire.SEND_INV, inv=mr.rkey),
                wire.read_request(1, SINK, 0, 900, mr.rkey, mr.addr),
                wire.read_response(read.sink_stag, read.sink_to, bytes(200)),
                wire.terminate(0, 1, 1, 7, b"\0\x2e" + wire.read_request(1, 1, 2, 200, 3, 4))]
        ulpdu = mistaken(rng, rng.choice(good))
        try:
            conn.send(*([wire.write(mr.rkey, mr.addr, b"good")] if rng.random() < .5 else []), ulpdu)
            conn.fin()
        except OSError:
            pass  # the device was faster
        conn.any_end()
        assert {conn.wc(None).wr_id for _ in range(3)} == {1, 2, 3}
        conn.id.destroy()
        for region in mr, buf:
            region.intact()
        for region in foreign, closed:
            region.untouched()
