// SPDX-License-Identifier: GPL-2.0

//! Software iWARP: RDMA over TCP as an RDMA provider of the kernel.
//!
//! The crate `driver` is the provider, without `unsafe`. Below it are the crates `rdma`
//! (abstractions of the RDMA core), `soft` (the data path of a provider in software), `base` (gaps
//! of the kernel crate), `iwarp` (the protocols; no kernel in it) and `trace` (the tracepoints).

use base::version::param;
use kernel::prelude::*;

module! {
    type: Module,
    name: "siw",
    authors: ["siw contributors"],
    description: "Software iWARP provider",
    license: "GPL",
    alias: ["rdma-link-siw"],
    params: {
        crc: u32 {
            default: 1,
            description: "1: ask for and use the MPA CRC, 0: only if the peer asks",
        },
        mpa_rev: u32 {
            default: 2,
            description: "MPA revision to start connections with: 2 or 1",
        },
        peer_to_peer: u32 {
            default: 0,
            description: "1: send the first message (RTR) when connecting, so that the other side may send at once",
        },
        large_fpdus: u32 {
            default: 1,
            description: "1: FPDUs larger than a TCP segment with peers that have this set, too, 0: none",
        },
        zcopy_min: u32 {
            default: 524288,
            description: "smallest message sent by reference, in bytes, if FPDUs are large; 0: none",
        },
        pairs: u32 {
            default: 1,
            description: "1: connect queue pairs by ibv_modify_qp alone, over TCP port 290, 0: only with a connection manager",
        },
        resume: u32 {
            default: 0,
            description: "1: connections go on over another path when theirs is lost, with peers that have this set, too",
        },
        eql: u32 {
            default: 0,
            description: "tell by 1: the length of TCP's queue, 0: sequence numbers, what the peer has acknowledged",
        },
        ack_completions: u32 {
            default: 0,
            description: "a Send or Write completes 0: when TCP has taken it, 1: when the peer has acknowledged it",
        },
        reg_failure: u32 {
            default: 0,
            description: "a registration, invalidation or bind by work request that fails ends 0: the connection, 1: the work of the send queue, which then goes on after modify_qp(RTS)",
        },
        ctrl_inline_pages: u32 {
            default: 4294967295,
            description: "longest page list, in pages, that is registered by work request on the spot; longer ones in a worker",
        },
        ctrl_delay_us: u32 {
            default: 0,
            description: "for tests: registrations, invalidations and binds by work request take so many microseconds more, in a worker",
        },
        keepalive: u32 {
            default: 10,
            description: "seconds after which an idle peer is probed; 0: never",
        },
        dead_after: u32 {
            default: 20000,
            description: "milliseconds without an acknowledgement after which a peer is given up; 0: as TCP does by itself",
        },
        recv_wait_ms: u32 {
            default: 1000,
            description: "milliseconds that a message waits for a receive to be posted before the connection ends; 0: none",
        },
    },
}

struct Module {
    _provider: driver::Provider,
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let params = driver::Params::new(&driver::Numbers {
            crc: param(module_parameters::crc.value()),
            mpa_rev: param(module_parameters::mpa_rev.value()),
            peer_to_peer: param(module_parameters::peer_to_peer.value()),
            large_fpdus: param(module_parameters::large_fpdus.value()),
            zcopy_min: param(module_parameters::zcopy_min.value()),
            resume: param(module_parameters::resume.value()),
            eql: param(module_parameters::eql.value()),
            ack_completions: param(module_parameters::ack_completions.value()),
            pairs: param(module_parameters::pairs.value()),
            reg_failure: param(module_parameters::reg_failure.value()),
            ctrl_inline_pages: param(module_parameters::ctrl_inline_pages.value()),
            ctrl_delay_us: param(module_parameters::ctrl_delay_us.value()),
            keepalive: param(module_parameters::keepalive.value()),
            dead_after: param(module_parameters::dead_after.value()),
            recv_wait_ms: param(module_parameters::recv_wait_ms.value()),
        })?;
        Ok(Self {
            _provider: driver::Provider::new(module, params)?,
        })
    }
}
