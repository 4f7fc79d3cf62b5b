// SPDX-License-Identifier: GPL-2.0

//! Attributes of devices and ports.

use crate::kapi::{
    bindings::{
        self,
        ib_device_attr,
        ib_port_attr, //
    },
    version::Count, //
};

/// Capabilities of a port.
pub(crate) mod port_cap {
    use crate::kapi::bindings as b;

    pub(crate) const CM_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_CM_SUP;
    pub(crate) const DEVICE_MGMT_SUP: u32 = b::ib_port_capability_mask_bits_IB_PORT_DEVICE_MGMT_SUP;
}

/// The capabilities of a device.
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
pub(in crate::kapi::rdma) fn mtu_enum(bytes: u32) -> bindings::ib_mtu {
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
        out.active_speed = self.speed;
        out.active_width = self.width;
        out.port_cap_flags = self.cap_flags;
    }
}
