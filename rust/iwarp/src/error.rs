// SPDX-License-Identifier: GPL-2.0

//! Errors: the rule that the peer, the user or the caller broke.
//!
//! [`crate::verdict`] says what follows from an error.

/// Result of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What the peer, the user or the caller broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The CRC of an FPDU is wrong (RFC 5044 8, error 2).
    Crc,
    /// The ULPDU length of an FPDU cannot be: shorter than a DDP header (RFC 5044 8, error 3).
    FpduLength,
    /// DV is not 1 (RFC 5041 7.2).
    DdpVersion {
        /// The segment is a tagged one.
        tagged: bool,
    },
    /// The queue number does not exist or does not suit the opcode.
    InvalidQn,
    /// No receive buffer is posted for a Send.
    NoBuffer,
    /// The MSN is not the next one of its queue.
    MsnRange,
    /// The message offset does not continue the message.
    InvalidMo,
    /// The message is longer than its buffer.
    TooLong,
    /// RV is not 1 (RFC 5040 4.8).
    RdmapVersion,
    /// The opcode is unknown, contradicts the T bit, or comes where it must not.
    Opcode,
    /// The message is shorter than its RDMAP header.
    Short,
    /// More Read Requests and Atomic Requests than the agreed IRD.
    NoReadSlot,
    /// A Read Response names another sink than the oldest outstanding Read.
    ResponseStag,
    /// A Read Response is not at the offset, or not of the length, of the oldest outstanding Read.
    ResponseBounds,
    /// An Atomic Response names another request than the oldest outstanding one.
    ResponseId,
    /// The target of an Atomic Request is not aligned (RFC 7306 8.2).
    Unaligned,
    /// A later segment of a Write has another STag than the first.
    WriteStag,
    /// A Write is longer than a message can be.
    WriteBounds,
    /// A check of [`crate::mem::access`] failed.
    Access {
        /// The rule that was broken.
        error: AccessError,
        /// What was being done.
        op: AccessOp,
    },
    /// A work request of the local user is malformed.
    LocalOp,
    /// Something failed here that is nobody's fault.
    LocalCatastrophic,
    /// The work request was flushed.
    Flushed,
    /// The handshake failed.
    Mpa(MpaError),
    /// The output slice is too small, or the private data too long: a mistake of the caller.
    Buffer,
    /// A method was called out of turn: a mistake of the caller.
    State,
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaError {
    /// The key is none of MPA, or a responder got a Reply.
    Key,
    /// An initiator got a Request: both sides started (RFC 5044 7.1.2).
    BothInitiators,
    /// A revision we cannot work with.
    Revision(u8),
    /// More than 512 bytes of private data announced.
    PrivateDataLength,
    /// Our enhanced request was answered in the old form. The peer may have taken the enhanced
    /// data for private data, so the connection is of no use; a new one may be tried with
    /// revision 1 (RFC 6581 10).
    Downgrade,
    /// S is set but the private data is too short for the enhanced data.
    EnhancedData,
    /// The responder wants to read deeper than we can serve (RFC 6581 9.1).
    InsufficientIrd,
    /// The responder supports none of the RTR messages we can send (RFC 6581 9.2).
    NoMatchingRtr,
    /// Anything else that stops us (RFC 6581 9.3).
    LocalCatastrophic,
}

impl MpaError {
    /// Whether a second attempt with revision 1 makes sense. It also does when the peer closes the
    /// connection without a reply.
    pub const fn may_downgrade(self) -> bool {
        matches!(self, Self::Downgrade)
    }
}

impl From<MpaError> for Error {
    fn from(error: MpaError) -> Self {
        Self::Mpa(error)
    }
}

/// What is being done, to choose the code and status of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOp {
    /// A work request of the SQ uses the memory, be it as source or as sink of a Read.
    Send,
    /// A receive work request uses the memory.
    Recv,
    /// The peer writes.
    Write,
    /// The peer answers our Read.
    ReadResponse,
    /// The peer reads.
    ReadRequest,
    /// The peer asks for an atomic operation.
    AtomicRequest,
    /// The peer invalidates with a Send.
    Invalidate,
    /// The local user invalidates.
    LocalInvalidate,
    /// The local user registers.
    Register,
    /// The local user binds a window.
    Bind,
}

/// The rule an access breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// No entry at this index.
    UnknownStag,
    /// The entry is not valid; for a registration or a bind, it still is.
    NotValid,
    /// The entry admits one message of the peer, and has admitted it.
    Spent,
    /// The kind of entry does not allow this.
    WrongKind,
    /// The entry belongs to another PD.
    WrongPd,
    /// The window is bound to another QP.
    WrongQp,
    /// The key is an old or wrong one.
    WrongKey,
    /// Not inside the region.
    Bounds,
    /// Offset plus length does not fit 64 bits.
    Wrap,
    /// The right is not granted, by the region or by the QP, or the rights asked for contradict
    /// each other.
    Rights,
    /// Windows are still bound to the region.
    Windows,
    /// The length is zero or more than was reserved.
    Length,
    /// No rule is broken: the memory, or the receive of a message, is not there yet. Who uses it
    /// keeps the access, waits, and makes it again. It has no Terminate and no status of its own; a
    /// work request that ends while it waits is flushed.
    Pending,
}

impl AccessError {
    /// The error of an operation that broke this rule.
    pub const fn during(self, op: AccessOp) -> Error {
        Error::Access { error: self, op }
    }
}

impl Error {
    /// Whether it is none: memory or a receive is not there yet, see [`AccessError::Pending`].
    #[inline]
    pub const fn is_pending(self) -> bool {
        matches!(
            self,
            Self::Access {
                error: AccessError::Pending,
                ..
            }
        )
    }
}
