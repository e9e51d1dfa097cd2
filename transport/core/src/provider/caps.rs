// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the queue pair to a peer can do, as the provider says that reaches the peer.

/// What a queue pair can do. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bodies up to this size travel inside the frame.
    pub max_inline_bytes: usize,
    /// Largest body of one send.
    pub max_send_bytes: usize,
    /// Who carries reads of the peer's memory out, where the system and the key allow them.
    pub reads: Mover,
    /// The same of writes.
    pub writes: Mover,
    /// The same of atomic operations; `None`: nobody does, and each ends as
    /// [`WorkOutcome::Unreachable`](crate::WorkOutcome::Unreachable). What different movers do to one word is not atomic to each other.
    pub atomics: Option<Mover>,
    /// Large data had perhaps better be sent through buffers than be read, since the same processors do both:
    /// [`had_better_stream`](crate::Fabric::had_better_stream) guesses.
    pub may_stream: bool,
    /// Memory of the peer may be mapped here: [`place_of`](crate::Fabric::place_of).
    pub maps: bool,
    /// Whatever comes from the peer wakes a process that sleeps. Else it has to look now and then, which
    /// [`sleep`](crate::Fabric::sleep) does.
    pub wakes: bool,
}

/// Who moves bytes that a read or a write names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// A processor of the process that asks for it.
    Caller,
    /// A device, while both processes may be doing something else.
    Device,
    /// The owner of the memory, when it looks at the network.
    Owner,
}
