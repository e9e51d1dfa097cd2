// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a network does wrong, and what the provider makes of it: nothing is lost or repeated that can be had, and whatever
//! cannot is told in words. Over a strict fake of devices, with every fault on demand.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    dead_code,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod failures {
    pub mod bounce;
    pub mod ends;
    pub mod fetch;
    pub mod job;
    pub mod limits;
    pub mod links;
    pub mod rails;
    pub mod rows;
    pub mod scarce;
    pub mod strangers;
}
