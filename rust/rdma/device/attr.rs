// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices and ports.

use base::{
    bindings::{
        self,
        ib_device_attr,
        ib_port_attr, //
    },
    version::Count, //
};

/// Capabilities of a port (`enum ib_port_capability_mask_bits`).
pub mod port_cap {
    use base::bindings as b;

    /// It sets up connections by a connection manager.
    pub const CM_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_CM_SUP;
    /// It supports device management.
    pub const DEVICE_MGMT_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_DEVICE_MGMT_SUP;
}

/// The capabilities of a device (`struct ib_device_attr`). Numbers are those of one device; 0 means
/// that it has none.
#[derive(Clone, Copy, Default)]
pub struct DeviceAttr {
    /// The vendor, by its OUI.
    pub vendor_id: u32,
    /// The vendor's number of the part.
    pub vendor_part_id: u32,
    /// The version of the hardware.
    pub hw_ver: u32,
    /// The version of the firmware, in a layout of the vendor's.
    pub fw_ver: u64,
    /// An EUI-64, the same for all devices of a system image.
    pub sys_image_guid: [u8; 8],
    /// The size of a region, in bytes.
    pub max_mr_size: u64,
    /// The page sizes of regions: bit n stands for 2^n bytes.
    pub page_size_cap: u64,
    /// Fast registration, local invalidation and Send with Invalidate.
    pub mem_mgt_extensions: bool,
    /// Memory windows of type 1.
    pub mem_window: bool,
    /// Memory windows of type 2B.
    pub mem_window_2b: bool,
    /// `rdma link delete` may remove the device.
    pub allow_user_unreg: bool,
    /// A key of all memory of the kernel, without a region.
    pub local_dma_lkey: bool,
    /// Memory on demand: Sends, Receives, those of an SRQ included, Writes and Reads of reliable
    /// connections.
    pub on_demand: bool,
    /// Regions of [`Type::SgGaps`](crate::mr::Type::SgGaps).
    pub sg_gaps_reg: bool,
    /// Queue pairs.
    pub max_qp: u32,
    /// Outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request.
    pub max_recv_sge: u32,
    /// Elements of a Read request.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Outstanding requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Elements of a request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Reads that a peer may have outstanding on a QP.
    pub max_qp_rd_atom: u32,
    /// Reads that a QP may have outstanding.
    pub max_qp_init_rd_atom: u32,
    /// Reads that the peers may have outstanding on all QPs together.
    pub max_res_rd_atom: u32,
    /// Pages of a region for fast registration.
    pub max_fast_reg_page_list_len: u32,
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
            (
                self.on_demand,
                bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING,
            ),
        ] {
            if on {
                out.kernel_cap_flags |= u64::from(cap);
            }
        }
        if self.on_demand {
            let caps = &mut out.odp_caps;
            caps.general_caps = u64::from(bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT);
            caps.per_transport_caps.rc_odp_caps =
                bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND
                    | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV
                    | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE
                    | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ
                    | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV;
        }
        out.fw_ver = self.fw_ver;
        out.sys_image_guid = u64::from_ne_bytes(self.sys_image_guid);
        out.max_mr_size = self.max_mr_size;
        out.page_size_cap = self.page_size_cap;
        out.vendor_id = self.vendor_id;
        out.vendor_part_id = self.vendor_part_id;
        out.hw_ver = self.hw_ver;
        out.max_qp = Count::at_most(self.max_qp);
        out.max_qp_wr = Count::at_most(self.max_qp_wr);
        out.max_send_sge = Count::at_most(self.max_send_sge);
        out.max_recv_sge = Count::at_most(self.max_recv_sge);
        out.max_sge_rd = Count::at_most(self.max_sge_rd);
        out.max_cq = Count::at_most(self.max_cq);
        out.max_cqe = Count::at_most(self.max_cqe);
        out.max_mr = Count::at_most(self.max_mr);
        out.max_pd = Count::at_most(self.max_pd);
        out.max_mw = Count::at_most(self.max_mw);
        out.max_srq = Count::at_most(self.max_srq);
        out.max_srq_wr = Count::at_most(self.max_srq_wr);
        out.max_srq_sge = Count::at_most(self.max_srq_sge);
        out.max_qp_rd_atom = Count::at_most(self.max_qp_rd_atom);
        out.max_qp_init_rd_atom = Count::at_most(self.max_qp_init_rd_atom);
        out.max_res_rd_atom = Count::at_most(self.max_res_rd_atom);
        out.max_fast_reg_page_list_len = self.max_fast_reg_page_list_len;
    }
}

/// Entries of the P_Key table. No protocol here has P_Keys, but rdma_cm reads entry 0 of a device
/// that it chooses for the loopback address (`cma_bind_loopback`).
pub(crate) const PKEYS: u16 = 1;

/// The state of a port (`struct ib_port_attr`).
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    /// Whether it has a link.
    pub active: bool,
    /// The greatest MTU, in bytes; consumers get the next lower size that verbs know.
    pub max_mtu: u32,
    /// The MTU, in bytes, likewise.
    pub active_mtu: u32,
    /// The number of GIDs.
    pub gid_tbl_len: u32,
    /// The size of a message, in bytes.
    pub max_msg_sz: u32,
    /// The speed of a lane (`enum ib_port_speed`).
    pub speed: u16,
    /// The number of lanes (`enum ib_port_width`).
    pub width: u8,
    /// Of [`port_cap`].
    pub cap_flags: u32,
}

/// The greatest MTU of the enumeration that fits into `bytes`, the least if none does
/// (`ib_mtu_int_to_enum`).
pub(crate) fn mtu_enum(bytes: u32) -> bindings::ib_mtu {
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
        out.gid_tbl_len = Count::at_most(self.gid_tbl_len);
        out.max_msg_sz = self.max_msg_sz;
        out.pkey_tbl_len = PKEYS;
        out.active_speed = self.speed;
        out.active_width = self.width;
        out.port_cap_flags = self.cap_flags;
    }
}
