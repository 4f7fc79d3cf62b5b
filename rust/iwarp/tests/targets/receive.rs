// SPDX-License-Identifier: GPL-2.0

//! The receive machine under any bytes: it makes of them what a plain reading of the RFCs does, in
//! whatever pieces they come, and nothing is placed where it must not be.

use super::{
    common::{
        crc32c,
        pseudo_code,
        region,
        Receiver,
        BASE, //
    },
    messages::Sent,
    pieces,
    Input, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error, //
    },
    mem::{
        access::Rights,
        atomic::AtomicOp,
        stag::Stag, //
    },
    rx::{
        Event,
        Expect,
        ReadExpect,
        RxConfig, //
    },
    tx::TxStream,
    wire::{
        mpa::RtrSet,
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            ReadRequest,
            With, //
        },
        terminate::Terminate, //
    }, //
};

/// Bytes of the region, and where it begins in the memory.
const LEN: u64 = 0xc000;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.u8();
    let crc = flags & 1 != 0;
    let good_crc = input.flag();
    let mut rtr = RtrSet::NONE;
    if input.flag() {
        rtr = RtrSet::ALL;
    }
    let config = RxConfig {
        crc,
        rtr,
        immediate: flags & 2 == 0,
        send_imm: flags & 4 == 0,
    };
    let mut start = Receiver::with(config);
    // Behind the region there is memory that must stay as it is.
    start.region.len = LEN;
    start.region.rights = match input.below(8) {
        0 => Rights::LOCAL_WRITE,
        1 => Rights::REMOTE_READ,
        2 => Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE),
        3 => Rights::LOCAL_WRITE.union(Rights::REMOTE_ATOMIC),
        _ => start.region.rights,
    };
    start.buffers = input.below(9);
    start.buffer_len = usize::from(input.u16());
    for _ in 0..input.below(4) {
        let (to, len) = (input.edge(), input.u16());
        start.orq.push(match len {
            ..0xf000 => Expect::Read(ReadExpect {
                stag: region(0).stag,
                to: BASE.wrapping_add(to),
                len: u32::from(len),
            }),
            _ => Expect::Atomic(to as u32),
        });
    }
    let lengths = input.take(4);
    let mut stream = if input.flag() {
        let mut tx = TxStream::new(crc, false);
        let edits = input.take(12);
        let mut sent = Sent::new(&mut input, &mut tx, &start);
        start.orq.extend(sent.orq);
        edit(edits, &mut sent.stream);
        sent.stream
    } else {
        input.rest().to_vec()
    };
    if good_crc {
        sign(&mut stream);
    }

    let fed = |lengths: &[u8]| {
        let mut rx = copy(&start, config);
        for piece in pieces(&stream, lengths) {
            rx.feed(piece);
        }
        rx
    };
    let rx = fed(lengths);
    let mut plain = Plain::new(&start, config);
    let at = plain.read(&stream);
    assert_eq!(rx.error, plain.error);
    assert_eq!(rx.events, plain.events);
    assert_eq!(rx.sends, plain.sends);
    assert_eq!(rx.answers, plain.answers);
    assert_eq!(rx.incoming, plain.incoming);
    assert_eq!(rx.buffers, plain.buffers);
    assert_eq!(rx.orq, plain.orq);
    assert!(rx.memory == plain.memory, "placed elsewhere, or not at all");
    if let Some(error) = rx.error {
        blame(&rx, error, &stream[at..]);
    }
    let whole = fed(&[]);
    assert_eq!((whole.error, whole.events), (rx.error, rx.events));
    assert!(whole.memory == rx.memory && whole.sends == rx.sends);
}

/// A receiver in the same state.
fn copy(from: &Receiver, config: RxConfig) -> Receiver {
    let mut rx = Receiver::with(config);
    rx.region = from.region;
    rx.buffers = from.buffers;
    rx.buffer_len = from.buffer_len;
    rx.orq = from.orq.clone();
    rx
}

/// Changes a few bytes of headers: four bytes say which FPDU, where in it, how, and to what.
fn edit(edits: &[u8], stream: &mut Vec<u8>) {
    for edit in edits.chunks_exact(4) {
        let [fpdu, offset, kind, value] = edit else {
            return;
        };
        let starts = starts(stream);
        let Some(start) = starts.get(usize::from(*fpdu) % starts.len().max(1)) else {
            return;
        };
        let at = start + usize::from(*offset) % 80;
        let Some(byte) = stream.get_mut(at) else {
            continue;
        };
        match kind % 8 {
            0 => *byte = *value,
            1 => *byte ^= value,
            2 => *byte = byte.wrapping_add(*value),
            3 => stream.truncate(at),
            4 => stream.insert(at, *value),
            5 => {
                stream.remove(at);
            }
            _ => {}
        }
    }
}

/// Where the FPDUs begin.
fn starts(stream: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some([high, low, ..]) = stream.get(at..) {
        starts.push(at);
        at += 6 + padded(usize::from(u16::from_be_bytes([*high, *low])));
    }
    starts
}

/// Bytes between the length field and the end of the pad.
fn padded(ulpdu: usize) -> usize {
    (ulpdu + 2).div_ceil(4) * 4 - 2
}

/// Makes the CRCs right, so that what they cover is looked at.
fn sign(stream: &mut [u8]) {
    let mut rest = stream;
    while let [high, low, ..] = *rest {
        let end = 2 + padded(usize::from(u16::from_be_bytes([high, low])));
        let Some((fpdu, later)) = rest.split_at_mut_checked(end + 4) else {
            return;
        };
        let crc = crc32c(&fpdu[..end]);
        fpdu[end..].copy_from_slice(&crc.to_le_bytes());
        rest = later;
    }
}

/// The Terminate is about the FPDU at the front of `stream` (RFC 5040 4.8 and figure 10, RFC 7306
/// 8.1).
fn blame(rx: &Receiver, error: Error, stream: &[u8]) {
    let term = rx.rx.terminate(error);
    assert_eq!(term.map(|term| term.code), error.terminate());
    let Some(term) = term else { return };
    let by_read = matches!(
        error,
        Error::Access {
            op: AccessOp::ReadRequest,
            ..
        }
    );
    assert_eq!(term.read.is_some(), by_read);
    if matches!(
        error,
        Error::Crc | Error::FpduLength | Error::LocalCatastrophic
    ) {
        assert_eq!(term, Terminate::bare(term.code));
        return;
    }
    assert_eq!(
        term.ddp_len,
        Some(u16::from_be_bytes([stream[0], stream[1]]))
    );
    let header = if stream[2] & 0x80 != 0 { 14 } else { 18 };
    let copy = term.ddp.as_ref().map(|copy| copy.as_bytes());
    assert_eq!(copy, Some(&stream[2..2 + header]));
}

/// A message that is not complete.
#[derive(Clone, Copy)]
struct Open {
    opcode: u8,
    done: u32,
    /// Of a Send.
    with: With,
    /// STag of a Write; known from its first segment with payload.
    stag: Option<Stag>,
    /// What a Read Response answers.
    expect: Option<ReadExpect>,
}

/// A receiver that has the whole stream before it, one FPDU after the other.
struct Plain {
    config: RxConfig,
    rights: Rights,
    buffers: usize,
    buffer_len: usize,
    orq: Vec<Expect>,
    answers: Vec<AtomicResponse>,
    memory: Vec<u8>,
    incoming: Vec<u8>,
    sends: Vec<Vec<u8>>,
    events: Vec<Event>,
    error: Option<Error>,
    fpdus: usize,
    msn: [u32; 4],
    tagged: Option<Open>,
    send: Option<Open>,
    stopped: bool,
}

/// The end of what can be done: an error, or no more bytes.
enum Stop {
    Error(Error),
    Short,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn keep(rule: bool, error: Error) -> Result<(), Stop> {
    if rule {
        Ok(())
    } else {
        Err(error.into())
    }
}

impl Plain {
    fn new(from: &Receiver, config: RxConfig) -> Self {
        Self {
            config,
            rights: from.region.rights,
            buffers: from.buffers,
            buffer_len: from.buffer_len,
            orq: from.orq.clone(),
            answers: Vec::new(),
            memory: from.memory.clone(),
            incoming: Vec::new(),
            sends: Vec::new(),
            events: Vec::new(),
            error: None,
            fpdus: 0,
            msn: [1; 4],
            tagged: None,
            send: None,
            stopped: false,
        }
    }

    /// Takes in all of it; the place of the last FPDU begun.
    fn read(&mut self, stream: &[u8]) -> usize {
        let mut at = 0;
        while at < stream.len() && !self.stopped {
            match self.fpdu(&stream[at..]) {
                Ok(len) => at += len,
                Err(Stop::Short) => return at,
                Err(Stop::Error(error)) => {
                    self.error = Some(error);
                    return at;
                }
            }
        }
        at
    }

    fn fpdu(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        if bytes.len() < 16 {
            return Err(Stop::Short);
        }
        let ulpdu = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let (ddp, rdmap) = (bytes[2], bytes[3]);
        let (tagged, last) = (ddp & 0x80 != 0, ddp & 0x40 != 0);
        keep(ulpdu >= if tagged { 14 } else { 18 }, Error::FpduLength)?;
        if bytes.len() < if tagged { 16 } else { 20 } {
            return Err(Stop::Short);
        }
        keep(ddp & 3 == 1, Error::DdpVersion { tagged })?;
        keep(rdmap >> 6 == 1, Error::RdmapVersion)?;
        // One reserved bit counts: it tells the experimental messages apart.
        let opcode = match rdmap & 15 {
            15 => rdmap & 31,
            opcode => opcode,
        };
        let taken = match opcode {
            0..=7 | 10 | 11 => true,
            8 | 9 => self.config.immediate,
            15 | 31 => self.config.send_imm,
            _ => false,
        };
        keep(
            taken && tagged == (opcode == 0 || opcode == 2),
            Error::Opcode,
        )?;
        let header = match opcode {
            0 | 2 => 16,
            1 => 48,
            7 => (ulpdu + 2).min(72),
            8 | 9 => 20 + 8,
            10 => 20 + 52,
            11 => 20 + 12,
            _ => 20,
        };
        keep(
            ulpdu + 2 >= if opcode == 7 { 24 } else { header },
            Error::Short,
        )?;
        if bytes.len() < header {
            return Err(Stop::Short);
        }
        let len = ulpdu + 2 - header;
        let here = bytes.len().min(header + len);
        let payload = &bytes[header..here];
        let size = len as u32;
        let mut rtr = false;
        match opcode {
            0 | 2 => {
                let (stag, to) = (Stag(word(bytes, 4)), long(bytes, 8));
                self.begin_tagged(opcode, stag, to, size, last)?;
                if len != 0 {
                    self.place(opcode, stag, to, size, payload)?;
                }
            }
            1 | 10 => {
                self.queue(bytes, 1, 0)?;
                keep(len == 0 && last, Error::TooLong)?;
            }
            8 | 9 => {
                self.queue(bytes, 0, self.send.map_or(0, |open| open.done))?;
                keep(self.send.is_none(), Error::Opcode)?;
                keep(len == 0 && last, Error::TooLong)?;
                keep(self.buffers != 0, Error::NoBuffer)?;
                self.buffers -= 1;
            }
            11 => {
                self.queue(bytes, 3, 0)?;
                keep(len == 0 && last, Error::TooLong)?;
                let Some(Expect::Atomic(id)) = self.orq.first() else {
                    return Err(Error::Opcode.into());
                };
                keep(word(bytes, 20) == *id, Error::ResponseId)?;
            }
            7 => self.queue(bytes, 2, 0)?,
            _ => {
                let first = self.send.is_none();
                let with = match opcode {
                    3 | 5 => With::Nothing,
                    4 | 6 => With::Invalidate(Stag(word(bytes, 4))),
                    _ => With::Immediate([bytes[4], bytes[5], bytes[6], bytes[7]]),
                };
                let open = *self.send.get_or_insert(Open::new(opcode, with));
                self.queue(bytes, 0, open.done)?;
                keep(open.opcode == opcode, Error::Opcode)?;
                // Nothing comes with it (RFC 6581 9.2).
                rtr = !self.config.rtr.is_empty()
                    && self.fpdus == 0
                    && first
                    && last
                    && len == 0
                    && matches!(opcode, 3 | 5);
                if first && !rtr {
                    self.incoming.clear();
                    keep(self.buffers != 0, Error::NoBuffer)?;
                    self.buffers -= 1;
                }
                let end = open.done as usize + len;
                keep(end <= self.buffer_len, Error::TooLong)?;
                self.incoming.extend_from_slice(payload);
            }
        }
        let end = 2 + padded(ulpdu);
        if bytes.len() < end + 4 {
            return Err(Stop::Short);
        }
        if self.config.crc {
            let crc = crc32c(&bytes[..end]).to_le_bytes();
            keep(bytes[end..end + 4] == crc, Error::Crc)?;
        }
        self.fpdus += 1;
        self.deliver(bytes, opcode, size, last, rtr)?;
        Ok(end + 4)
    }

    /// Queue number, then MSN, then offset.
    fn queue(&self, bytes: &[u8], qn: u32, mo: u32) -> Result<(), Stop> {
        keep(word(bytes, 8) == qn, Error::InvalidQn)?;
        keep(word(bytes, 12) == self.msn[qn as usize], Error::MsnRange)?;
        keep(word(bytes, 16) == mo, Error::InvalidMo)
    }

    fn begin_tagged(
        &mut self,
        opcode: u8,
        stag: Stag,
        to: u64,
        len: u32,
        last: bool,
    ) -> Result<(), Stop> {
        let first = self.tagged.is_none();
        let open = self.tagged.get_or_insert(Open::new(opcode, With::Nothing));
        keep(open.opcode == opcode, Error::Opcode)?;
        if opcode == 0 {
            if len != 0 {
                keep(*open.stag.get_or_insert(stag) == stag, Error::WriteStag)?;
            }
            return Ok(());
        }
        if first {
            open.expect = match self.orq.first() {
                Some(Expect::Read(read)) => Some(*read),
                _ => None,
            };
        }
        let Some(expect) = open.expect else {
            return Err(Error::Opcode.into());
        };
        if len != 0 {
            keep(stag == expect.stag, Error::ResponseStag)?;
            let from = expect.to.wrapping_add(u64::from(open.done));
            keep(to == from, Error::ResponseBounds)?;
        }
        let end = open.done + len;
        keep(end <= expect.len, Error::ResponseBounds)?;
        keep(!last || end == expect.len, Error::ResponseBounds)
    }

    fn place(
        &mut self,
        opcode: u8,
        stag: Stag,
        to: u64,
        len: u32,
        payload: &[u8],
    ) -> Result<(), Stop> {
        let (op, rights) = match opcode {
            0 => (AccessOp::Write, Rights::REMOTE_WRITE),
            _ => (
                AccessOp::ReadResponse,
                Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE),
            ),
        };
        let at = self.target(op, rights, stag, to, len)?;
        self.memory[at..at + payload.len()].copy_from_slice(payload);
        Ok(())
    }

    /// Where in the memory the `len` bytes at `to` are, if they may be used.
    fn target(
        &self,
        op: AccessOp,
        rights: Rights,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<usize, Stop> {
        let fail = |error: AccessError| error.during(op);
        let known = region(0).stag;
        keep(stag.0 >> 8 == known.0 >> 8, fail(AccessError::UnknownStag))?;
        keep(stag == known, fail(AccessError::WrongKey))?;
        let end = u128::from(to) + u128::from(len);
        keep(end < 1 << 64, fail(AccessError::Wrap))?;
        let inside = to >= BASE && end <= u128::from(BASE + LEN);
        keep(inside, fail(AccessError::Bounds))?;
        keep(self.rights.intersects(rights), fail(AccessError::Rights))?;
        Ok((to - BASE) as usize)
    }

    /// RFC 7306 5.2.1: the target becomes what the pseudo code says, and what it was is the answer.
    fn atomic(&mut self, bytes: &[u8]) -> Result<Event, Stop> {
        let op = match bytes[23] & 15 {
            0 => AtomicOp::FetchAdd {
                add: long(bytes, 40),
                mask: long(bytes, 48),
            },
            2 => AtomicOp::CmpSwap {
                swap: long(bytes, 40),
                swap_mask: long(bytes, 48),
                compare: long(bytes, 56),
                compare_mask: long(bytes, 64),
            },
            _ => return Err(Error::Opcode.into()),
        };
        let (id, stag, to) = (word(bytes, 24), Stag(word(bytes, 28)), long(bytes, 32));
        let at = self.target(AccessOp::AtomicRequest, Rights::REMOTE_ATOMIC, stag, to, 8)?;
        keep(to % 8 == 0, Error::Unaligned)?;
        let target = &mut self.memory[at..at + 8];
        let original = u64::from_ne_bytes((&*target).try_into().unwrap());
        target.copy_from_slice(&pseudo_code(op, original).to_ne_bytes());
        self.answers.push(AtomicResponse { id, original });
        self.msn[1] = self.msn[1].wrapping_add(1);
        Ok(Event::AtomicRequest {
            msn: word(bytes, 12),
            request: AtomicRequest { id, stag, to, op },
        })
    }

    fn deliver(
        &mut self,
        bytes: &[u8],
        opcode: u8,
        len: u32,
        last: bool,
        rtr: bool,
    ) -> Result<(), Stop> {
        let event = match opcode {
            0 | 2 => {
                let open = self.tagged.as_mut().unwrap();
                open.done += len;
                let len = open.done;
                if !last {
                    return Ok(());
                }
                self.tagged = None;
                if opcode == 0 {
                    Event::Write { len }
                } else {
                    self.orq.remove(0);
                    Event::ReadResponse { len }
                }
            }
            1 => {
                self.msn[1] = self.msn[1].wrapping_add(1);
                Event::ReadRequest {
                    msn: word(bytes, 12),
                    request: ReadRequest {
                        sink_stag: Stag(word(bytes, 20)),
                        sink_to: long(bytes, 24),
                        len: word(bytes, 32),
                        source_stag: Stag(word(bytes, 36)),
                        source_to: long(bytes, 40),
                    },
                }
            }
            8 | 9 => {
                self.msn[0] = self.msn[0].wrapping_add(1);
                // Four octets for the consumer, and four that nobody looks at.
                Event::Immediate {
                    data: [bytes[20], bytes[21], bytes[22], bytes[23]],
                    se: opcode == 9,
                    msn: word(bytes, 12),
                }
            }
            10 => self.atomic(bytes)?,
            11 => {
                self.msn[3] = self.msn[3].wrapping_add(1);
                self.orq.remove(0);
                Event::AtomicResponse {
                    original: long(bytes, 24),
                }
            }
            7 => {
                self.stopped = true;
                let ulpdu = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                let body = &bytes[20..(ulpdu + 2).min(72)];
                Event::Terminate(Terminate::parse(body).unwrap())
            }
            _ => {
                let open = self.send.as_mut().unwrap();
                open.done += len;
                let (len, with) = (open.done, open.with);
                if !last {
                    return Ok(());
                }
                self.send = None;
                self.msn[0] = self.msn[0].wrapping_add(1);
                // "Ready to receive" too: nothing had come in before it.
                self.sends.push(std::mem::take(&mut self.incoming));
                if rtr {
                    self.sends.pop();
                    Event::Rtr
                } else {
                    Event::Send {
                        len,
                        se: matches!(opcode, 5 | 6 | 31),
                        with,
                        msn: word(bytes, 12),
                    }
                }
            }
        };
        self.events.push(event);
        Ok(())
    }
}

impl Open {
    fn new(opcode: u8, with: With) -> Self {
        Self {
            opcode,
            done: 0,
            with,
            stag: None,
            expect: None,
        }
    }
}
