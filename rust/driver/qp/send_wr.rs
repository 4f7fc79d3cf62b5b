// SPDX-License-Identifier: GPL-2.0

//! Send work requests: private copies, checked.

use super::rq::listed;
use crate::{
    tpt::fast_reg::RegWr,
    uapi::abi,
    wc::WcOp,
    Siw, //
};
use iwarp::{
    mem::{
        access::{
            Accessor,
            Bind,
            Rights, //
        },
        atomic::AtomicOp,
        stag::Stag, //
    },
    verdict::WcStatus,
    wire::rdmap::Immediate, //
};
use kernel::prelude::*;
use rdma::{
    self,
    mr::access,
    send_flags,
    Sge, //
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
    SendImm,
    WriteImm,
    FetchAdd,
    CmpSwap,
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
            Self::SendImm => WcOp::SendImm,
            Self::WriteImm => WcOp::WriteImm,
            Self::FetchAdd => WcOp::FetchAdd,
            Self::CmpSwap => WcOp::CmpSwap,
        }
    }

    /// Whether it is an atomic operation.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// Whether it waits for a response, and takes a place in the ORQ.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::ReadInv) || self.is_atomic()
    }

    /// Whether it is for the table, and not for the peer.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::RegMr | Self::LocalInv | Self::BindMw)
    }

    /// Whether Immediate Data comes with it.
    fn has_imm(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }
}

/// A send work request: a private copy, checked.
pub(crate) struct SendWr {
    /// Work request ID, list or inline payload, and the address at the peer: the sink of a Write,
    /// the source of a Read. A Read has one local element, its sink.
    pub(super) sqe: abi::Sqe,
    pub(crate) op: SendOp,
    pub(crate) signalled: bool,
    /// Wait for earlier Reads.
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    /// Bytes of payload, and whether they are inline.
    bytes: u32,
    inline: bool,
    /// Write: the sink, Read: the source; or the target of an atomic operation.
    pub(crate) remote_stag: Stag,
    /// The STag to invalidate, here or at the peer.
    pub(crate) inval: Stag,
    /// Immediate Data.
    pub(crate) imm: Immediate,
    pub(crate) reg: Option<RegWr>,
}

impl SendWr {
    /// An empty one, for [`Sq::take`](super::sq::Sq::take).
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
            imm: [0; 4],
            reg: None,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.sqe.id
    }

    /// Write: address of the sink, Read: of the source; or of the target.
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

    /// The atomic operation. Its operands are behind the sink.
    pub(crate) fn atomic(&self) -> AtomicOp {
        let [_, first, second, ..] = &self.sqe.sge;
        match self.op {
            SendOp::CmpSwap => AtomicOp::CmpSwap {
                compare: first.addr,
                compare_mask: u64::MAX,
                swap: second.addr,
                swap_mask: u64::MAX,
            },
            _ => AtomicOp::FetchAdd {
                add: first.addr,
                mask: 0,
            },
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

    /// Takes Immediate Data off the end of a program's list.
    fn split_imm(&mut self) -> Option<()> {
        let last = self.sqe.num_sge.checked_sub(1)?;
        self.imm = self.sqe.sge.get(usize::from(last))?.lkey.to_ne_bytes();
        self.sqe.num_sge = last;
        Some(())
    }

    /// Takes the operands of an atomic operation off a program's list, behind the sink.
    fn split_operands(&mut self) -> Option<()> {
        let wanted = match self.op {
            SendOp::CmpSwap => 3,
            _ => 2,
        };
        (self.sqe.num_sge == wanted).then_some(())?;
        self.sqe.num_sge = 1;
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

    /// Checks the program's element that was copied into `sqe`, and fills in the other fields.
    pub(super) fn parse(&mut self, features: u32) -> Result<(), BadSqe> {
        let sqe = &self.sqe;
        let id = sqe.id;
        let bad = |op: WcOp, status| BadSqe { id, op, status };
        let op =
            user_op(sqe.opcode, features).ok_or_else(|| bad(WcOp::Send, WcStatus::LocQpOpErr))?;
        self.op = op;
        self.signalled = sqe.flags & abi::wqe::SIGNALLED != 0;
        self.fence = sqe.flags & abi::wqe::READ_FENCE != 0;
        self.solicited = sqe.flags & abi::wqe::SOLICITED != 0;
        // The operation tells which of the two it is.
        self.inval = Stag(sqe.rkey);
        self.remote_stag = Stag(sqe.rkey);
        if matches!(op, SendOp::LocalInv | SendOp::BindMw) {
            self.bytes = 0;
            self.inline = false;
            return Ok(());
        }
        if sqe.flags & abi::wqe::INLINE != 0 && !op.is_answered() {
            let [first, ..] = sqe.sge;
            let len = first.len as usize;
            if len > abi::MAX_INLINE {
                return Err(bad(op.wc(), WcStatus::LocLenErr));
            }
            self.imm = first.lkey.to_ne_bytes();
            self.bytes = first.len;
            self.inline = true;
            return Ok(());
        }
        let split = match op {
            SendOp::Read => self.name_sink(),
            _ if op.is_atomic() => self.split_operands(),
            _ if op.has_imm() => self.split_imm(),
            _ => Some(()),
        };
        let bytes = split.and_then(|()| listed(self.sqe.num_sge, &self.sqe.sge));
        self.bytes = bytes.ok_or_else(|| bad(op.wc(), WcStatus::LocQpOpErr))?;
        self.inline = false;
        if op.is_atomic() && self.bytes != AtomicOp::LEN {
            return Err(bad(op.wc(), WcStatus::LocLenErr));
        }
        Ok(())
    }

    /// A kernel consumer's, for a queue with these properties. `EINVAL` if it cannot be executed.
    /// Any context.
    pub(super) fn of_consumer(
        wr: &rdma::SendWr<'_, Siw>,
        sig_all: bool,
        max_sge: u32,
    ) -> Result<Self> {
        let flags = wr.flags();
        let mut imm = [0; 4];
        let mut operands = [0; 2];
        let (op, remote_stag, remote_addr, inval) = match wr.op() {
            rdma::SendOp::SendImm { imm: data } => {
                imm = data;
                (SendOp::SendImm, 0, 0, 0)
            }
            rdma::SendOp::WriteImm {
                raddr,
                rkey,
                imm: data,
            } => {
                imm = data;
                (SendOp::WriteImm, rkey, raddr, 0)
            }
            rdma::SendOp::FetchAdd { raddr, rkey, add } => {
                operands = [add, 0];
                (SendOp::FetchAdd, rkey, raddr, 0)
            }
            rdma::SendOp::CmpSwap {
                raddr,
                rkey,
                compare,
                swap,
            } => {
                operands = [compare, swap];
                (SendOp::CmpSwap, rkey, raddr, 0)
            }
            rdma::SendOp::Send => (SendOp::Send, 0, 0, 0),
            rdma::SendOp::SendInv { rkey } => (SendOp::SendInv, 0, 0, rkey),
            rdma::SendOp::Write { raddr, rkey } => (SendOp::Write, rkey, raddr, 0),
            rdma::SendOp::Read { raddr, rkey } => (SendOp::Read, rkey, raddr, 0),
            rdma::SendOp::ReadInv { raddr, rkey, .. } => (SendOp::ReadInv, rkey, raddr, 0),
            rdma::SendOp::LocalInv { rkey } => (SendOp::LocalInv, 0, 0, rkey),
            rdma::SendOp::RegMr { .. } => (SendOp::RegMr, 0, 0, 0),
            _ => return Err(EINVAL),
        };
        let mut new = Self {
            op,
            signalled: sig_all || flags & send_flags::SIGNALED != 0,
            fence: flags & send_flags::FENCE != 0,
            solicited: flags & send_flags::SOLICITED != 0,
            remote_stag: Stag(remote_stag),
            inval: Stag(inval),
            imm,
            ..Self::empty()
        };
        new.sqe.id = wr.wr_id();
        new.sqe.raddr = remote_addr;
        match op {
            SendOp::RegMr | SendOp::LocalInv | SendOp::BindMw => (),
            SendOp::FetchAdd | SendOp::CmpSwap => {
                let [sink] = wr.sges() else {
                    return Err(EINVAL);
                };
                if sink.len != AtomicOp::LEN {
                    return Err(EINVAL);
                }
                new.set_sges(&[*sink]).ok_or(EINVAL)?;
                let [_, places @ ..] = &mut new.sqe.sge;
                for (place, operand) in places.iter_mut().zip(operands) {
                    place.addr = operand;
                }
            }
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
                if wr.sges().len() > max_sge as usize {
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

/// A malformed element of a program, which completes with an error.
pub(crate) struct BadSqe {
    pub(crate) id: u64,
    pub(crate) op: WcOp,
    pub(crate) status: WcStatus,
}

/// The operation of a program's element, if the library knows it. The other opcodes of the ABI are
/// reserved for the kernel, or unused.
fn user_op(opcode: u8, features: u32) -> Option<SendOp> {
    let windows = features & abi::feature::WINDOWS != 0;
    let rfc7306 = features & abi::feature::RFC7306 != 0;
    match opcode {
        abi::op::INVAL_STAG if windows => Some(SendOp::LocalInv),
        abi::op::BIND_MW if windows => Some(SendOp::BindMw),
        abi::op::SEND_WITH_IMM if rfc7306 => Some(SendOp::SendImm),
        abi::op::WRITE_WITH_IMM if rfc7306 => Some(SendOp::WriteImm),
        abi::op::FETCH_AND_ADD if rfc7306 => Some(SendOp::FetchAdd),
        abi::op::COMP_AND_SWAP if rfc7306 => Some(SendOp::CmpSwap),
        abi::op::WRITE => Some(SendOp::Write),
        abi::op::READ => Some(SendOp::Read),
        abi::op::SEND => Some(SendOp::Send),
        abi::op::SEND_REMOTE_INV => Some(SendOp::SendInv),
        _ => None,
    }
}
