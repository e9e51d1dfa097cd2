// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of network faults and the provider's reaction, on a fake of devices that checks all calls strictly, and
//! produces every fault on demand. The tests check that every packet arrives once wherever that is possible, and that
//! failures are reported with a message.
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
