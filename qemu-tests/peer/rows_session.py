# SPDX-License-Identifier: GPL-2.0
"""Sessions: connections that go on over another TCP connection. What a peer can say about one, true or not."""

import contextlib
import ctypes
import errno
import select
import socket
import struct
import time

import wire
from rows import OWN, row
from rows_zcopy import counter
from target import PATIENCE, Raw, wait_until
from verbs import QP_PATH_MIG_STATE
from wire import CRC, ENHANCED

PARAMS = "resume=1"
RESUMABLE = 0x01
PORT = 290
MIGRATED = 0
RESUME, RESUMED, REFUSED = 1, 2, 3
UNKNOWN, KEY, STALE, POSITIONS, BUSY = 1, 2, 3, 4, 5
OFFER_LEN, ADDRESSES = 116, 4
# More than the FPDU of an echo: the peer has acknowledged what comes before the last one.
BEHIND = 64


# From <linux/socket.h> and <linux/filter.h>: a filter that drops all.
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
DROP = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0))


def freeze(raw):
    """The peer's TCP takes nothing more in, and acknowledges nothing more. What it has is read."""
    program = struct.pack("@HP", 1, ctypes.addressof(DROP))
    raw.sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    raw.rx.feed(raw.buffer)
    raw.buffer = b""
    raw.sock.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        while data := raw.sock.recv(1 << 18):
            raw.rx.feed(data)


def forgotten(raw):
    """The device does not know that TCP connection any more."""
    raw.sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    raw.push(b"hello?")
    assert raw.any_end()[1] == "rst"


def listens():
    """Whether the device listens for requests."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        sockets = [line.split() for line in f.readlines()[1:]]
    return any(address.endswith(f":{PORT:04X}") and state == "0A" for _, address, _, state, *_ in sockets)


def head(kind, session, gen, code=0):
    return b"siwR\x01" + bytes((kind, code, 0)) + session + struct.pack(">I", gen)


class Offer:
    """What the responder says in its reply."""

    def __init__(self, private):
        assert len(private) == OFFER_LEN and private[:8] == b"siwO\x01\0\0\0", private
        assert struct.unpack(">I", private[-4:])[0] == wire.crc32c(private[:-4])
        self.session, self.key = private[8:16], private[16:32]
        self.addresses = [private[at:at + 17] for at in range(44, OFFER_LEN - 4, 17)]


def new_offer(address):
    """The same of a raw responder, at one address."""
    body = b"siwO\x01\0\0\0" + b"session!" + b"the key, 16 long" + bytes(8) + struct.pack(">I", 1)
    body += b"\x04" + socket.inet_aton(address) + bytes(12) + bytes(17 * (ADDRESSES - 1))
    return body + struct.pack(">I", wire.crc32c(body))


class Resumable:
    """A connection with a session whose initiator is raw."""

    def __init__(self, t, **more):
        self.target = t
        self.conn = t.passive(CRC | ENHANCED | RESUMABLE, raw=t.dial(**more))
        self.offer = Offer(self.conn.frame.private)
        # It does not listen before there is a session, and then not at once.
        wait_until(listens, "a listener for requests")

    def dial(self):
        with self.target.setup.inside():
            sock = socket.socket()
        sock.settimeout(PATIENCE)
        sock.connect((self.target.setup.here, PORT))
        raw = Raw(sock)
        self.target.closers.append(raw.close)
        return raw

    def at(self, rx=0, una=0, sent=0):
        """The peer's positions, or wrong by so many bytes."""
        raw = self.conn.raw
        return struct.pack(">QQQ", raw.rx.position + len(raw.rx.buffer) + rx & (1 << 64) - 1,
                           raw.tx.position + una & (1 << 64) - 1, raw.tx.position + sent & (1 << 64) - 1)

    def ask(self, gen, switch=1, session=None, key=None, at=None):
        """Sends a request on a new TCP connection: (Raw, the frame that answers)."""
        raw = self.dial()
        private = head(RESUME, session or self.offer.session, gen) + struct.pack(">I", switch)
        private += (key or self.offer.key) + (at or self.at())
        raw.push(wire.frame(wire.REQUEST, 0, 1, private))
        return raw, raw.frame()

    def refused(self, why, gen, **lie):
        before = counter("resume_refused")
        raw, reply = self.ask(gen, **lie)
        assert reply.flags & wire.REJECT, reply
        assert reply.data == head(REFUSED, lie.get("session", self.offer.session), gen, why), reply
        raw.end()
        assert counter("resume_refused") == before + 1

    def resume(self, gen, switch=1):
        """The connection goes on over another TCP connection. Returns the old one."""
        freeze(self.conn.raw)
        raw, reply = self.ask(gen, switch)
        assert not reply.flags & wire.REJECT, reply
        assert reply.data[:20] == head(RESUMED, self.offer.session, gen), reply
        rx, _, sent = struct.unpack(">QQQ", reply.data[20:])
        old = self.conn.raw
        assert rx == old.tx.position, f"{rx} bytes consumed, not {old.tx.position}"
        assert sent >= old.rx.position + len(old.rx.buffer), reply
        raw.tx, raw.rx = old.tx, old.rx
        id_, msn = self.conn.id, self.conn.msn
        self.conn = type(self.conn)(id_, raw, self.conn.frame)
        self.conn.msn = msn
        return old

    def moved(self):
        assert self.target.async_event() == "PATH_MIG"


@contextlib.contextmanager
def counted(name, times):
    before = counter(name)
    yield
    assert counter(name) - before == times, f"{name}: {counter(name) - before}, not {times}"


@row("session-resume", OWN, "The peer resumes a session: the queue pair goes on, and the old TCP connection is reset", OWN, params=PARAMS)
def session_resume(t):
    s = Resumable(t)
    s.conn.echo()
    with counted("resumes", 3):
        for turn in range(1, 4):
            old = s.resume(turn, turn)
            s.moved()
            s.conn.echo()
            forgotten(old)


@row("session-cut", OWN, "One TCP connection ends within an FPDU, the next goes on there, in both directions", OWN, params=PARAMS)
def session_cut(t):
    s, mr = Resumable(t, rcvbuf=4096), t.mr(65536)
    text = bytes(range(256)) * 256
    mr.put(text)
    # More than the peer has room for.
    s.conn.post_send(mr, wr_id=1)
    s.conn.raw.rx.feed(s.conn.raw.exactly(1))
    s.resume(1)
    assert s.conn.message()[1] == text
    s.conn.wc(wr_id=1)
    mr.put(bytes(1000))
    s.conn.post_recv(mr, wr_id=2)
    fpdu = s.conn.raw.tx.fpdu(wire.send(s.conn.msn, text[:1000]))
    s.conn.msn += 1
    s.conn.push(fpdu[:333])
    s.conn.raw.until_acknowledged()
    # This is how far the peer has got.
    s.conn.raw.tx.position -= len(fpdu) - 333
    s.resume(2, 2)
    s.conn.raw.tx.position += len(fpdu) - 333
    s.conn.push(fpdu[333:])
    assert s.conn.wc(wr_id=2).byte_len == 1000 and mr.get(0, 1000) == text[:1000]
    s.conn.echo()


@row("session-lies", OWN, "Wrong number, key, age or position: refused, counted, and the connection goes on as it is", OWN, params=PARAMS)
def session_lies(t):
    s = Resumable(t)
    s.conn.echo()
    s.conn.echo()
    with counted("resumes", 0):
        s.refused(UNKNOWN, 1, session=bytes(8))
        s.refused(KEY, 1, key=bytes(16))
        s.refused(KEY, 1, key=s.offer.key[:-1] + bytes((s.offer.key[-1] ^ 1,)))
        s.refused(STALE, 0)
        # It has more than was sent, forgets what it has acknowledged, or has sent less than came.
        s.refused(POSITIONS, 1, at=s.at(rx=1))
        s.refused(POSITIONS, 1, at=s.at(rx=-BEHIND))
        s.refused(POSITIONS, 1, at=s.at(rx=1 << 63))
        s.refused(POSITIONS, 1, at=s.at(sent=-1))
        s.conn.echo()
    # None of them has made a true request stale.
    s.resume(1)
    s.moved()
    s.conn.echo()
    with counted("resumes", 0):
        s.refused(STALE, 1)
        s.refused(STALE, 1, switch=2)
        s.conn.echo()


@row("session-gap", OWN, "A peer that cannot send again what is missing is refused, and may come back with another request", OWN, params=PARAMS)
def session_gap(t):
    s = Resumable(t)
    s.conn.echo()
    s.refused(POSITIONS, 1, at=s.at(una=1, sent=1))
    s.resume(2)
    s.moved()
    s.conn.echo()


@row("session-lost-reply", OWN, "The peer asks again because the reply is lost: it is the same change of the path", OWN, params=PARAMS)
def session_lost_reply(t):
    s = Resumable(t)
    with counted("resumes", 1):
        lost, _ = s.ask(1)
        s.moved()
        s.resume(2)
        s.conn.echo()
    assert lost.any_end()[1] == "rst"


@row("session-garbage", OWN, "What is no request for a session, at the port for them, is refused, and disturbs nobody", OWN, params=PARAMS)
def session_garbage(t):
    s = Resumable(t)
    good = head(RESUME, s.offer.session, 1) + struct.pack(">I", 1) + s.offer.key + s.at()
    silent = s.dial()
    with counted("resumes", 0):
        for bad in (good[:-1], good + b"\0", good[:4] + b"\x02" + good[5:], good[:5] + b"\x02" + good[6:], b""):
            raw = s.dial()
            raw.push(wire.frame(wire.REQUEST, 0, 1, bad))
            raw.any_end()
        raw = s.dial()
        raw.push(wire.frame(wire.REPLY, 0, 1, good))
        raw.any_end()
        # Within a request.
        raw = s.dial()
        raw.push(wire.frame(wire.REQUEST, 0, 1, good)[:40])
        raw.close()
        s.conn.echo()
    s.resume(1)
    s.moved()
    s.conn.echo()
    silent.close()


@row("session-flood", OWN, "A hundred requests with a wrong key at a time do not stop the connection", OWN, params=PARAMS)
def session_flood(t):
    s = Resumable(t)
    request = head(RESUME, s.offer.session, 9) + struct.pack(">I", 1) + bytes(16) + s.at()
    raws = [s.dial() for _ in range(100)]
    for raw in raws:
        raw.push(wire.frame(wire.REQUEST, 0, 1, request))
        s.conn.echo()
    for raw in raws:
        # Later ones take the place of those that wait.
        raw.any_end()
    s.resume(1)
    s.conn.echo()


@row("session-unasked", OWN, "A peer that does not ask for a session is offered none", OWN, params=PARAMS)
def session_unasked(t):
    for flags in CRC | ENHANCED, CRC | ENHANCED | 0x0e:
        assert t.passive(flags).frame.private == b""


class Calling:
    """A connection with a session whose responder is raw. The program asks for another path."""

    def __init__(self, t):
        self.target = t
        self.offer = Offer(new_offer(t.setup.there))
        with t.setup.inside():
            self.door = socket.create_server((t.setup.there, PORT))
        self.door.settimeout(PATIENCE)
        t.closers.append(self.door.close)
        self.conn = t.active(data=wire.depths(16, 16) + new_offer(t.setup.there))
        assert self.conn.frame.flags & RESUMABLE, self.conn.frame
        self.conn.send(wire.write(1, 0))
        self.conn.echo()
        self.conn.echo()
        self.since = time.monotonic()
        self.conn.modify(QP_PATH_MIG_STATE, path_mig_state=MIGRATED)

    def asked(self, gen, switch=1):
        """The device's request: (Raw, its positions)."""
        raw = Raw(self.door.accept()[0])
        self.target.closers.append(raw.close)
        frame = raw.frame()
        assert frame.key == wire.REQUEST, frame
        want = head(RESUME, self.offer.session, gen) + struct.pack(">I", switch) + self.offer.key
        assert frame.data[:-24] == want, frame
        rx, una, sent = struct.unpack(">QQQ", frame.data[-24:])
        old = self.conn.raw
        assert (rx, sent) == (old.tx.position, old.rx.position) and una <= sent, (rx, una, sent)
        return raw

    def answer(self, raw, gen, session=None, rx=0, una=0, sent=0):
        old = self.conn.raw
        at = [n & (1 << 64) - 1 for n in (old.rx.position + rx, old.tx.position + una, old.tx.position + sent)]
        private = head(RESUMED, session or self.offer.session, gen) + struct.pack(">QQQ", *at)
        raw.push(wire.frame(wire.REPLY, 0, 1, private))

    def goes_on(self, gen):
        raw = self.asked(gen)
        self.answer(raw, gen)
        raw.tx, raw.rx = self.conn.raw.tx, self.conn.raw.rx
        msn, old = self.conn.msn, self.conn.raw
        self.conn = type(self.conn)(self.conn.id, raw, self.conn.frame)
        self.conn.msn = msn
        assert self.target.async_event() == "PATH_MIG"
        self.conn.echo()
        assert old.end() == "rst"

    def is_lost(self):
        # An attempt to connect has a second (CONNECT_MS); on a slower machine the device may have tried again.
        in_time = time.monotonic() - self.since < 1
        event = self.target.async_event()
        assert event == "PATH_MIG_ERR", event
        self.conn.event("DISCONNECTED", status=-errno.ETIMEDOUT)
        # It has not asked again, for as long as it may look for a path.
        assert not in_time or not select.select([self.door], [], [], 0)[0], "another request"


@row("session-call", OWN, "The device resumes a session when its program asks for another path", OWN, params=PARAMS)
def session_call(t):
    with counted("resumes", 1), counted("resume_failures", 0):
        Calling(t).goes_on(1)


@row("session-call-again", OWN, "No reply, garbage, another time: the device asks again, with a higher number", OWN, params=PARAMS)
def session_call_again(t):
    s = Calling(t)
    with counted("resumes", 1), counted("resume_failures", 0):
        s.asked(1).close()
        s.asked(2).reset()
        s.asked(3).push(wire.frame(wire.REPLY, 0, 1, b"what?"))
        raw = s.asked(4)
        raw.push(wire.frame(wire.REPLY, wire.REJECT, 1, b"what?"))
        raw = s.asked(5)
        raw.push(wire.frame(wire.REPLY, wire.REJECT, 1, head(REFUSED, s.offer.session, 5, BUSY)))
        raw = s.asked(6)
        raw.push(wire.frame(wire.REPLY, wire.REJECT, 1, head(REFUSED, s.offer.session, 6, STALE)))
        s.goes_on(7)


@row("session-call-refused", OWN, "The peer knows no such session or key: PATH_MIG_ERR, and the connection ends", OWN, params=PARAMS)
def session_call_refused(t):
    for why in UNKNOWN, KEY, POSITIONS, 77:
        s = Calling(t)
        with counted("resume_failures", 1):
            raw = s.asked(1)
            raw.push(wire.frame(wire.REPLY, wire.REJECT, 1, head(REFUSED, s.offer.session, 1, why)))
            s.is_lost()
        s.door.close()


@row("session-call-lies", OWN, "The peer agrees to another session, or has positions that cannot be: PATH_MIG_ERR, and the connection ends",
     OWN, params=PARAMS)
def session_call_lies(t):
    for lie in ({"session": bytes(8)}, {"gen": 2}, {"rx": 1}, {"rx": 1 << 63}, {"rx": -BEHIND}, {"sent": -1}, {"una": 1, "sent": 1}):
        s = Calling(t)
        with counted("resume_failures", 1), counted("resumes", 0):
            s.answer(s.asked(1), **{"gen": 1, **lie})
            s.is_lost()
        s.door.close()
