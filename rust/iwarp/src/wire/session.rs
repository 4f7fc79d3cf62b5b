// SPDX-License-Identifier: GPL-2.0

//! What two of our drivers say to each other about a session: a connection that survives the loss
//! of its path on another TCP connection. It is private data of MPA frames. [`crate::session`] is
//! the machine.
//!
//! An [`Offer`] ends the private data of the reply that accepts the connection. [`Resume`],
//! [`Resumed`] and [`Refused`] are all the private data of the frames that begin another TCP
//! connection: a request, a reply that accepts and a reply that rejects.

use super::{
    super::error::Result,
    bytes::{
        Reader,
        Writer, //
    }, //
};

/// What both ends of a session know and nobody else does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u128);

impl Key {
    /// Whether the keys are equal. The time it takes says nothing about where they differ.
    pub const fn matches(self, other: Self) -> bool {
        self.0 ^ other.0 == 0
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // It does not belong in a log.
        f.write_str("Key")
    }
}

/// An IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6, of global scope.
    V6([u8; 16]),
}

/// Most addresses an offer has.
pub const MAX_ADDRESSES: usize = 4;

/// A session that the responder of a connection offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// Chosen by the responder's host, which finds the session by it.
    pub session: u64,
    /// Shown by the initiator when it resumes the session.
    pub key: Key,
    /// Run of the responder's module. Informational: no receiver acts on it.
    pub boot_id: u64,
    /// Number of its device in this run. Informational, as `boot_id`.
    pub dev_epoch: u32,
    /// Where the responder can be reached, the address in use first. There are none behind `None`.
    pub addresses: [Option<Address>; MAX_ADDRESSES],
}

/// "siwO", and the version of what follows.
const OFFER: [u8; 5] = *b"siwO\x01";
/// Bytes of an address: family (1) and address (16).
const ADDRESS_LEN: usize = 17;
const V4: u8 = 4;
const V6: u8 = 6;

impl Offer {
    /// Bytes of an offer: magic (4), version (1), zero (3), then in network order `session` (8),
    /// `key` (16), `boot_id` (8) and `dev_epoch` (4), the addresses (17 each: 4, 6 or 0 for none,
    /// and the address with zeros behind it) and the CRC32c of all that (4).
    ///
    /// The length is always the same, so that it can be found from the end.
    pub const LEN: usize = 44 + ADDRESS_LEN * MAX_ADDRESSES + 4;

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let mut w = Writer::new(&mut out);
        // There is room for all of it.
        let _ = self.write(&mut w);
        let crc = match out.split_last_chunk::<4>() {
            Some((body, _)) => crc32c(body),
            None => 0,
        };
        if let Some(end) = out.last_chunk_mut() {
            *end = crc.to_be_bytes();
        }
        out
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.array(OFFER)?;
        w.array([0; 3])?;
        w.u64(self.session)?;
        w.array(self.key.0.to_be_bytes())?;
        w.u64(self.boot_id)?;
        w.u32(self.dev_epoch)?;
        for address in self.addresses.iter().flatten() {
            match *address {
                Address::V4(bytes) => {
                    w.u8(V4)?;
                    w.array(bytes)?;
                    w.array([0; 12])?;
                }
                Address::V6(bytes) => {
                    w.u8(V6)?;
                    w.array(bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Takes an offer off the end of private data; the rest is the ULP's. `None`, and all is the
    /// ULP's, if none of this version is there.
    pub fn split(private: &[u8]) -> Option<(&[u8], Self)> {
        let (ulp, offer) = private.split_last_chunk::<{ Self::LEN }>()?;
        let (body, crc) = offer.split_last_chunk()?;
        if !body.starts_with(&OFFER) || crc32c(body) != u32::from_be_bytes(*crc) {
            return None;
        }
        Some((ulp, Self::read(body).ok()?))
    }

    fn read(body: &[u8]) -> Result<Self> {
        let mut r = Reader(body);
        r.array::<8>()?;
        let (session, key) = (r.u64()?, Key(u128::from_be_bytes(r.array()?)));
        let (boot_id, dev_epoch) = (r.u64()?, r.u32()?);
        let mut addresses = [None; MAX_ADDRESSES];
        for address in &mut addresses {
            *address = match (r.u8()?, r.array::<16>()?) {
                (V4, [a, b, c, d, ..]) => Some(Address::V4([a, b, c, d])),
                (V6, bytes) => Some(Address::V6(bytes)),
                _ => break,
            };
        }
        Ok(Self {
            session,
            key,
            boot_id,
            dev_epoch,
            addresses,
        })
    }
}

/// Where one end is in the two streams of a session. Positions count bytes from the first FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Positions {
    /// Bytes that it has consumed of what it receives.
    pub rx: u64,
    /// Bytes of what it sends that the TCP of the peer has acknowledged.
    pub una: u64,
    /// Bytes that it has given to TCP. Those from `una` on it can send again.
    pub sent: u64,
}

/// The initiator wants the session to go on on this TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resume {
    /// As in the offer.
    pub session: u64,
    /// As in the offer.
    pub key: Key,
    /// Higher in every attempt.
    pub gen: u32,
    /// How often the initiator has resumed the session, this time included. Attempts that follow
    /// one whose reply is lost have the same number.
    pub switch: u32,
    /// Where the initiator is.
    pub at: Positions,
}

/// The responder agrees: the stream follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resumed {
    /// As in the request.
    pub session: u64,
    /// As in the request.
    pub gen: u32,
    /// Where the responder is.
    pub at: Positions,
}

/// Why a session is not resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no such session, or no more.
    Unknown,
    /// The key is wrong.
    Key,
    /// A later attempt has been here.
    Stale,
    /// The ends do not agree about what has been sent and acknowledged.
    Positions,
    /// It may be tried again: this end could not take over the TCP connection.
    Busy,
}

/// The responder does not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// As in the request.
    pub session: u64,
    /// As in the request.
    pub gen: u32,
    /// The reason.
    pub why: Refusal,
}

/// "siwR", and the version of what follows.
const MAGIC: [u8; 5] = *b"siwR\x01";
/// Kinds of messages.
const RESUME: u8 = 1;
const RESUMED: u8 = 2;
const REFUSED: u8 = 3;

impl Refusal {
    const ALL: [(u8, Self); 5] = [
        (1, Self::Unknown),
        (2, Self::Key),
        (3, Self::Stale),
        (4, Self::Positions),
        (5, Self::Busy),
    ];

    fn code(self) -> u8 {
        let named = Self::ALL.iter().find(|(_, why)| *why == self);
        named.map_or(0, |(code, _)| *code)
    }

    /// A reason that is not known is none that another attempt could help against.
    fn of(code: u8) -> Self {
        let known = Self::ALL.iter().find(|(known, _)| *known == code);
        known.map_or(Self::Unknown, |(_, why)| *why)
    }
}

impl Positions {
    fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        w.u64(self.rx)?;
        w.u64(self.una)?;
        w.u64(self.sent)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            rx: r.u64()?,
            una: r.u64()?,
            sent: r.u64()?,
        })
    }
}

/// Writes what all three messages begin with: magic (4), version (1), kind (1), code (1), zero (1),
/// `session` (8) and `gen` (4).
fn write_head(w: &mut Writer<'_>, [kind, code]: [u8; 2], session: u64, gen: u32) -> Result<()> {
    w.array(MAGIC)?;
    w.array([kind, code, 0])?;
    w.u64(session)?;
    w.u32(gen)
}

/// Reads it, and gives the code, `session` and `gen`; `None` if it is another kind.
fn read_head(r: &mut Reader<'_>, kind: u8) -> Option<(u8, u64, u32)> {
    let magic = r.array::<5>().ok()?;
    let [is, code, _] = r.array().ok()?;
    let known = magic == MAGIC && is == kind;
    known.then_some((code, r.u64().ok()?, r.u32().ok()?))
}

/// The value, if nothing is left.
fn whole<T>(r: &Reader<'_>, value: T) -> Option<T> {
    r.0.is_empty().then_some(value)
}

impl Resume {
    /// Bytes: the head (20, kind 1), then in network order `switch` (4), `key` (16), `rx`, `una`
    /// and `sent` (8 each).
    pub const LEN: usize = 64;

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        // There is room for all of it.
        let _ = self.write(&mut Writer::new(&mut out));
        out
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        write_head(w, [RESUME, 0], self.session, self.gen)?;
        w.u32(self.switch)?;
        w.array(self.key.0.to_be_bytes())?;
        self.at.write(w)
    }

    /// Reads the private data of a request; `None` if it is something else.
    pub fn parse(private: &[u8]) -> Option<Self> {
        let r = &mut Reader(private);
        let (_, session, gen) = read_head(r, RESUME)?;
        let resume = Self {
            session,
            gen,
            switch: r.u32().ok()?,
            key: Key(u128::from_be_bytes(r.array().ok()?)),
            at: Positions::read(r).ok()?,
        };
        whole(r, resume)
    }
}

impl Resumed {
    /// Bytes: the head (20, kind 2), then in network order `rx`, `una` and `sent` (8 each).
    pub const LEN: usize = 44;

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        // There is room for all of it.
        let _ = self.write(&mut Writer::new(&mut out));
        out
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<()> {
        write_head(w, [RESUMED, 0], self.session, self.gen)?;
        self.at.write(w)
    }

    /// Reads the private data of a reply that accepts; `None` if it is something else.
    pub fn parse(private: &[u8]) -> Option<Self> {
        let r = &mut Reader(private);
        let (_, session, gen) = read_head(r, RESUMED)?;
        let resumed = Self {
            session,
            gen,
            at: Positions::read(r).ok()?,
        };
        whole(r, resumed)
    }
}

impl Refused {
    /// Bytes: the head (kind 3) with the reason as its code: 1 unknown, 2 key, 3 stale, 4
    /// positions, 5 busy.
    pub const LEN: usize = 20;

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let kind = [REFUSED, self.why.code()];
        // There is room for all of it.
        let _ = write_head(&mut Writer::new(&mut out), kind, self.session, self.gen);
        out
    }

    /// Reads the private data of a reply that rejects; `None` if it is something else.
    pub fn parse(private: &[u8]) -> Option<Self> {
        let r = &mut Reader(private);
        let (code, session, gen) = read_head(r, REFUSED)?;
        let why = Refusal::of(code);
        whole(r, Self { session, gen, why })
    }
}

/// CRC32c, bit by bit: an offer is short and rare.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 }
        })
    })
}
