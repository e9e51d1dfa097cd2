// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a rank and the daemon of its node say to each other, and what a front says to who looks into its job ([`look`]). This crate holds the words only: it
//! turns values into bytes and back, and opens no descriptor.
//!
//! **Knows** the environment variable [`BOOT_VARIABLE`] and the datagrams of the control socket.
//! **Never** makes a system call, reads a clock or the environment, or panics over bytes that
//! another process wrote.
//!
//! # How a rank is born
//! 1. The daemon starts the program with [`Boot`] as the text of [`BOOT_VARIABLE`], one end of a
//!    `SOCK_SEQPACKET` pair and the sealed `memfd` of the node segment.
//! 2. `MPI_Init` parses it and says [`ToDaemon::Hello`] on the socket. From then on an exit
//!    without [`ToDaemon::Finalized`] is a failure of the job.
//! 3. A rank whose descriptors a wrapper closed connects (`SOCK_SEQPACKET`) to the abstract
//!    socket [`Boot::address`] and says [`ToDaemon::AskSegment`]; the daemon checks the peer's
//!    user and the job's key and answers [`ToRank::Segment`] with the descriptor, or
//!    [`ToRank::Refused`]. That connection is the rank's control socket from then on.
//! 4. A rank may run several MPI programs one after the other. The one that says [`ToDaemon::Finalized`] closes the
//!    socket for writing, for all copies of it, so that the next one asks as in step 3; it gets the segment of the
//!    programs that are this rank's next, which is a fresh one.
//! 5. A rank that reaches others over a network says so in its hello, and says [`ToDaemon::Publish`] once it knows where it
//!    is found there. It asks [`ToDaemon::LookUp`] for another rank when it first has something for it; the daemon answers
//!    [`ToRank::Record`] as soon as that rank has published, or [`ToRank::NoRecord`] if it never will. Nobody waits in
//!    `MPI_Init`. A record belongs to one MPI program of its rank and is told to the ranks that run the same one, even
//!    after its own rank is through with it, until all are quiet.
//! 6. What such a rank has sent is acknowledged by those that got it, and the acknowledgement may be lost. So in
//!    `MPI_Finalize` a rank says [`ToDaemon::Quiet`] when it waits for none any more, and goes on answering others until
//!    the daemon says [`ToRank::AllQuiet`].
//! 7. End of file on the rank's side means that the daemon is gone; so does `ECONNRESET`, which stands there when the
//!    daemon died before it had read all.
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
pub mod look;
mod message;
mod node_map;
mod ranks;
mod record;

pub use boot::{BOOT_VARIABLE, Boot, BootError, StreamKey};
pub use launch::Launch;
pub use message::{DecodeError, MAX_DATAGRAM_BYTES, ToDaemon, ToRank};
pub use node_map::{ByNode, NodeMap};
pub use ranks::Ranks;
pub use record::{MAX_RECORD_BYTES, Record};

/// The first and the last port of `FIRST-LAST`, as `RMPI_PORT_RANGE` names those at which a job may wait for connections.
#[must_use]
pub fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first != 0 && first <= last).then_some((first, last))
}
