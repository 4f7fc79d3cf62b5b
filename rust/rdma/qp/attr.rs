// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs.

use core::marker::PhantomData;

use kernel::prelude::*;

use crate::{
    cq::Cq,
    device::{
        mtu_enum,
        Driver,
        PKEYS,
        PORT, //
    },
    srq::Srq, //
};
use base::{
    bindings::{
        self,
        ib_qp_attr,
        ib_qp_cap,
        ib_qp_init_attr, //
    },
    version::Count, //
};

/// Sizes of a QP (`struct ib_qp_cap`).
#[derive(Clone, Copy, Default)]
pub struct Cap {
    /// The number of requests that the send queue has room for.
    pub max_send_wr: u32,
    /// The number of requests that the receive queue has room for.
    pub max_recv_wr: u32,
    /// The number of elements that a send request may have.
    pub max_send_sge: u32,
    /// The number of elements that a receive request may have.
    pub max_recv_sge: u32,
    /// The number of bytes that a send request may carry itself.
    pub max_inline_data: u32,
}

impl Cap {
    pub(super) fn fill(&self, out: &mut ib_qp_cap) {
        out.max_send_wr = self.max_send_wr;
        out.max_recv_wr = self.max_recv_wr;
        out.max_send_sge = self.max_send_sge;
        out.max_recv_sge = self.max_recv_sge;
        out.max_inline_data = self.max_inline_data;
    }
}

/// The requested attributes of a QP (`struct ib_qp_init_attr`).
pub struct InitAttr<'a, D: Driver> {
    raw: &'a ib_qp_init_attr,
    _p: PhantomData<fn() -> D>,
}

impl<'a, D: Driver> InitAttr<'a, D> {
    /// # Safety
    ///
    /// `raw` is valid during `'a`, and its queues are null or live objects of `D`.
    pub(super) unsafe fn from_raw(raw: *const ib_qp_init_attr) -> Self {
        Self {
            // SAFETY: By the requirements of this function.
            raw: unsafe { &*raw },
            _p: PhantomData,
        }
    }

    /// Whether it is reliable and connected.
    pub fn is_rc(&self) -> bool {
        self.raw.qp_type == bindings::ib_qp_type_IB_QPT_RC
    }

    /// `enum ib_qp_create_flags`.
    pub fn create_flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// Whether every send work request completes with an entry of the CQ. `EINVAL` if the consumer
    /// says neither.
    pub fn sig_all(&self) -> Result<bool> {
        match self.raw.sq_sig_type {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR => Ok(true),
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR => Ok(false),
            _ => Err(EINVAL),
        }
    }

    /// The requested sizes.
    pub fn cap(&self) -> Cap {
        let cap = &self.raw.cap;
        Cap {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }

    fn cq(raw: *const bindings::ib_cq) -> Option<&'a Cq<D>> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: It is live by the requirements of `from_raw`; the core holds it for the QP.
        Some(unsafe { Cq::from_raw(raw) })
    }

    /// The CQ of send work requests. `None` only for kinds of QPs that have none.
    pub fn send_cq(&self) -> Option<&'a Cq<D>> {
        Self::cq(self.raw.send_cq)
    }

    /// The CQ of receive work requests. `None` only for kinds of QPs that have none.
    pub fn recv_cq(&self) -> Option<&'a Cq<D>> {
        Self::cq(self.raw.recv_cq)
    }

    /// The SRQ that replaces the receive queue, if one does.
    pub fn srq(&self) -> Option<&'a Srq<D>> {
        if self.raw.srq.is_null() {
            return None;
        }
        // SAFETY: It is live by the requirements of `from_raw`; the core holds it for the QP.
        Some(unsafe { Srq::from_raw(self.raw.srq) })
    }
}

/// The state of a QP in verbs (`enum ib_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Just made.
    Reset,
    /// Receive requests may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue drains. For iWARP: the connection is being closed.
    Sqd,
    /// The send queue has failed. For iWARP: the connection is being terminated.
    Sqe,
    /// All requests are flushed.
    Err,
}

impl State {
    fn from_raw(raw: bindings::ib_qp_state) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Err,
            _ => return None,
        })
    }

    fn as_raw(self) -> bindings::ib_qp_state {
        match self {
            Self::Reset => bindings::ib_qp_state_IB_QPS_RESET,
            Self::Init => bindings::ib_qp_state_IB_QPS_INIT,
            Self::Rtr => bindings::ib_qp_state_IB_QPS_RTR,
            Self::Rts => bindings::ib_qp_state_IB_QPS_RTS,
            Self::Sqd => bindings::ib_qp_state_IB_QPS_SQD,
            Self::Sqe => bindings::ib_qp_state_IB_QPS_SQE,
            Self::Err => bindings::ib_qp_state_IB_QPS_ERR,
        }
    }
}

/// The address of a QP's peer: an address vector with a global route.
#[derive(Clone, Copy)]
pub struct Av {
    /// One of the peer's GIDs.
    pub dgid: [u8; 16],
    /// Our GID that `sgid_index` selects.
    pub sgid: [u8; 16],
    /// The index of `sgid`.
    pub sgid_index: u8,
    /// The traffic class of IPv6, or the type of service of IPv4.
    pub traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    sl: u8,
    static_rate: u8,
}

/// The largest [`Path::timeout`]: it has five bits.
const MAX_TIMEOUT: u8 = 31;

/// The attributes that connect a QP without a connection manager, as far as they were set.
#[derive(Clone, Copy, Default)]
pub struct Path {
    /// The peer.
    pub av: Option<Av>,
    /// The number of the peer's QP.
    pub dest_qpn: Option<u32>,
    /// The first number of packets that come in.
    pub rq_psn: Option<u32>,
    /// The first number of packets that go out.
    pub sq_psn: Option<u32>,
    /// 4.096 us times 2 to the power of this, which is below 32; 0 means no timeout.
    pub timeout: Option<u8>,
    /// The number of retries after a timeout.
    pub retry_cnt: Option<u8>,
    /// The number of Reads that this side may have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// The number of Reads that the peer may have outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    rnr_retry: Option<u8>,
    min_rnr_timer: Option<u8>,
    pkey_index: Option<u16>,
    mtu: Option<bindings::ib_mtu>,
}

impl Path {
    fn fill(&self, attr: &mut ib_qp_attr) {
        if let Some(av) = &self.av {
            let ah = &mut attr.ah_attr;
            ah.grh.dgid = bindings::ib_gid { raw: av.dgid };
            ah.grh.sgid_index = av.sgid_index;
            ah.grh.traffic_class = av.traffic_class;
            ah.grh.flow_label = av.flow_label;
            ah.grh.hop_limit = av.hop_limit;
            ah.sl = av.sl;
            ah.static_rate = av.static_rate;
            ah.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            ah.port_num = PORT;
        }
        attr.dest_qp_num = self.dest_qpn.unwrap_or(0);
        attr.rq_psn = self.rq_psn.unwrap_or(0);
        attr.sq_psn = self.sq_psn.unwrap_or(0);
        attr.timeout = self.timeout.unwrap_or(0);
        attr.retry_cnt = self.retry_cnt.unwrap_or(0);
        attr.rnr_retry = self.rnr_retry.unwrap_or(0);
        attr.min_rnr_timer = self.min_rnr_timer.unwrap_or(0);
        attr.pkey_index = self.pkey_index.unwrap_or(0);
        for (to, from) in [
            (&mut attr.max_rd_atomic, self.max_rd_atomic),
            (&mut attr.max_dest_rd_atomic, self.max_dest_rd_atomic),
        ] {
            *to = from.unwrap_or(*to);
        }
        attr.path_mtu = self.mtu.unwrap_or(attr.path_mtu);
    }
}

/// Changes to a QP (`struct ib_qp_attr`). A getter returns `None` if the change is not requested.
pub struct Attr<'a> {
    raw: &'a ib_qp_attr,
    mask: u32,
}

impl<'a> Attr<'a> {
    /// # Safety
    ///
    /// If there is an address vector, its source GID entry is null or valid during `'a`.
    pub(super) unsafe fn new(raw: &'a ib_qp_attr, mask: u32) -> Self {
        Self { raw, mask }
    }

    /// `path`, with the changes. `EINVAL` for a timeout or an index of a P_Key that does not exist,
    /// and for an address vector without a global route: the core drops the LID of one for iWARP,
    /// so it names nobody.
    pub fn path(&self, path: Path) -> Result<Path> {
        use bindings as b;
        let raw = self.raw;
        let path = Path {
            av: match self.get(b::ib_qp_attr_mask_IB_QP_AV, ()) {
                Some(()) => Some(self.av().ok_or(EINVAL)?),
                None => path.av,
            },
            dest_qpn: self
                .get(b::ib_qp_attr_mask_IB_QP_DEST_QPN, raw.dest_qp_num)
                .or(path.dest_qpn),
            rq_psn: self
                .get(b::ib_qp_attr_mask_IB_QP_RQ_PSN, raw.rq_psn)
                .or(path.rq_psn),
            sq_psn: self
                .get(b::ib_qp_attr_mask_IB_QP_SQ_PSN, raw.sq_psn)
                .or(path.sq_psn),
            timeout: self
                .get(b::ib_qp_attr_mask_IB_QP_TIMEOUT, raw.timeout)
                .or(path.timeout),
            retry_cnt: self
                .get(b::ib_qp_attr_mask_IB_QP_RETRY_CNT, raw.retry_cnt)
                .or(path.retry_cnt),
            max_rd_atomic: self
                .get(b::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC, raw.max_rd_atomic)
                .or(path.max_rd_atomic),
            max_dest_rd_atomic: self
                .get(
                    b::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
                    raw.max_dest_rd_atomic,
                )
                .or(path.max_dest_rd_atomic),
            rnr_retry: self
                .get(b::ib_qp_attr_mask_IB_QP_RNR_RETRY, raw.rnr_retry)
                .or(path.rnr_retry),
            min_rnr_timer: self
                .get(b::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER, raw.min_rnr_timer)
                .or(path.min_rnr_timer),
            pkey_index: self
                .get(b::ib_qp_attr_mask_IB_QP_PKEY_INDEX, raw.pkey_index)
                .or(path.pkey_index),
            mtu: self
                .get(b::ib_qp_attr_mask_IB_QP_PATH_MTU, raw.path_mtu)
                .or(path.mtu),
        };
        let exists = path.timeout.is_none_or(|timeout| timeout <= MAX_TIMEOUT)
            && path.pkey_index.is_none_or(|index| index < PKEYS);
        exists.then_some(path).ok_or(EINVAL)
    }

    /// Whether verbs have this change for a QP in the state `from`, with all attributes that they
    /// demand and no others.
    pub fn is_standard(&self, from: State) -> bool {
        let to = self.state().unwrap_or(from);
        let presumed = self.get(
            bindings::ib_qp_attr_mask_IB_QP_CUR_STATE,
            self.raw.cur_qp_state,
        );
        if presumed.is_some_and(|presumed| presumed != from.as_raw()) {
            return false;
        }
        // SAFETY: The function looks the numbers up in a constant table, which has all states.
        unsafe {
            bindings::ib_modify_qp_is_ok(
                from.as_raw(),
                to.as_raw(),
                bindings::ib_qp_type_IB_QPT_RC,
                self.mask as bindings::ib_qp_attr_mask,
            )
        }
    }

    /// Whether nothing but the state changes.
    pub fn is_state_alone(&self) -> bool {
        self.mask == bindings::ib_qp_attr_mask_IB_QP_STATE
    }

    /// Whether the change sets rights and port, as those of `rdma_init_qp_attr()` for iWARP do, and
    /// maybe the state, and nothing else.
    pub fn is_from_cm(&self) -> bool {
        use bindings as b;
        let set = b::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS | b::ib_qp_attr_mask_IB_QP_PORT;
        match self.mask & b::ib_qp_attr_mask_IB_QP_STATE {
            // A change to RTS, which is the driver's, leaves the port.
            0 => self.mask & !set == 0,
            state => self.mask == set | state,
        }
    }

    /// Whether the change has an address vector, which iw_cm never gives.
    pub fn has_av(&self) -> bool {
        self.mask & bindings::ib_qp_attr_mask_IB_QP_AV != 0
    }

    fn av(&self) -> Option<Av> {
        let ah = &self.raw.ah_attr;
        if u32::from(ah.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH == 0 {
            return None;
        }
        // SAFETY: By the requirements of `new`. Both are the bytes of the union.
        let sgid = unsafe { ah.grh.sgid_attr.as_ref()?.gid.raw };
        // SAFETY: Any bytes are a GID, whichever field of the union was set.
        let dgid = unsafe { ah.grh.dgid.raw };
        Some(Av {
            dgid,
            sgid,
            sgid_index: ah.grh.sgid_index,
            traffic_class: ah.grh.traffic_class,
            flow_label: ah.grh.flow_label,
            hop_limit: ah.grh.hop_limit,
            sl: ah.sl,
            static_rate: ah.static_rate,
        })
    }

    /// Whether there are changes other than the standard ones.
    pub fn has_unknown_bits(&self) -> bool {
        self.mask & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0
    }

    fn get<T>(&self, bit: bindings::ib_qp_attr_mask, value: T) -> Option<T> {
        (self.mask & bit != 0).then_some(value)
    }

    /// The new state. It is for the provider to check whether the QP may go there.
    pub fn state(&self) -> Option<State> {
        self.get(
            bindings::ib_qp_attr_mask_IB_QP_STATE,
            State::from_raw(self.raw.qp_state),
        )?
    }

    /// Whether the state of the path is set, and if so whether that asks for another path now.
    pub fn leaves_path(&self) -> Option<bool> {
        self.get(
            bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE,
            self.raw.path_mig_state == bindings::ib_mig_state_IB_MIG_MIGRATED,
        )
    }

    /// The rights of the peer, of [`access`](crate::mr::access).
    pub fn access(&self) -> Option<u32> {
        self.get(
            bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
            self.raw.qp_access_flags as u32,
        )
    }
}

/// The attributes of a QP, for [`Operations::query`](super::Operations::query).
#[derive(Clone, Copy)]
pub struct Info {
    /// The state in verbs.
    pub state: State,
    /// The actual sizes.
    pub cap: Cap,
    /// In bytes; the consumer gets the next lower size that verbs know.
    pub path_mtu: u32,
    /// The rights of the peer, of [`access`](crate::mr::access).
    pub access: u32,
    /// The number of Reads that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// The number of Reads that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// The values that are set here override those above.
    pub path: Path,
    /// Every send work request completes with an entry of the CQ.
    pub sig_all: bool,
    /// Another path takes over when this one is lost.
    pub armed: bool,
}

impl Info {
    pub(super) fn fill(&self, attr: &mut ib_qp_attr, init: &mut ib_qp_init_attr) {
        // The caller need not have cleared them, and copies more to the user than is set here
        // (`ib_uverbs_query_qp`).
        *attr = pin_init::zeroed();
        *init = pin_init::zeroed();
        attr.qp_state = self.state.as_raw();
        attr.cur_qp_state = attr.qp_state;
        self.cap.fill(&mut attr.cap);
        attr.path_mtu = mtu_enum(self.path_mtu);
        attr.qp_access_flags = Count::at_most(self.access);
        attr.max_rd_atomic = self.max_rd_atomic;
        attr.path_mig_state = match self.armed {
            true => bindings::ib_mig_state_IB_MIG_ARMED,
            false => bindings::ib_mig_state_IB_MIG_MIGRATED,
        };
        attr.max_dest_rd_atomic = self.max_dest_rd_atomic;
        self.path.fill(attr);
        attr.port_num = PORT;
        self.cap.fill(&mut init.cap);
        init.sq_sig_type = if self.sig_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}
