// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten thousand hosts without a machine: a job of 640,000 ranks from its command line to its end, with the front's own code and that of
//! every shepherd.
//!
//! Real are: what the front makes of its command line, what it tells the nodes and does with what they say, its table for debuggers, every
//! shepherd's decisions ([`ShepherdTree`](crate::shepherd::tree::ShepherdTree)), what waits for room in a stream, all words and their bytes, and what
//! daemons know of records. Not there are: processes, remote shells, clocks, and ranks, for which a few lines of `hosts` speak.

pub(crate) mod chance;
mod heap;
mod hosts;
mod scale;
