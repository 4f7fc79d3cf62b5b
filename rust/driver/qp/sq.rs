// SPDX-License-Identifier: GPL-2.0

//! Send queues.
//!
//! A program writes elements into memory that it maps, and could change them at any time. So an
//! element is copied once and checked in the copy; its slot is free at once. A kernel consumer's
//! requests never touch mapped memory.

use super::rq::listed;
use crate::{
    driver::{
        cq::WcOp,
        queue::{
            Queue,
            Slots, //
        },
        tpt::fast_reg::RegWr,
        Siw, //
    },
    kapi::{
        rdma::{
            self,
            mr::access,
            send_flags,
            Customer,
            MmapEntry,
            RingMem,
            Sge,
            UserRing, //
        },
        sync::{
            AccessOnce,
            SpinLockIrq, //
        }, //
    },
    uapi::abi, //
};
use iwarp::{
    mem::{
        access::{
            Accessor,
            Bind,
            Rights, //
        },
        stag::Stag, //
    },
    verdict::WcStatus, //
};
use kernel::{
    prelude::*,
    sync::atomic::Atomic, //
};

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendOp {
    Send,
    SendInv,
    Write,
    Read,
    ReadInv,
    RegMr,
    LocalInv,
    BindMw,
}

impl SendOp {
    /// The operation that the completion reports.
    pub(crate) fn wc(self) -> WcOp {
        match self {
            Self::Send => WcOp::Send,
            Self::SendInv => WcOp::SendInv,
            Self::Write => WcOp::Write,
            Self::Read => WcOp::Read,
            Self::ReadInv => WcOp::ReadInv,
            Self::RegMr => WcOp::RegMr,
            Self::LocalInv => WcOp::LocalInv,
            Self::BindMw => WcOp::BindMw,
        }
    }
}

/// A send work request: a private copy, checked.
pub(crate) struct SendWr {
    /// Work request ID, list or inline payload, and the address at the peer: the sink of a Write,
    /// the source of a Read. A Read has one local element, its sink.
    sqe: abi::Sqe,
    pub(crate) op: SendOp,
    pub(crate) signalled: bool,
    /// Wait for earlier Reads.
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    /// Bytes of payload, and whether they are inline.
    bytes: u32,
    inline: bool,
    /// Write: the sink, Read: the source.
    pub(crate) remote_stag: Stag,
    /// The STag to invalidate, here or at the peer.
    pub(crate) inval: Stag,
    pub(crate) reg: Option<RegWr>,
}

impl SendWr {
    /// An empty one, for [`Sq::take`].
    pub(crate) fn empty() -> Self {
        Self {
            sqe: abi::Sqe::default(),
            op: SendOp::Send,
            signalled: false,
            fence: false,
            solicited: false,
            bytes: 0,
            inline: false,
            remote_stag: Stag(0),
            inval: Stag(0),
            reg: None,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.sqe.id
    }

    /// Write: address of the sink, Read: of the source.
    pub(crate) fn remote_addr(&self) -> u64 {
        self.sqe.raddr
    }

    /// Source, or for Reads the one sink; spans less than 2^32 bytes.
    pub(crate) fn sges(&self) -> &[Sge] {
        self.sqe
            .sge
            .get(..usize::from(self.sqe.num_sge))
            .unwrap_or_default()
    }

    /// Bytes of payload.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The bind, by the queue pair that has taken the request.
    pub(crate) fn bind(&self, by: Accessor) -> Bind {
        let [part, ..] = &self.sqe.sge;
        Bind {
            stag: Stag(self.sqe.rkey),
            region: Stag(part.lkey),
            to: part.addr,
            len: self.sqe.raddr,
            // Of the optional flags only our own means something.
            rights: Rights(part.len & (!access::OPTIONAL_RANGE | Rights::ONE_TOUCH.0)),
            by,
        }
    }

    /// Whether the payload is inline.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// The inline payload.
    pub(crate) fn inline(&self) -> Option<&[u8]> {
        self.sqe.inline_bytes().get(..self.bytes as usize)
    }

    /// Takes over a kernel consumer's list; `None` if it is too long.
    fn set_sges(&mut self, list: &[Sge]) -> Option<()> {
        self.sqe.num_sge = list.len().try_into().ok()?;
        self.sqe.sge.get_mut(..list.len())?.copy_from_slice(list);
        self.bytes = listed(self.sqe.num_sge, &self.sqe.sge)?;
        Some(())
    }

    /// A Read Request names one sink (RFC 5040 4.4); a Read of length 0 may have none.
    fn name_sink(&mut self) -> Option<()> {
        match self.sqe.num_sge {
            0 => {
                let [sink, ..] = &mut self.sqe.sge;
                *sink = Sge::default();
                self.sqe.num_sge = 1;
                Some(())
            }
            1 => Some(()),
            _ => None,
        }
    }
}

/// A malformed element of a program, which completes with an error.
pub(crate) struct BadSqe {
    pub(crate) id: u64,
    pub(crate) op: WcOp,
    pub(crate) status: WcStatus,
}

/// The operation of a program's element, with windows if the library knows them. The other opcodes
/// of the ABI are reserved for the kernel, or unused.
fn user_op(opcode: u8, windows: bool) -> Option<SendOp> {
    match opcode {
        abi::op::INVAL_STAG if windows => Some(SendOp::LocalInv),
        abi::op::BIND_MW if windows => Some(SendOp::BindMw),
        abi::op::WRITE => Some(SendOp::Write),
        abi::op::READ => Some(SendOp::Read),
        abi::op::SEND => Some(SendOp::Send),
        abi::op::SEND_REMOTE_INV => Some(SendOp::SendInv),
        _ => None,
    }
}

/// Checks the program's element that was copied into `wr`, and fills in the other fields.
fn parse(wr: &mut SendWr, windows: bool) -> Result<(), BadSqe> {
    let sqe = &wr.sqe;
    let id = sqe.id;
    let bad = |op: WcOp, status| BadSqe { id, op, status };
    let op = user_op(sqe.opcode, windows).ok_or_else(|| bad(WcOp::Send, WcStatus::LocQpOpErr))?;
    wr.op = op;
    wr.signalled = sqe.flags & abi::wqe::SIGNALLED != 0;
    wr.fence = sqe.flags & abi::wqe::READ_FENCE != 0;
    wr.solicited = sqe.flags & abi::wqe::SOLICITED != 0;
    // The operation tells which of the two it is.
    wr.inval = Stag(sqe.rkey);
    wr.remote_stag = Stag(sqe.rkey);
    if matches!(op, SendOp::LocalInv | SendOp::BindMw) {
        wr.bytes = 0;
        wr.inline = false;
        return Ok(());
    }
    if sqe.flags & abi::wqe::INLINE != 0 && op != SendOp::Read {
        let [first, ..] = sqe.sge;
        let len = first.len as usize;
        if len > abi::MAX_INLINE {
            return Err(bad(op.wc(), WcStatus::LocLenErr));
        }
        wr.bytes = first.len;
        wr.inline = true;
        return Ok(());
    }
    let bytes = listed(sqe.num_sge, &sqe.sge);
    let (Some(bytes), true) = (bytes, op != SendOp::Read || wr.name_sink().is_some()) else {
        return Err(bad(op.wc(), WcStatus::LocQpOpErr));
    };
    wr.bytes = bytes;
    wr.inline = false;
    Ok(())
}

/// The position of the next element in a program's ring, for the context that takes elements: the
/// owner of the token, or the flush after it.
pub(crate) struct Cursor(u32);

/// The program's ring, and the position of the next element, which moves with a [`Cursor`].
struct UserSq {
    ring: UserRing<abi::Sqe>,
    get: Atomic<u32>,
    entry: MmapEntry<Siw>,
    /// The library knows windows.
    windows: bool,
}

/// The send queue of a queue pair.
pub(crate) struct Sq {
    queue: Queue<UserSq, Pin<KBox<SpinLockIrq<Slots<SendWr>>>>>,
    size: u32,
    max_sge: u32,
    sig_all: bool,
}

impl Sq {
    /// A queue for `wrs` requests. Sleeps.
    pub(crate) fn new(
        user: Option<Customer<'_, Siw>>,
        wrs: u32,
        max_sge: u32,
        sig_all: bool,
    ) -> Result<Self> {
        let size = wrs.next_power_of_two();
        let queue = match user {
            Some(user) => {
                let mem = RingMem::new(size as usize * size_of::<abi::Sqe>())?;
                Queue::User(UserSq {
                    ring: UserRing::new(mem.clone(), 0, size)?,
                    get: Atomic::new(0),
                    entry: MmapEntry::new(user, mem)?,
                    windows: user.ucontext().features & abi::feature::WINDOWS != 0,
                })
            }
            None => {
                let slots = Slots::new(size)?;
                Queue::Kernel(KBox::pin_init(
                    ranked_spinlock!(Rank::Sq, slots),
                    GFP_KERNEL_ACCOUNT,
                )?)
            }
        };
        Ok(Self {
            queue,
            size,
            max_sge,
            sig_all,
        })
    }

    /// Elements of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The key with which a program maps the ring.
    pub(crate) fn key(&self) -> u64 {
        self.queue.user().map_or(0, |user| user.entry.key())
    }

    /// Whether a request waits. Any context.
    pub(crate) fn has_work(&self) -> bool {
        self.has_work_at(&self.cursor())
    }

    /// The same as [`Self::has_work`], for the context that takes requests.
    pub(crate) fn has_work_at(&self, at: &Cursor) -> bool {
        match &self.queue {
            Queue::User(user) => user.ring.flags(at.0) & abi::wqe::VALID != 0,
            Queue::Kernel(slots) => !slots.lock().is_empty(),
        }
    }

    /// The position at which a context begins to take requests. What excludes other takers, the
    /// token or the claim of the flush, also orders this after their last [`Self::take`]. Without
    /// such exclusion it is a hint.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor(match &self.queue {
            Queue::User(user) => user.get.read_once(),
            Queue::Kernel(_) => 0,
        })
    }

    /// Takes the next request into `wr`; `false` if there is none. Any context, but one caller at a
    /// time.
    ///
    /// The slot is freed here, not at completion: libsiw rings the doorbell only if the element
    /// before its new one is free. So either the driver sees the new element, or libsiw the freed
    /// one.
    #[inline]
    pub(crate) fn take(&self, at: &mut Cursor, wr: &mut SendWr) -> Result<bool, BadSqe> {
        let user = match &self.queue {
            Queue::User(user) => user,
            Queue::Kernel(slots) => {
                let next = slots.lock().pop();
                let Some(next) = next else { return Ok(false) };
                *wr = next;
                return Ok(true);
            }
        };
        if !user.ring.take(at.0, abi::wqe::VALID, &mut wr.sqe) {
            return Ok(false);
        }
        user.ring.free_fenced(at.0);
        at.0 = at.0.wrapping_add(1);
        user.get.write_once(at.0);
        parse(wr, user.windows)?;
        Ok(true)
    }

    /// Posts a kernel consumer's request. Any context.
    pub(crate) fn post(&self, wr: &rdma::SendWr<'_, Siw>) -> Result {
        let Queue::Kernel(slots) = &self.queue else {
            return Err(EINVAL);
        };
        let new = self.build(wr)?;
        let pushed = slots.lock().push(new);
        // What does not fit is dropped after the lock.
        pushed.map_err(|_| ENOMEM)
    }

    fn build(&self, wr: &rdma::SendWr<'_, Siw>) -> Result<SendWr> {
        let flags = wr.flags();
        let (op, remote_stag, remote_addr, inval) = match wr.op() {
            rdma::SendOp::Send => (SendOp::Send, 0, 0, 0),
            rdma::SendOp::SendInv { rkey } => (SendOp::SendInv, 0, 0, rkey),
            rdma::SendOp::Write { raddr, rkey } => (SendOp::Write, rkey, raddr, 0),
            rdma::SendOp::Read { raddr, rkey } => (SendOp::Read, rkey, raddr, 0),
            rdma::SendOp::ReadInv { raddr, rkey, .. } => (SendOp::ReadInv, rkey, raddr, 0),
            rdma::SendOp::LocalInv { rkey } => (SendOp::LocalInv, 0, 0, rkey),
            rdma::SendOp::RegMr { .. } => (SendOp::RegMr, 0, 0, 0),
            _ => return Err(EINVAL),
        };
        let mut new = SendWr {
            op,
            signalled: self.sig_all || flags & send_flags::SIGNALED != 0,
            fence: flags & send_flags::FENCE != 0,
            solicited: flags & send_flags::SOLICITED != 0,
            remote_stag: Stag(remote_stag),
            inval: Stag(inval),
            ..SendWr::empty()
        };
        new.sqe.id = wr.wr_id();
        new.sqe.raddr = remote_addr;
        match op {
            SendOp::RegMr | SendOp::LocalInv | SendOp::BindMw => (),
            SendOp::Read | SendOp::ReadInv => {
                new.set_sges(wr.sges()).ok_or(EINVAL)?;
                new.name_sink().ok_or(EINVAL)?;
                // READ_WITH_INV invalidates the sink, in all drivers. The core passes that key in
                // `invalidate_rkey`, but changes it afterwards (`rdma_rw_update_lkey`).
                if let (SendOp::ReadInv, [sink]) = (op, new.sges()) {
                    new.inval = Stag(sink.lkey);
                }
            }
            _ if flags & send_flags::INLINE != 0 => {
                new.bytes = wr.copy_inline(new.sqe.inline_bytes_mut())? as u32;
                new.inline = true;
            }
            _ => {
                if wr.sges().len() > self.max_sge as usize {
                    return Err(EINVAL);
                }
                new.set_sges(wr.sges()).ok_or(EINVAL)?;
            }
        }
        // Last, because this moves the region's page list into the request.
        if let rdma::SendOp::RegMr { mr, key, access } = wr.op() {
            new.reg = Some(RegWr::new(mr, key, access)?);
        }
        Ok(new)
    }
}
