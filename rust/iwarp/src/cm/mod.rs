// SPDX-License-Identifier: GPL-2.0

//! Connection establishment and teardown as a pure machine.
//!
//! [`Endpoint`] is one TCP connection, from the SYN to the last event for the consumer. It owns no
//! socket and no clock. Whenever something may have changed, its host describes the connection in
//! [`Facts`] and calls [`Endpoint::step`]; the answer is one [`Action`] and at most one change of
//! the deadline. The outcome of an action is the next [`Input`].
//!
//! ```text
//! input     Look        Reply(Whole(..))         Started(Ok)         Reported(Ok)   Look
//! action       ReadReply                    Start     ReportConnected           Look    Wait
//! ```
//!
//! [`Facts`] are levels, not edges: a call too many does no harm, and no wake-up can be lost.
//!
//! [`Notes`] collect, from any context, requests to end the connection and the reason it failed.
//!
//! ```text
//! active    Connecting -> AwaitReply -----------------.
//!                                                      > Up -> Settling -> Terminating -.
//! passive   AwaitRequest -> Offering -> Offered ------'           |         Draining <---'
//!                                                                 v             |
//!                                                      (pairs)  Alone -----> Closed
//! ```
//!
//! Any state goes to `Closed` when the connection is lost. A rejected one drains first, one that
//! this end closes does not settle, and only one that has failed may terminate.

mod action;
mod closing;
mod endpoint;
mod input;
mod notes;
pub mod pair;

pub use self::{
    action::{
        Action,
        Count,
        Deadline,
        End,
        Owed,
        Step,
        Timer, //
    },
    endpoint::{
        Endpoint,
        Side,
        State, //
    },
    input::{
        Facts,
        Input,
        Pushed,
        Read,
        Tcp, //
    },
    notes::{
        Cause,
        Notes,
        Teardown, //
    }, //
};
