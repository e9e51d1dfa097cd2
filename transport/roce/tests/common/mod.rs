// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts that the tests of queue pairs share: registered memory as vectors, an end of a connection, and packets built
//! by hand.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod arena;
pub(crate) mod by_hand;
pub(crate) mod capture;
pub(crate) mod dice;
pub(crate) mod end;
