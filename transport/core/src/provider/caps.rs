// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities of the queue pair to a peer, as reported by the provider that reaches the peer.

/// Capabilities of a queue pair. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bodies up to this size travel inside the frame.
    pub max_inline_bytes: usize,
    /// Largest body of one send.
    pub max_send_bytes: usize,
    /// Which side carries out reads of the peer's memory, if the system and the key allow them.
    pub reads: Mover,
    /// Which side carries out writes.
    pub writes: Mover,
    /// Which side carries out atomic operations; `None`: not supported, each ends with
    /// [`WorkOutcome::Unreachable`](crate::WorkOutcome::Unreachable). Operations of different movers on one word are
    /// not atomic to each other.
    pub atomics: Option<Mover>,
    /// Whether sending large data through buffers may be faster than a read, because processors do both;
    /// [`had_better_stream`](crate::Fabric::had_better_stream) estimates which is faster.
    pub may_stream: bool,
    /// Whether memory of the peer may be mapped here: [`place_of`](crate::Fabric::place_of).
    pub maps: bool,
    /// Whether every event from the peer wakes a sleeping process. Else the process must poll now and then, which
    /// [`sleep`](crate::Fabric::sleep) does.
    pub wakes: bool,
}

/// The agent that moves the bytes of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// A processor of the process that posts it.
    Caller,
    /// A device, while both processes may be computing.
    Device,
    /// The owner of the memory, when it polls the network.
    Owner,
}
