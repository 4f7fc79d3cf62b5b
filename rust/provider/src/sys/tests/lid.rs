// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Ports and peers that are named by their LIDs.

use super::{
    fake::*,
    *, //
};

/// The bytes of an address vector: destination and source GID, LID, and whether the GIDs count.
fn names(ah: &ibv_ah_attr) -> ([u8; 16], u8, u16, u8) {
    // SAFETY: Any bytes are valid.
    let dgid = unsafe { ah.grh.dgid.raw };
    (dgid, ah.grh.sgid_index, ah.dlid, ah.is_global)
}

#[test]
fn the_lid_is_half_of_an_address() {
    let lids = [
        ([10, 77, 1, 2], [255, 255, 0, 0], 0x0102),
        ([10, 77, 255, 254], [255, 255, 255, 255], 0xfffe),
        ([10, 77, 1, 2], [255, 254, 0, 0], 0),
        ([127, 0, 0, 1], [255, 255, 255, 0], 0),
        ([10, 77, 0, 0], [255, 255, 0, 0], 0),
    ];
    let program = Program::open(GOOD).unwrap();
    for (addr, netmask, lid) in lids {
        kernel(|kernel| (kernel.addr, kernel.netmask) = (addr, netmask));
        assert_eq!(program.lid(), lid, "{addr:?}");
    }
}

#[test]
fn a_peer_that_is_named_by_its_lid_is_found_by_its_gid() {
    let mut program = Program::open(GOOD).unwrap();
    let qp = program.qp(null_mut());
    let modify = |ah: ibv_ah_attr, mask| {
        let mut attr = ibv_qp_attr {
            ah_attr: ah,
            ..Default::default()
        };
        // SAFETY: The queue pair and the attributes are valid.
        let result = unsafe { program.ops.modify_qp.unwrap()(qp, &mut attr, mask as c_int) };
        // The program's own are not changed.
        assert_eq!(names(&attr.ah_attr), names(&ah));
        result
    };
    let query = || {
        let (mut attr, mut init) = Default::default();
        // SAFETY: The queue pair and the room are valid.
        let result = unsafe { program.ops.query_qp.unwrap()(qp, &mut attr, 0, &mut init) };
        assert_eq!(result, 0);
        names(&attr.ah_attr)
    };
    let av = ibv_qp_attr_mask_IBV_QP_AV | ibv_qp_attr_mask_IBV_QP_STATE;
    let asked = || names(&kernel(|kernel| kernel.ah));
    let by_lid = ibv_ah_attr {
        dlid: 0xfedc,
        ..Default::default()
    };
    let peer = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 77, 0xfe, 0xdc];
    assert_eq!(modify(by_lid, av), 0);
    assert_eq!(asked(), (peer, 1, 0, 1));
    assert_eq!(query(), ([0; 16], 0, 0xfedc, 0));

    // A failure changes nothing, and neither does a change without an address vector.
    kernel(|kernel| kernel.result = BUSY);
    let by_gid = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: peer },
            sgid_index: 0,
            ..Default::default()
        },
        is_global: 1,
        ..by_lid
    };
    assert_eq!(modify(by_gid, av), BUSY);
    kernel(|kernel| kernel.result = 0);
    assert_eq!(query(), ([0; 16], 0, 0xfedc, 0));
    assert_eq!(modify(by_lid, ibv_qp_attr_mask_IBV_QP_STATE), 0);
    assert_eq!(asked(), ([0; 16], 0, 0, 0));

    // A GID stays what it is.
    assert_eq!(modify(by_gid, av), 0);
    assert_eq!(asked(), (peer, 0, 0, 1));
    assert_eq!(query(), (peer, 0, 0, 1));

    // Without LIDs the kernel is asked as before.
    for (dlid, netmask) in [(0, [255, 255, 0, 0]), (0xfedc, [255, 0, 0, 0])] {
        kernel(|kernel| kernel.netmask = netmask);
        assert_eq!(modify(ibv_ah_attr { dlid, ..by_lid }, av), 0);
        assert_eq!(asked(), ([0; 16], 0, 0, 0));
        assert_eq!(query(), ([0; 16], 0, 0, 0));
    }
}
