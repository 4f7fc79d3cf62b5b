// SPDX-License-Identifier: GPL-2.0

//! The locks of the driver and their order.
//!
//! [`Rank`] lists every lock, outermost first. A context that holds a lock takes only locks that
//! follow it in the list; against the order it may only try. lockdep checks this at run time and
//! prints the names in the list.
//!
//! # Locks of others
//!
//! - RTNL and the locks that the RDMA core and iw_cm hold when they call the driver come before all
//!   ranks but [`Rank::Adding`]. `rdma link add` holds none of them, only the lock of the core's
//!   list of link types. Upcalls take iw_cm's spinlock of a connection with [`Rank::Endpoint`] and
//!   the socket lock held; iw_cm does not hold it when it calls the driver.
//! - The socket lock (`lock_sock`, or TCP's own around its callbacks) comes after [`Rank::Tenants`]
//!   and before [`Rank::QpPair`].
//! - The gate of a memory region (`soft::mem::gate::InUse`) comes after the socket lock.
//!   [`Rank::Windows`] is the only spinlock that may be held outside of it: the others are taken in
//!   hard interrupts, and a gate may not be. Nothing is locked inside of it.
//! - The gate of memory on demand comes after that of its region, and after the mutex of the memory
//!   (`soft_odp_range`), which the kernel takes to free memory. Nothing is allocated under it.
//! - The mutex of the programs that have memory on demand (`soft::mem::programs::Programs`) is a
//!   leaf. It is taken in process context, when such memory is registered or given back.
//!
//! # What has no lock
//!
//! Transmit ownership is a word (`iwarp::qp::owner`), because TCP calls back from inside the
//! driver's own `sendmsg`, across which no spinlock may be held. The states of transmission and
//! reception are in slots; the owner takes them out. Completion and event handlers of consumers are
//! called with none of the spinlocks held.

use kernel::str::CStr;

/// The contexts that take a lock. Each includes the ones before it.
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// Process context only.
    Process,
    /// Softirqs too: TCP's callbacks and timers.
    Softirq,
    /// Hard interrupts too: kernel consumers post, poll and see failures in any context.
    HardIrq,
}

/// Declares the ranks in lock order, each with the name that lockdep prints and its contexts.
macro_rules! ranks {
    ($($(#[$doc:meta])* $rank:ident = $name:literal, $context:ident;)*) => {
        /// The locks of the driver, outermost first.
        #[derive(Clone, Copy)]
        pub(crate) enum Rank {
            $($(#[$doc])* #[doc = concat!("\n\nTaken from [`Context::", stringify!($context), "`].")] $rank,)*
        }

        impl Rank {
            /// The name that lockdep prints.
            pub(crate) const fn name(self) -> &'static CStr {
                match self {
                    $(Self::$rank => $name,)*
                }
            }

            /// The contexts that take the lock.
            pub(crate) const fn context(self) -> Context {
                match self {
                    $(Self::$rank => Context::$context,)*
                }
            }
        }
    };
}

ranks! {
    /// A device is being added. Held while the core registers the device, so the core's locks and
    /// RTNL come after it.
    Adding = c"siw_adding", Process;
    /// A QP's change of state by its consumer. Held while a QP begins anew, which waits for its
    /// connection to end.
    QpModify = c"siw_qp_modify", Process;
    /// The listeners of a device's pairs. Held while a listener ends, which waits for work that
    /// locks endpoints.
    Doors = c"siw_doors", Process;
    /// The servers at loopback interfaces. Held while a socket is bound or closed.
    Loopbacks = c"siw_loopbacks", Process;
    /// The listeners of a server at a loopback interface. Held while one of them gets a connection.
    Members = c"siw_members", Process;
    /// The peers that a listener for pairs lets in.
    Expected = c"siw_expected", Process;
    /// The state of a connection: handshake, upcalls owed, deadline.
    Endpoint = c"siw_ep", Process;
    /// The sessions of the module.
    Sessions = c"siw_sessions", Process;
    /// A listener's connections without a complete request.
    Embryos = c"siw_embryos", Process;
    /// A device's table of open connections.
    Endpoints = c"siw_endpoints", Process;
    /// The GIDs of a device as the core was told them.
    ToldGids = c"siw_told_gids", Process;
    /// The sums of the core's counters, and which queue pair counts for which.
    Accounts = c"siw_accounts", Process;
    /// The users who have queue pairs.
    Tenants = c"siw_tenants", Process;
    /// A QP's wait for a connection without a connection manager.
    QpPair = c"siw_qp_pair", HardIrq;
    /// A QP's connection.
    QpLink = c"siw_qp_link", HardIrq;
    /// A QP's state as the verbs know it.
    QpState = c"siw_qp_state", HardIrq;
    /// The path attributes of a QP.
    QpPath = c"siw_qp_path", Process;
    /// The offer to map a shared receive queue. Held while the queue is resized.
    SrqOffer = c"siw_srq_offer", Process;
    /// The periodic look at the rings of a dead QP.
    Reaper = c"siw_reaper", Process;
    /// The QP that waits for a receive. Held while its receive queue is looked at.
    Late = c"siw_late", Softirq;
    /// A kernel consumer's send queue.
    Sq = c"siw_sq", HardIrq;
    /// The outbound read queue.
    Orq = c"siw_orq", HardIrq;
    /// The inbound read queue.
    Irrq = c"siw_irrq", Softirq;
    /// A QP's own receive queue.
    Rq = c"siw_rq", HardIrq;
    /// A shared receive queue.
    Srq = c"siw_srq", HardIrq;
    /// The windows of a protection domain. Gates are locked inside.
    Windows = c"siw_windows", Softirq;
    /// The FIFO of send completions: work requests that are taken from the SQ and have not
    /// completed.
    Completions = c"siw_completions", Softirq;
    /// The page list between `map_mr_sg` and REG_MR.
    Shadow = c"siw_shadow", HardIrq;
    /// The entries of a completion queue.
    Cq = c"siw_cq", HardIrq;
    /// A device's settings. This lock and all that follow are leaves: nothing is taken inside.
    Params = c"siw_params", Process;
    /// The first bytes of the GID of the device itself.
    Mac = c"siw_mac", Process;
    /// The devices of other hosts that this one has met.
    Lives = c"siw_lives", Process;
    /// The debugfs files of a device.
    Files = c"siw_files", Process;
    /// What is noted about the end of a connection (`iwarp::cm::Notes`).
    EpNotes = c"siw_ep_notes", HardIrq;
    /// The socket of a connection.
    EpSocket = c"siw_ep_socket", HardIrq;
    /// The request to go on over another TCP connection that a session has got.
    Arrival = c"siw_arrival", Process;
    /// The progress of a wait for a peer without a connection manager.
    Pair = c"siw_pair", HardIrq;
    /// What the owner of a QP's token completes when it has given the token up.
    GivenUp = c"siw_given_up", HardIrq;
    /// What the context that posts send completions completes when it stops.
    Idle = c"siw_idle", HardIrq;
    /// The control operations of a QP that wait for their worker.
    Control = c"siw_control", HardIrq;
    /// What the control pipelines have to do to an entry of the table.
    Pending = c"siw_pending", HardIrq;
    /// The Read Responses of a QP that were sent by reference.
    Responses = c"siw_responses", Softirq;
    /// The Terminate that is owed to the peer.
    Owed = c"siw_owed", HardIrq;
    /// The pages that a QP waits for.
    Pager = c"siw_pager", Softirq;
    /// The QP that a datamover is to serve, and its CPU.
    Mover = c"siw_mover", HardIrq;
    /// The QP whose coalesced doorbell a timer serves.
    Later = c"siw_later", Softirq;
    /// The QP that waits for memory to be released. TCP may release it with locks of its own held.
    Releases = c"siw_releases", HardIrq;
}

impl Rank {
    /// The name of a mutex. Evaluated at compile time, where it fails for a rank that is taken in
    /// atomic context.
    pub(crate) const fn mutex_name(self) -> &'static CStr {
        assert!(matches!(self.context(), Context::Process));
        self.name()
    }
}

/// Initialises a mutex: `ranked_mutex!(Rank::Endpoint, value)`.
macro_rules! ranked_mutex {
    (Rank::$rank:ident, $value:expr $(,)?) => {
        ::kernel::sync::Mutex::new(
            $value,
            const { $crate::locks::Rank::$rank.mutex_name() },
            ::kernel::static_lock_class!(),
        )
    };
}

/// Initialises a `SpinLockIrq`: `ranked_spinlock!(Rank::Cq, value)`.
macro_rules! ranked_spinlock {
    (Rank::$rank:ident, $value:expr $(,)?) => {
        ::base::sync::SpinLockIrq::new(
            $value,
            const { $crate::locks::Rank::$rank.name() },
            ::kernel::static_lock_class!(),
        )
    };
}
