// SPDX-License-Identifier: GPL-2.0

//! Attributes that verbs carry.

use core::marker::PhantomData;

use kernel::prelude::*;

use super::{
    object::{
        Cq,
        Srq, //
    },
    ops::Driver,
};
use crate::kapi::bindings::{
    self,
    ib_device_attr,
    ib_port_attr,
    ib_qp_attr,
    ib_qp_cap,
    ib_qp_init_attr,
    ib_srq_attr, //
};

/// Access rights of regions, windows and QPs.
pub(crate) mod access {
    use crate::kapi::bindings as b;

    pub(crate) const LOCAL_WRITE: u32 = b::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    pub(crate) const REMOTE_WRITE: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    pub(crate) const REMOTE_READ: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_READ;
    pub(crate) const MW_BIND: u32 = b::ib_access_flags_IB_ACCESS_MW_BIND;
    pub(crate) const ZERO_BASED: u32 = b::ib_access_flags_IB_ZERO_BASED;
    /// Rights a provider may ignore.
    pub(crate) const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}

/// Capabilities of a port.
pub(crate) mod port_cap {
    use crate::kapi::bindings as b;

    pub(crate) const CM_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_CM_SUP;
    pub(crate) const DEVICE_MGMT_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_DEVICE_MGMT_SUP;
}

/// What a device can do.
#[derive(Clone, Copy, Default)]
pub(crate) struct DeviceAttr {
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) fw_ver: u64,
    pub(crate) sys_image_guid: [u8; 8],
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) mem_mgt_extensions: bool,
    pub(crate) mem_window: bool,
    pub(crate) mem_window_2b: bool,
    pub(crate) allow_user_unreg: bool,
    pub(crate) local_dma_lkey: bool,
    pub(crate) sg_gaps_reg: bool,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_sge_rd: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_pd: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    pub(crate) max_res_rd_atom: u32,
    pub(crate) max_fast_reg_page_list_len: u32,
}

/// The core counts in `int`.
fn int(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

impl DeviceAttr {
    pub(super) fn fill(&self, out: &mut ib_device_attr) {
        *out = pin_init::zeroed();
        for (on, cap) in [
            (
                self.mem_mgt_extensions,
                bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS,
            ),
            (
                self.mem_window,
                bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW,
            ),
            (
                self.mem_window_2b,
                bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B,
            ),
        ] {
            if on {
                out.device_cap_flags |= cap as u64;
            }
        }
        for (on, cap) in [
            (
                self.allow_user_unreg,
                bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG,
            ),
            (
                self.local_dma_lkey,
                bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY,
            ),
            (
                self.sg_gaps_reg,
                bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG,
            ),
        ] {
            if on {
                out.kernel_cap_flags |= u64::from(cap);
            }
        }
        out.fw_ver = self.fw_ver;
        out.sys_image_guid = u64::from_ne_bytes(self.sys_image_guid);
        out.max_mr_size = self.max_mr_size;
        out.page_size_cap = self.page_size_cap;
        out.vendor_id = self.vendor_id;
        out.vendor_part_id = self.vendor_part_id;
        out.hw_ver = self.hw_ver;
        out.max_qp = int(self.max_qp);
        out.max_qp_wr = int(self.max_qp_wr);
        out.max_send_sge = int(self.max_send_sge);
        out.max_recv_sge = int(self.max_recv_sge);
        out.max_sge_rd = int(self.max_sge_rd);
        out.max_cq = int(self.max_cq);
        out.max_cqe = int(self.max_cqe);
        out.max_mr = int(self.max_mr);
        out.max_pd = int(self.max_pd);
        out.max_mw = int(self.max_mw);
        out.max_srq = int(self.max_srq);
        out.max_srq_wr = int(self.max_srq_wr);
        out.max_srq_sge = int(self.max_srq_sge);
        out.max_qp_rd_atom = int(self.max_qp_rd_atom);
        out.max_qp_init_rd_atom = int(self.max_qp_init_rd_atom);
        out.max_res_rd_atom = int(self.max_res_rd_atom);
        out.max_fast_reg_page_list_len = self.max_fast_reg_page_list_len;
    }
}

/// The state of a port.
#[derive(Clone, Copy, Default)]
pub(crate) struct PortAttr {
    pub(crate) active: bool,
    /// In bytes.
    pub(crate) max_mtu: u32,
    /// In bytes.
    pub(crate) active_mtu: u32,
    pub(crate) gid_tbl_len: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) speed: u16,
    pub(crate) width: u8,
    pub(crate) cap_flags: u32,
}

/// The greatest MTU of the enumeration that fits into `bytes`, the least if none does
/// (`ib_mtu_int_to_enum`).
fn mtu_enum(bytes: u32) -> bindings::ib_mtu {
    match bytes {
        4096.. => bindings::ib_mtu_IB_MTU_4096,
        2048.. => bindings::ib_mtu_IB_MTU_2048,
        1024.. => bindings::ib_mtu_IB_MTU_1024,
        512.. => bindings::ib_mtu_IB_MTU_512,
        _ => bindings::ib_mtu_IB_MTU_256,
    }
}

impl PortAttr {
    pub(super) fn fill(&self, out: &mut ib_port_attr) {
        *out = pin_init::zeroed();
        (out.state, out.phys_state) = if self.active {
            (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP as u8,
            )
        } else {
            (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED as u8,
            )
        };
        out.max_mtu = mtu_enum(self.max_mtu);
        out.active_mtu = mtu_enum(self.active_mtu);
        out.gid_tbl_len = int(self.gid_tbl_len);
        out.max_msg_sz = self.max_msg_sz;
        out.active_speed = self.speed;
        out.active_width = self.width;
        out.port_cap_flags = self.cap_flags;
    }
}

/// What a CQ is asked to be.
#[derive(Clone, Copy)]
pub(crate) struct CqAttr {
    pub(crate) cqe: u32,
    pub(crate) flags: u32,
}

/// Sizes of a QP.
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

impl QpCap {
    fn fill(&self, out: &mut ib_qp_cap) {
        out.max_send_wr = self.max_send_wr;
        out.max_recv_wr = self.max_recv_wr;
        out.max_send_sge = self.max_send_sge;
        out.max_recv_sge = self.max_recv_sge;
        out.max_inline_data = self.max_inline_data;
    }
}

/// What a QP is asked to be.
pub(crate) struct QpInitAttr<'a, D: Driver> {
    raw: &'a ib_qp_init_attr,
    _p: PhantomData<fn() -> D>,
}

impl<'a, D: Driver> QpInitAttr<'a, D> {
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

    /// Whether it is to be reliable and connected.
    pub(crate) fn is_rc(&self) -> bool {
        self.raw.qp_type == bindings::ib_qp_type_IB_QPT_RC
    }

    /// `enum ib_qp_create_flags`.
    pub(crate) fn create_flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// Whether every send work request is to complete with an entry of the CQ.
    pub(crate) fn sig_all(&self) -> Result<bool> {
        match self.raw.sq_sig_type {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR => Ok(true),
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR => Ok(false),
            _ => Err(EINVAL),
        }
    }

    /// The sizes asked for.
    pub(crate) fn cap(&self) -> QpCap {
        let cap = &self.raw.cap;
        QpCap {
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

    /// Where send work requests complete.
    pub(crate) fn send_cq(&self) -> Option<&'a Cq<D>> {
        Self::cq(self.raw.send_cq)
    }

    /// Where receive work requests complete.
    pub(crate) fn recv_cq(&self) -> Option<&'a Cq<D>> {
        Self::cq(self.raw.recv_cq)
    }

    /// The SRQ that replaces the receive queue.
    pub(crate) fn srq(&self) -> Option<&'a Srq<D>> {
        if self.raw.srq.is_null() {
            return None;
        }
        // SAFETY: It is live by the requirements of `from_raw`; the core holds it for the QP.
        Some(unsafe { Srq::from_raw(self.raw.srq) })
    }
}

/// The state of a QP as verbs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpState {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl QpState {
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

/// Changes to a QP. A getter returns `None` if the change is not asked for.
pub(crate) struct QpAttr<'a> {
    raw: &'a ib_qp_attr,
    mask: u32,
}

impl<'a> QpAttr<'a> {
    pub(super) fn new(raw: &'a ib_qp_attr, mask: u32) -> Self {
        Self { raw, mask }
    }

    /// Whether there are changes that are none of the standard ones.
    pub(crate) fn has_unknown_bits(&self) -> bool {
        self.mask & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0
    }

    fn get<T>(&self, bit: bindings::ib_qp_attr_mask, value: T) -> Option<T> {
        (self.mask & bit != 0).then_some(value)
    }

    pub(crate) fn state(&self) -> Option<QpState> {
        self.get(
            bindings::ib_qp_attr_mask_IB_QP_STATE,
            QpState::from_raw(self.raw.qp_state),
        )?
    }

    pub(crate) fn access(&self) -> Option<u32> {
        self.get(
            bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
            self.raw.qp_access_flags as u32,
        )
    }
}

/// What a QP is.
#[derive(Clone, Copy)]
pub(crate) struct QpInfo {
    pub(crate) state: QpState,
    pub(crate) cap: QpCap,
    /// In bytes.
    pub(crate) path_mtu: u32,
    pub(crate) access: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) sig_all: bool,
}

impl QpInfo {
    pub(super) fn fill(&self, attr: &mut ib_qp_attr, init: &mut ib_qp_init_attr) {
        // The caller need not have cleared them, and copies more to the user than is set here
        // (`ib_uverbs_query_qp`).
        *attr = pin_init::zeroed();
        *init = pin_init::zeroed();
        attr.qp_state = self.state.as_raw();
        attr.cur_qp_state = attr.qp_state;
        self.cap.fill(&mut attr.cap);
        attr.path_mtu = mtu_enum(self.path_mtu);
        attr.qp_access_flags = int(self.access);
        attr.max_rd_atomic = self.max_rd_atomic;
        attr.max_dest_rd_atomic = self.max_dest_rd_atomic;
        attr.port_num = 1;
        self.cap.fill(&mut init.cap);
        init.sq_sig_type = if self.sig_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}

/// What an SRQ is asked to be.
#[derive(Clone, Copy)]
pub(crate) struct SrqInitAttr {
    /// Whether it is of the one type iWARP knows.
    pub(crate) basic: bool,
    pub(crate) attr: SrqAttr,
}

/// What an SRQ is.
#[derive(Clone, Copy, Default)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
}

impl SrqAttr {
    pub(super) fn new(raw: &ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    pub(super) fn fill(&self, out: &mut ib_srq_attr) {
        out.max_wr = self.max_wr;
        out.max_sge = self.max_sge;
        out.srq_limit = self.limit;
    }
}

/// What of an SRQ is to change.
#[derive(Clone, Copy)]
pub(crate) struct SrqMask {
    pub(crate) max_wr: bool,
    pub(crate) limit: bool,
}

/// What a CQ is to tell about.
#[derive(Clone, Copy)]
pub(crate) struct Notify {
    pub(crate) solicited_only: bool,
    pub(crate) report_missed: bool,
}

/// A region of user memory to be registered.
#[derive(Clone, Copy)]
pub(crate) struct UserMrReq {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) iova: u64,
    pub(crate) access: u32,
}

/// What kind of region a kernel consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MrType {
    MemReg,
    SgGaps,
    Other(u32),
}

impl MrType {
    pub(super) fn from_raw(raw: bindings::ib_mr_type) -> Self {
        match raw {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => Self::MemReg,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => Self::SgGaps,
            other => Self::Other(other),
        }
    }
}
