// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protocols between a rank and the daemon of its node, and between `rmpi-queues` and the front of a job ([`query`]).
//! This crate only encodes and decodes messages; it opens no descriptor.
//!
//! **Knows** the environment variable [`BOOT_VARIABLE`] and the datagrams of the control socket.
//! **Never** makes a system call, reads a clock or the environment, or panics over bytes that another process wrote.
//!
//! # Life cycle of a rank
//! 1. The daemon starts the program with [`Boot`] as the text of [`BOOT_VARIABLE`], one end of a `SOCK_SEQPACKET`
//!    pair and the sealed `memfd` of the node segment.
//! 2. `MPI_Init` parses it and sends [`ToDaemon::Hello`] on the socket. From then on an exit without
//!    [`ToDaemon::Finalized`] is a failure of the job.
//! 3. A rank whose descriptors were closed by a wrapper connects (`SOCK_SEQPACKET`) to the abstract socket
//!    [`Boot::address`] and sends [`ToDaemon::AskSegment`]; the daemon checks the peer's user and the job's key and
//!    replies with [`ToRank::Segment`] and the descriptor, or with [`ToRank::Refused`]. That connection is the rank's
//!    control socket from then on.
//! 4. A rank may run several MPI programs one after the other. Each shuts its socket down for writing, for all copies
//!    of it, after [`ToDaemon::Finalized`], so that the next one proceeds as in step 3; it gets the segment of the
//!    ranks' next programs, which is a new one.
//! 5. A rank that uses a network sets a flag in its hello, and sends [`ToDaemon::Publish`] once its network address
//!    is known. It sends [`ToDaemon::LookUp`] before its first message to another rank; the daemon replies with
//!    [`ToRank::Record`] as soon as that rank has published, or with [`ToRank::NoRecord`] if it never will. No rank
//!    waits in `MPI_Init`. A record belongs to one MPI program of its rank and is sent to ranks that run the same
//!    one, even after its own rank has finalized, until all are quiet.
//! 6. A receiver acknowledges what such a rank has sent, and the acknowledgement may be lost. So in `MPI_Finalize` a
//!    rank sends [`ToDaemon::Quiet`] when none of its messages is unacknowledged, and continues to acknowledge until it
//!    receives [`ToRank::AllQuiet`].
//! 7. End of file on the rank's side means that the daemon is gone; so does `ECONNRESET`, which is reported when the
//!    daemon ended with unread messages.
//!
//! ```
//! use wireup::{Boot, ToDaemon};
//! let boot = Boot::parse(
//!     "1 job=9f rank=3 size=64 local_rank=3 local_size=64 app=0 segment=5 control=6 \
//!      address=rmpi-9f daemon=4711 mask=3",
//! )?;
//! let hello = ToDaemon::Hello { rank: boot.rank, pid: 4720, publishes: false };
//! assert_eq!(ToDaemon::decode(&hello.encode()), Ok(hello));
//! # Ok::<(), wireup::BootError>(())
//! ```
//!
//! Threads: all values are plain data. Units: none but bytes.
#![forbid(unsafe_code)]

mod boot;
mod launch;
mod message;
mod node_map;
pub mod query;
mod ranks;
mod record;

pub use boot::{BOOT_VARIABLE, Boot, BootError, JobStreamKey};
pub use launch::Launch;
pub use message::{DecodeError, MAX_DATAGRAM_BYTES, ToDaemon, ToRank};
pub use node_map::{ByNode, NodeMap};
pub use ranks::Ranks;
pub use record::{MAX_RECORD_BYTES, Record};

/// Parses a port range `FIRST-LAST` as in `RMPI_PORT_RANGE`, which limits the ports on which a job listens.
#[must_use]
pub fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}
