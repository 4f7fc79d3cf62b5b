# SPDX-License-Identifier: GPL-2.0
"""The device under test and its raw TCP peer in one process: verbs objects on the device, sockets in the peer's
network namespace. Every wait has a time limit; exceeding it is an assertion that names what was missing."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import time

import verbs
import wire
from verbs import (LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, SIGNALED, byref, cast, check, ibv, rdma)

# Seconds: longer than any time-out of the device, except those for an answer of the program and of
# TCP.
PATIENCE = int(os.environ.get("PATIENCE", 20))
SIOCOUTQ = 0x5411  # octets not acknowledged yet
ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ


class Setup:
    """The network: the device's netdev has the address `here`, in this process's namespace. The peer has `there`,
    in the namespace at the path `netns`, on the netdev `far`."""

    def __init__(self, here, there, netns, far):
        self.here, self.there, self.netns, self.far = here, there, netns, far

    @contextlib.contextmanager
    def inside(self):
        """In the peer's namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        away = os.open(self.netns, os.O_RDONLY)
        os.setns(away, os.CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(home, os.CLONE_NEWNET)
            os.close(home)
            os.close(away)


def wait_until(true, what):
    """Polls until `true()`; `what` names what is waited for."""
    limit = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < limit, f"not within {PATIENCE} s: {what}"
        time.sleep(0.001)


class Raw:
    """The peer's end of a connection: a socket, and the framing of FPDUs in either direction."""

    def __init__(self, sock):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.tx, self.rx = wire.Framer(), wire.Deframer()

    def framing(self, crc=True, tx_markers=False, rx_markers=False):
        self.tx, self.rx = wire.Framer(crc, tx_markers), wire.Deframer(crc, rx_markers)

    # Bytes

    def push(self, data):
        self.sock.settimeout(PATIENCE)
        self.sock.sendall(data)

    def pull(self, timeout=PATIENCE):
        """The data that has arrived, b"" at an orderly end, None after a reset."""
        if self.buffer:
            data, self.buffer = self.buffer, b""
            return data
        self.sock.settimeout(timeout)
        try:
            return self.sock.recv(1 << 18)
        except (ConnectionResetError, BrokenPipeError):
            return None
        except TimeoutError:
            raise AssertionError(f"nothing from the device within {timeout:.0f} s") from None

    def exactly(self, count, what="bytes", timeout=PATIENCE):
        data = b""
        while len(data) < count:
            more = self.pull(timeout)
            assert more, f"{what}: {'reset' if more is None else 'closed'} after {len(data)} of {count} bytes"
            data += more
        self.buffer = data[count:] + self.buffer
        return data[:count]

    def frame(self, timeout=PATIENCE):
        """An MPA start-up frame."""
        head = self.exactly(20, "start-up frame", timeout)
        length = struct.unpack(">H", head[18:])[0]
        assert head[:16] in (wire.REQUEST, wire.REPLY) and length <= 512, f"no start-up frame: {head!r}"
        return wire.Frame(head, self.exactly(length, "private data", timeout))

    def silent(self, seconds=0.2):
        """Neither data nor an end comes for that long."""
        # What came together with an earlier segment is there already.
        here = bytes(self.rx.buffer) or self.buffer
        assert not here, f"expected silence, got {here!r}"
        assert not select.select([self.sock], [], [], seconds)[0], f"expected silence, got {self.pull()!r}"

    def end(self, timeout=PATIENCE):
        """The device ends the connection without sending anything: "fin" or "rst"."""
        data = self.pull(timeout)
        assert not data, f"expected the end of the connection, got {data.hex()}"
        return "rst" if data is None else "fin"

    def any_end(self, timeout=PATIENCE):
        """The device ends the connection, perhaps after data: (data, "fin" or "rst")."""
        said = b""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            data = self.pull(timeout)
            if not data:
                return said, "rst" if data is None else "fin"
            said += data
        raise AssertionError("the device does not end the connection")

    def until_end(self, timeout=PATIENCE):
        """Reads all data up to the end of the connection; segment() then goes through it."""
        self.rx.feed(self.any_end(timeout)[0])

    def fin(self):
        with contextlib.suppress(OSError):  # reset by the device
            self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def until_acknowledged(self):
        """Waits until all that was pushed has arrived at the device, separate from what follows."""
        limit = time.monotonic() + PATIENCE
        while struct.unpack("i", fcntl.ioctl(self.sock, SIOCOUTQ, bytes(4)))[0]:
            assert time.monotonic() < limit, "the device's TCP does not acknowledge"
            time.sleep(0.0002)

    # FPDUs

    def send(self, *ulpdus, **wrong):
        """Sends each ULPDU in an FPDU, all in one piece; `wrong` as for wire.Framer.fpdu."""
        self.push(b"".join(self.tx.fpdu(ulpdu, **wrong) for ulpdu in ulpdus))

    def segment(self, timeout=PATIENCE):
        """The next segment of the device; None at the end of the connection."""
        limit = time.monotonic() + timeout
        while (ulpdu := self.rx.next()) is None:
            left = limit - time.monotonic()
            assert left > 0, f"no whole FPDU within {timeout:.0f} s"
            data = self.pull(left)
            if not data:
                assert not self.rx.buffer, f"the connection ends within an FPDU: {self.rx.buffer.hex()}"
                return None
            self.rx.feed(data)
        return wire.Segment(ulpdu)

    def message(self, timeout=PATIENCE):
        """The next message of the device, of any number of segments: (first segment, data)."""
        first = segment = self.segment(timeout)
        data = b""
        while True:
            assert segment, "the connection ends within a message"
            assert segment.opcode == first.opcode and segment.tagged == first.tagged, f"{segment} within {first}"
            at = segment.to - first.to if segment.tagged else segment.mo
            assert at == len(data), f"{segment} is out of place: {len(data)} bytes before it"
            data += segment.data
            if segment.last:
                return first, data
            segment = self.segment(timeout)

    def terminate(self, code=None, timeout=PATIENCE):
        """The device sends a Terminate, with that (layer, etype, code) if given, and then ends the connection."""
        segment = self.segment(timeout)
        assert segment, "the connection ends without a Terminate"
        assert segment.opcode == wire.TERMINATE, f"no Terminate but {segment}"
        assert (segment.tagged, segment.last, segment.qn, segment.msn, segment.mo, segment.inv) == \
            (False, True, 2, 1, 0, 0), f"a Terminate with a wrong header: {segment}"
        term = wire.Terminate(segment.data)
        assert code is None or term.code == tuple(code), f"Terminate {term}, not {code}"
        more = self.segment(timeout)
        assert more is None, f"{more} after the Terminate"
        return term

    def no_terminate(self, timeout=PATIENCE):
        """The device ends the connection without a Terminate."""
        segment = self.segment(timeout)
        assert segment is None, f"expected the end of the connection, got {segment}"


class Mr:
    """A registered buffer with guard bytes before and behind it, which nothing may touch."""
    GUARD = 64

    def __init__(self, target, size, access, pd, fill):
        self.size = size
        self.memory = mmap.mmap(-1, size + 2 * self.GUARD)
        self.memory[:] = bytes([0xa5]) * len(self.memory)
        self.memory[self.GUARD:self.GUARD + size] = bytes([fill]) * size
        self._view = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.addr = ctypes.addressof(self._view) + self.GUARD
        self.mr = check(ibv.ibv_reg_mr(pd, self.addr, max(size, 1), access))
        self.lkey, self.rkey = self.mr.contents.lkey, self.mr.contents.rkey
        self.fill = fill
        target.closers.append(self.dereg)

    def dereg(self):
        if self.mr:
            mr, self.mr = self.mr, None
            check(ibv.ibv_dereg_mr(mr))

    def change(self, other):
        """Gives the region the memory of another one."""
        failed = ibv.ibv_rereg_mr(self.mr, verbs.REREG_TRANSLATION, None, other.addr, other.size, 0)
        check(-1 if failed else 0)  # its own codes only say how
        self.lkey, self.rkey = self.mr.contents.lkey, self.mr.contents.rkey

    def get(self, offset=0, length=None):
        length = self.size - offset if length is None else length
        return self.memory[self.GUARD + offset:self.GUARD + offset + length]

    def put(self, data, offset=0):
        self.memory[self.GUARD + offset:self.GUARD + offset + len(data)] = data

    def intact(self):
        """The guard bytes are as they were."""
        guard = bytes([0xa5]) * self.GUARD
        assert self.memory[:self.GUARD] == guard, "bytes were placed before the region"
        assert self.memory[-self.GUARD:] == guard, "bytes were placed behind the region"

    def untouched(self):
        """No byte was placed, in the region or beside it."""
        self.intact()
        got = self.get()
        if got != bytes([self.fill]) * self.size:
            at = next(i for i, byte in enumerate(got) if byte != self.fill)
            raise AssertionError(f"a byte was placed at offset {at}")


def shown(rkey):
    """What debugfs shows of an STag."""
    with open("/sys/kernel/debug/siw/siw_cv/tpt", encoding="ascii") as f:
        names = f.readline().split()
        lines = [dict(zip(names, line.split())) for line in f]
    found = [line for line in lines if int(line["stag"], 16) == rkey]
    assert len(found) == 1, lines
    return found[0]


class Window:
    """A memory window of type 1 or 2, with the key that it has got last."""

    def __init__(self, target, kind, pd):
        self.target, self.kind = target, kind
        self.mw = check(verbs.alloc_mw_t(target.ops[verbs.ALLOC_MW])(pd, kind))
        self.rkey = self.mw.contents.rkey
        target.closers.append(self.dealloc)

    def dealloc(self):
        if self.mw:
            mw, self.mw = self.mw, None
            check(verbs.dealloc_mw_t(self.target.ops[verbs.DEALLOC_MW])(mw))

    def post(self, id_, mr, offset=0, length=0, access=verbs.REMOTE_WRITE, wr_id=0, flags=SIGNALED, addr=None, key=1):
        """Posts a bind to a part of a region; the key of type 2 grows by `key`."""
        info = verbs.BindInfo(cast(mr.mr, ctypes.c_void_p) if mr else None,
                              (mr.addr + offset if mr else 0) if addr is None else addr, length, access)
        qp = cast(id_.qp, ctypes.c_void_p)
        if self.kind == 1:
            bind = verbs.MwBind(wr_id, flags, info)
            check(verbs.bind_mw_t(self.target.ops[verbs.BIND_MW])(qp, self.mw, byref(bind)))
            self.rkey = self.mw.contents.rkey
            return
        self.rkey = self.rkey & ~0xff | (self.rkey + key) & 0xff
        wr = verbs.SendWr(wr_id, None, None, 0, verbs.WR_BIND_MW, flags)
        wr.bind_mw = verbs._BindMw(cast(self.mw, ctypes.c_void_p), self.rkey, info)
        bad = ctypes.c_void_p()
        check(id_._post_send(qp, byref(wr), byref(bad)))

    def bind(self, conn, mr, *args, **more):
        """Binds, and awaits that."""
        self.post(conn.id, mr, *args, wr_id=0xb17d, **more)
        wc = conn.wc(wr_id=0xb17d)
        assert wc.opcode == verbs.WC_BIND_MW, wc
        return self


class CmEvent:
    def __init__(self, event):
        struct_ = event.contents
        self.name = verbs.CM_EVENT[struct_.event]
        self.status = struct_.status
        self.key = ctypes.addressof(struct_.id.contents)
        # struct_.id itself lives in the event, which is about to be freed.
        self.id = ctypes.pointer(verbs.CmIdStruct.from_address(self.key))
        self.listen_key = ctypes.addressof(struct_.listen_id.contents) if struct_.listen_id else None
        param = struct_.param
        self.private = ctypes.string_at(param.private_data, param.private_data_len) if param.private_data else b""
        self.responder_resources, self.initiator_depth = param.responder_resources, param.initiator_depth

    def __repr__(self):
        return f"CmEvent({self.name}, status {self.status}, private data {self.private.hex()})"


class Cq:
    def __init__(self, target, size):
        self.target = target
        self.channel = check(ibv.ibv_create_comp_channel(target.context))
        self.cq = check(ibv.ibv_create_cq(target.context, size, None, self.channel, 0))
        self.unread = []
        slot = target.ops
        self._poll = verbs.poll_cq_t(slot[verbs.POLL_CQ])
        self._arm = verbs.req_notify_t(slot[verbs.REQ_NOTIFY_CQ])
        target.closers.append(self._close)

    def _close(self):
        check(ibv.ibv_destroy_cq(self.cq))
        check(ibv.ibv_destroy_comp_channel(self.channel))

    def poll(self):
        """The completions in the queue."""
        found = []
        while True:
            wcs = (verbs.Wc * 16)()
            count = self._poll(self.cq, 16, wcs)
            assert count >= 0, f"ibv_poll_cq: {count}"
            found += list(wcs[:count])
            if count < 16:
                return found

    def arm(self, solicited=False):
        check(self._arm(self.cq, int(solicited)))

    def event(self, timeout=PATIENCE):
        """A completion event comes within that time."""
        if not select.select([self.channel.contents.fd], [], [], timeout)[0]:
            return False
        cq, context = ctypes.c_void_p(), ctypes.c_void_p()
        check(ibv.ibv_get_cq_event(self.channel, byref(cq), byref(context)))
        ibv.ibv_ack_cq_events(self.cq, 1)
        return True

    def wc(self, qp_num=None, timeout=PATIENCE):
        """The next completion, of that QP if given."""
        limit = time.monotonic() + timeout
        while True:
            self.unread += self.poll()
            for wc in self.unread:
                if qp_num is None or wc.qp_num == qp_num:
                    self.unread.remove(wc)
                    return wc
            self.arm()
            if more := self.poll():  # what came before it was armed
                self.unread += more
                continue
            left = limit - time.monotonic()
            assert left > 0 and self.event(left), f"no completion within {timeout:.0f} s"

    def none(self, qp_num=None, seconds=0.1):
        """No completion comes for that long."""
        try:
            wc = self.wc(qp_num, seconds)
        except AssertionError:
            return
        raise AssertionError(f"unexpected completion {wc}")


class Id:
    """An rdma_cm_id and its QP."""

    def __init__(self, target, pointer):
        self.target, self.id = target, pointer
        self.key = ctypes.addressof(pointer.contents)
        self.qp = None
        target.closers.append(self.destroy)

    def make_qp(self, pd=None, srq=None, send_wr=32, recv_wr=32, send_sge=4, recv_sge=4, inline=64, sig_all=0,
                access=None, send_cq=None, recv_cq=None):
        t = self.target
        self.cq = send_cq or t.cq
        self.recv_cq = recv_cq or t.cq
        self.srq = srq
        attr = verbs.QpInitAttr(None, self.cq.cq, self.recv_cq.cq, srq,
                                verbs.QpCap(send_wr, 0 if srq else recv_wr, send_sge, recv_sge, inline), 2, sig_all)
        check(rdma.rdma_create_qp(self.id, pd or t.pd, byref(attr)))
        self.qp = ctypes.pointer(self.id.contents.qp.contents)
        self.qp_num = self.qp.contents.qp_num
        self._post_send = verbs.post_send_t(t.ops[verbs.POST_SEND])
        self._post_recv = verbs.post_recv_t(t.ops[verbs.POST_SRQ_RECV if srq else verbs.POST_RECV])
        if access is not None:
            self.modify(verbs.QP_ACCESS, qp_access_flags=access)
        return self

    def modify(self, mask, **fields):
        attr = verbs.QpAttr()
        for name, value in fields.items():
            setattr(attr, name, value)
        check(ibv.ibv_modify_qp(self.qp, byref(attr), mask))

    def query(self):
        attr, init = verbs.QpAttr(), verbs.QpInitAttr()
        check(ibv.ibv_query_qp(self.qp, byref(attr), verbs.QP_STATE | verbs.QP_ACCESS, byref(init)))
        return attr

    def _sges(self, sges):
        return (verbs.Sge * max(len(sges), 1))(*[verbs.Sge(*sge) for sge in sges])

    def post_recv(self, mr=None, length=None, offset=0, wr_id=0, sges=None):
        """`sges`: list of (address, length, lkey) instead of a part of `mr`."""
        if sges is None:
            sges = [(mr.addr + offset, mr.size - offset if length is None else length, mr.lkey)] if mr else []
        array = self._sges(sges)
        wr = verbs.RecvWr(wr_id, None, array, len(sges))
        bad = ctypes.c_void_p()
        check(self._post_recv(self.srq or cast(self.qp, ctypes.c_void_p), byref(wr), byref(bad)))

    def post(self, opcode, mr=None, length=None, offset=0, wr_id=0, flags=SIGNALED, rkey=0, remote=0, sges=None,
             invalidate=0, atomic=None):
        """A work request for the send queue; `opcode` is one of verbs.WR_*. `invalidate` is also the place of immediate
        data; `atomic`: the operands, (add,) or (compare, swap)."""
        if sges is None:
            sges = [(mr.addr + offset, mr.size - offset if length is None else length, mr.lkey)] if mr else []
        array = self._sges(sges)
        wr = verbs.SendWr(wr_id, None, array, len(sges), opcode, flags, invalidate)
        wr.wr.rdma.remote_addr, wr.wr.rdma.rkey = remote, rkey
        if atomic:
            wr.wr.atomic.rkey = rkey
            wr.wr.atomic.compare_add, wr.wr.atomic.swap = (*atomic, 0)[:2]
        bad = ctypes.c_void_p()
        check(self._post_send(cast(self.qp, ctypes.c_void_p), byref(wr), byref(bad)))

    def post_send(self, mr=None, length=None, offset=0, wr_id=0, flags=SIGNALED, **more):
        self.post(verbs.WR_SEND, mr, length, offset, wr_id, flags, **more)

    def post_write(self, mr, rkey, remote, length=None, offset=0, wr_id=0, flags=SIGNALED, **more):
        self.post(verbs.WR_WRITE, mr, length, offset, wr_id, flags, rkey, remote, **more)

    def post_read(self, mr, rkey, remote, length=None, offset=0, wr_id=0, flags=SIGNALED, **more):
        self.post(verbs.WR_READ, mr, length, offset, wr_id, flags, rkey, remote, **more)

    def wc(self, status="SUCCESS", wr_id=None, timeout=PATIENCE, recv=False):
        """The next completion of this QP; it must have that status (None: any)."""
        wc = (self.recv_cq if recv else self.cq).wc(self.qp_num, timeout)
        assert status is None or wc.status == status, f"{wc}, not {status}"
        assert wr_id is None or wc.wr_id == wr_id, f"{wc}, not wr_id {wr_id}"
        return wc

    def connect(self, ird=16, ord_=16, private=b""):
        buffer = ctypes.create_string_buffer(private, max(len(private), 1))
        param = verbs.ConnParam(cast(buffer, ctypes.c_void_p), len(private), ird, ord_, 0, 7, 7, 0, 0)
        check(rdma.rdma_connect(self.id, byref(param)))

    def accept(self, ird=16, ord_=16, private=b""):
        buffer = ctypes.create_string_buffer(private, max(len(private), 1))
        param = verbs.ConnParam(cast(buffer, ctypes.c_void_p), len(private), ird, ord_, 0, 7, 7, 0, 0)
        check(rdma.rdma_accept(self.id, byref(param)))

    def reject(self, private=b""):
        check(rdma.rdma_reject(self.id, private, len(private)))

    def disconnect(self):
        check(rdma.rdma_disconnect(self.id))

    def event(self, *names, status=None, timeout=PATIENCE):
        """The next CM event of this id; it must be one of `names` and have that status, if given."""
        return self.target.event(self.key, *names, status=status, timeout=timeout)

    def no_event(self, seconds=0.2):
        self.target.no_event(self.key, seconds)

    def destroy_qp(self):
        if self.qp:
            rdma.rdma_destroy_qp(self.id)
            self.qp = None

    def destroy(self):
        if self.id:
            self.destroy_qp()
            self.target.forget(self.key)
            pointer, self.id = self.id, None
            check(rdma.rdma_destroy_id(pointer))


class Conn:
    """A connection that is up: `id` on the device (with QP), `raw` the peer's end."""

    def __init__(self, id_, raw, frame):
        self.id, self.raw, self.frame = id_, raw, frame
        self.target = id_.target
        self.msn = 1  # of the next Send
        # Shortcuts for the names that rows use most.
        for name in "post_recv post post_send post_write post_read wc modify query event disconnect".split():
            setattr(self, name, getattr(id_, name))
        for name in "send push segment message terminate no_terminate silent end any_end until_end fin reset".split():
            setattr(self, name, getattr(raw, name))

    def echo(self, text=b"are you well?"):
        """A message in each direction: the connection works."""
        self.echo_with(self.target.mr(256), text)

    def echo_with(self, mr, text=b"are you well?"):
        self.post_recv(mr, len(text), wr_id=0xec0)
        self.send(wire.send(self.msn, text))
        self.msn += 1
        wc = self.wc(wr_id=0xec0)
        assert wc.byte_len == len(text) and mr.get(0, len(text)) == text, f"{wc}, {mr.get(0, len(text))!r}"
        self.post_send(mr, len(text), wr_id=0xec1)
        segment, data = self.message()
        assert segment.opcode == wire.SEND and data == text, f"{segment}, {data!r}"
        self.wc(wr_id=0xec1)


class Target:
    """The opened device. close() destroys everything made through it."""

    def __init__(self, setup):
        self.setup = setup
        self.closers = []
        self.events = []
        self._listener = None
        self.channel = check(rdma.rdma_create_event_channel())
        self._anchor = self._make_id()
        check(rdma.rdma_bind_addr(self._anchor, verbs.sockaddr(setup.here, 0)))
        self.context = cast(self._anchor.contents.verbs, ctypes.c_void_p)
        self.ops = self._anchor.contents.verbs.contents.ops.slot
        self.async_fd = self._anchor.contents.verbs.contents.async_fd
        self.pd = self.make_pd()
        self.cq = Cq(self, 512)

    def close(self):
        """Destroys everything, in the reverse order of making."""
        while self.closers:
            self.closers.pop()()
        check(rdma.rdma_destroy_id(self._anchor))
        rdma.rdma_destroy_event_channel(self.channel)

    # Objects

    def make_pd(self):
        pd = check(ibv.ibv_alloc_pd(self.context))
        self.closers.append(lambda: check(ibv.ibv_dealloc_pd(pd)))
        return pd

    def make_cq(self, size=64):
        return Cq(self, size)

    def make_srq(self, max_wr=16, max_sge=2, pd=None):
        attr = verbs.SrqInitAttr(None, max_wr, max_sge, 0)
        srq = check(ibv.ibv_create_srq(pd or self.pd, byref(attr)))
        self.closers.append(lambda: check(ibv.ibv_destroy_srq(srq)))
        return srq

    def srq_limit(self, srq, limit):
        attr = (ctypes.c_uint32 * 3)(0, 0, limit)
        check(ibv.ibv_modify_srq(srq, attr, 2))

    def mr(self, size=4096, access=ALL, pd=None, fill=0):
        return Mr(self, size, access, pd or self.pd, fill)

    def window(self, kind, pd=None):
        return Window(self, kind, pd or self.pd)

    def _make_id(self):
        pointer = ctypes.POINTER(verbs.CmIdStruct)()
        check(rdma.rdma_create_id(self.channel, byref(pointer), None, 0x106))
        return pointer

    def make_id(self):
        return Id(self, self._make_id())

    def async_event(self, timeout=PATIENCE):
        """The name of the next asynchronous event."""
        assert select.select([self.async_fd], [], [], timeout)[0], f"no asynchronous event within {timeout:.0f} s"
        event = verbs.AsyncEvent()
        check(ibv.ibv_get_async_event(self.context, byref(event)))
        ibv.ibv_ack_async_event(byref(event))
        return verbs.ASYNC_EVENT[event.event_type]

    # CM events

    def _get(self, timeout):
        if not select.select([self.channel.contents.fd], [], [], timeout)[0]:
            return False
        pointer = ctypes.POINTER(verbs.CmEventStruct)()
        check(rdma.rdma_get_cm_event(self.channel, byref(pointer)))
        self.events.append(CmEvent(pointer))
        check(rdma.rdma_ack_cm_event(pointer))
        return True

    def _find(self, key):
        for event in self.events:
            # A request belongs to the listener; its own id is new.
            if key in ((event.listen_key,) if event.name == "CONNECT_REQUEST" else (event.key,)):
                self.events.remove(event)
                return event
        return None

    def event(self, key, *names, status=None, timeout=PATIENCE):
        limit = time.monotonic() + timeout
        while not (event := self._find(key)):
            left = limit - time.monotonic()
            assert left > 0 and (self._get(left) or left < 0.01), f"no CM event {'/'.join(names)} within {timeout:.0f} s"
        assert not names or event.name in names, f"{event}, not {'/'.join(names)}"
        assert status is None or event.status == status, f"{event}, not status {status}"
        return event

    def no_event(self, key, seconds=0.2):
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            self._get(left)
        event = self._find(key)
        assert not event, f"unexpected {event}"

    def forget(self, key):
        while event := self._find(key):
            if event.name == "CONNECT_REQUEST":
                check(rdma.rdma_destroy_id(event.id))

    # Connections

    @property
    def listener(self):
        """A listening id; its port is self.port."""
        if not self._listener:
            self._listener = self.make_id()
            check(rdma.rdma_bind_addr(self._listener.id, verbs.sockaddr(self.setup.here, 0)))
            check(rdma.rdma_listen(self._listener.id, 64))
            self.port = socket.ntohs(rdma.rdma_get_src_port(self._listener.id))
        return self._listener

    def unlisten(self):
        """Destroys the listener, with the requests that nobody took."""
        self.listener.destroy()
        self._listener = None

    def dial(self, mss=None, source=None, rcvbuf=None):
        """A raw connection to the listener, with that MSS, from that address of the peer, with that receive buffer."""
        assert self.listener
        with self.setup.inside():
            sock = socket.socket()
        if mss:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
        if source:
            sock.bind((source, 0))
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(PATIENCE)
        sock.connect((self.setup.here, self.port))
        raw = Raw(sock)
        self.closers.append(raw.close)
        return raw

    def request(self, timeout=PATIENCE):
        """The next connection request of the listener: (event, its Id)."""
        event = self.event(self.listener.key, "CONNECT_REQUEST", timeout=timeout)
        return event, Id(self, event.id)

    def no_request(self, seconds=0.2):
        self.no_event(self.listener.key, seconds)

    def passive(self, flags=wire.CRC | wire.ENHANCED, revision=2, data=None, ird=16, ord_=16, peer_ird=16, peer_ord=16,
                private=b"", before_accept=None, behind=b"", raw=None, **qp):
        """A raw peer has connected to an accepting program. `flags`, `revision`, `data` (or `peer_ird`, `peer_ord`):
        contents of the peer's request; `ird`, `ord_`, `private`: arguments of accept; `before_accept(id)`: called when
        there is a QP, to post receives; `behind`: bytes right behind the request; `raw`: an existing connection;
        `qp`: as for Id.make_qp."""
        raw = raw or self.dial()
        if data is None:
            data = wire.depths(peer_ird, peer_ord) if flags & wire.ENHANCED else b""
        raw.push(wire.frame(wire.REQUEST, flags, revision, data) + behind)
        _, id_ = self.request()
        id_.make_qp(**qp)
        if before_accept:
            before_accept(id_)
        id_.accept(ird, ord_, private)
        frame = raw.frame()
        assert not frame.flags & wire.REJECT, f"refused: {frame}"
        raw.framing(bool((flags | frame.flags) & wire.CRC), bool(frame.flags & wire.MARKERS),
                    bool(flags & wire.MARKERS))
        id_.event("ESTABLISHED", status=0)
        return Conn(id_, raw, frame)

    def await_dial(self):
        """A raw listener: (socket, port)."""
        with self.setup.inside():
            sock = socket.socket()
        sock.bind((self.setup.there, 0))
        sock.listen(16)
        sock.settimeout(PATIENCE)
        self.closers.append(sock.close)
        return sock, sock.getsockname()[1]

    def resolve(self, port, **qp):
        """An id with a QP, ready to connect to the peer's port."""
        id_ = self.make_id()
        check(rdma.rdma_resolve_addr(id_.id, verbs.sockaddr(self.setup.here, 0),
                                     verbs.sockaddr(self.setup.there, port), 5000))
        id_.event("ADDR_RESOLVED")
        check(rdma.rdma_resolve_route(id_.id, 5000))
        id_.event("ROUTE_RESOLVED")
        return id_.make_qp(**qp)

    def calling(self, ird=16, ord_=16, private=b"", before_connect=None, **qp):
        """A program connects to a raw peer, which has read its request: (Id, Raw, request frame)."""
        sock, port = self.await_dial()
        id_ = self.resolve(port, **qp)
        if before_connect:
            before_connect(id_)
        id_.connect(ird, ord_, private)
        raw = Raw(sock.accept()[0])
        self.closers.append(raw.close)
        sock.close()
        return id_, raw, raw.frame()

    def active(self, flags=wire.CRC | wire.ENHANCED, revision=2, data=None, peer_ird=16, peer_ord=16, behind=b"",
               **more):
        """The other way round: a program has connected to a raw peer. `flags`, `revision`, `data` (or `peer_ird`,
        `peer_ord`): contents of the peer's reply; `behind`: bytes right behind the reply; the others as for calling().
        If the program asks for peer-to-peer mode (module parameter), a Write is agreed as RTR, and consumed here."""
        id_, raw, request = self.calling(**more)
        p2p = request.enhanced and request.rtr[0]
        if data is None:
            data = b""
            if flags & wire.ENHANCED:
                data = wire.depths(peer_ird | (wire.A_P2P if p2p else 0), peer_ord | (wire.C_WRITE if p2p else 0))
        raw.push(wire.frame(wire.REPLY, flags, revision, data) + behind)
        raw.framing(bool((flags | request.flags) & wire.CRC), bool(request.flags & wire.MARKERS),
                    bool(flags & wire.MARKERS))
        if p2p:
            rtr = raw.segment()
            assert rtr.opcode == wire.WRITE and not rtr.data, f"no RTR but {rtr}"
        id_.event("ESTABLISHED", status=0)
        return Conn(id_, raw, request)
