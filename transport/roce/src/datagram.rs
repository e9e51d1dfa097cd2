// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unreliable-datagram (UD) queue pairs. IBTA vol. 1 section 9.8.
//!
//! A datagram is one packet; its loss is not reported. Its work request completes when [`DatagramPair::next_outgoing`]
//! returns the packet. A received datagram is dropped if there is no receive buffer, or if its Q_Key is wrong. A
//! datagram may exceed an adapter's maximum by [`DATAGRAM_BYTES_MORE`](crate::format::DATAGRAM_BYTES_MORE) bytes, if
//! the peer is this engine too.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::format::{
    Bth, DATAGRAM_BYTES_MORE, DEFAULT_PARTITION, Deth, Headers, ImmDt, Opcode, Packet, Service,
};
use crate::memory::{MemoryAccess, RegisteredMemory, RoceSge};
use crate::pair::{
    CompletionStatus, OutgoingPacket, PacketPayload, PathMtu, ReceiveQueue, RequestBody,
    WorkCompletion,
};
use crate::psn::Psn;

/// An unreliable-datagram queue pair.
#[derive(Debug)]
pub struct DatagramPair {
    config: DatagramConfig,
    next: Psn,
    waiting: VecDeque<QueuedDatagram>,
    /// The datagram that `next_outgoing` returned last: the carrier borrows its inline bytes.
    leaving: Option<QueuedDatagram>,
    /// The headers of `leaving`.
    headers: Headers,
    done: VecDeque<WorkCompletion>,
    received: VecDeque<ReceivedDatagram>,
    dropped: u64,
}

/// Attributes of a UD queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramConfig {
    /// QPN of the queue pair, 24 bits.
    pub number: u32,
    /// The Q_Key that a datagram must carry to be accepted.
    pub key: u32,
    /// P_Key.
    pub partition: u16,
    /// Path MTU: the longest datagram that is sent. An adapter accepts none that is longer than its own.
    pub path_mtu: PathMtu,
    /// Maximum number of datagrams that are queued or whose completions were not polled.
    pub send_depth: usize,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Id that its completion returns (`wr_id` in verbs).
    pub work: u64,
    /// Address and port of the destination.
    pub to: SocketAddr,
    /// The destination QPN, 24 bits.
    pub number: u32,
    /// The Q_Key of the destination.
    pub key: u32,
    /// The payload.
    pub body: RequestBody<'a>,
    /// Immediate data, which the receiver's completion returns.
    pub immediate: Option<[u8; 4]>,
    /// Whether success generates a completion. Failure always does.
    pub signaled: bool,
}

/// The reason why a datagram was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// The queue is full until an earlier datagram was sent and its completion, if it has one, was polled.
    Full,
    /// The datagram is longer than the largest payload of a packet.
    TooLong {
        /// Length of the datagram in bytes.
        bytes: usize,
        /// The largest length in bytes.
        most: u32,
    },
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The completion of the receive buffer. As in verbs, its `bytes` include the [`GRH_BYTES`] in front. If the
    /// datagram is too long for the buffer, or the buffer is not registered, only this completion fails: the queue pair
    /// stays ready.
    pub completion: WorkCompletion,
    /// QPN of the sender.
    pub source: u32,
    /// IP address of the sender.
    pub from: IpAddr,
}

/// Bytes reserved for the GRH in front of every datagram in its receive buffer. The engine does not write these bytes:
/// the sender's address is in [`ReceivedDatagram::from`].
pub const GRH_BYTES: u32 = 40;

/// A posted datagram that is not sent yet: `number` and `key` are the destination's queue pair number and Q_Key.
#[derive(Debug)]
struct QueuedDatagram {
    work: u64,
    to: SocketAddr,
    number: u32,
    key: u32,
    body: DatagramBody,
    immediate: Option<[u8; 4]>,
    signaled: bool,
}

/// The payload of a datagram: copied when it was posted, or read from registered memory when it is sent.
#[derive(Debug)]
enum DatagramBody {
    Inline(Box<[u8]>),
    Sge(RoceSge),
}

impl DatagramConfig {
    /// Attributes with a path MTU of 1,024 bytes, the default partition, and a send queue of 256 datagrams.
    pub fn new(number: u32, key: u32) -> Self {
        Self {
            number,
            key,
            partition: DEFAULT_PARTITION,
            path_mtu: PathMtu::BYTES_1024,
            send_depth: 256,
        }
    }

    /// The longest datagram, in bytes.
    fn most_bytes(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "some bytes")]
        let more = DATAGRAM_BYTES_MORE as u32;
        self.path_mtu.bytes() + more
    }
}

impl DatagramPair {
    /// A queue pair that is ready to send and to receive.
    pub fn new(config: DatagramConfig) -> Self {
        Self {
            config,
            next: Psn::new(0),
            waiting: VecDeque::new(),
            leaving: None,
            headers: Headers::EMPTY,
            done: VecDeque::new(),
            received: VecDeque::new(),
            dropped: 0,
        }
    }

    /// The attributes of the queue pair.
    pub fn config(&self) -> &DatagramConfig {
        &self.config
    }

    /// Number of received datagrams that were dropped, because they were not valid for this queue pair or no receive
    /// buffer was posted.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Posts a datagram.
    ///
    /// # Errors
    /// The queue is full, or the datagram is too long; nothing was posted.
    pub fn post(&mut self, datagram: &Datagram<'_>) -> Result<(), DatagramError> {
        let bytes = match datagram.body {
            RequestBody::Inline(bytes) => bytes.len(),
            RequestBody::Sge(sge) => usize::try_from(sge.bytes).unwrap_or(usize::MAX),
        };
        let most = self.config.most_bytes();
        if bytes > most as usize {
            return Err(DatagramError::TooLong { bytes, most });
        }
        if self.waiting.len() + self.done.len() >= self.config.send_depth {
            return Err(DatagramError::Full);
        }
        self.waiting.push_back(QueuedDatagram {
            work: datagram.work,
            to: datagram.to,
            number: datagram.number,
            key: datagram.key,
            body: match datagram.body {
                RequestBody::Inline(bytes) => DatagramBody::Inline(bytes.into()),
                RequestBody::Sge(sge) => DatagramBody::Sge(sge),
            },
            immediate: datagram.immediate,
            signaled: datagram.signaled,
        });
        Ok(())
    }

    /// The next datagram to send. If its payload is in registered memory, the carrier must gather it before the
    /// completion is polled.
    pub fn next_outgoing<M: RegisteredMemory>(&mut self, memory: &M) -> Option<OutgoingPacket<'_>> {
        loop {
            let waiting = self.waiting.pop_front()?;
            let status = match may_leave(&waiting.body, memory) {
                true => CompletionStatus::Success,
                false => CompletionStatus::LocalProtection,
            };
            self.end(&waiting, status);
            if status == CompletionStatus::Success {
                self.leaving = Some(waiting);
                break;
            }
        }
        let leaving = self.leaving.as_ref()?;
        let psn = self.next;
        self.next = psn.plus(1);
        self.headers = headers(&self.config, leaving, psn);
        Some(OutgoingPacket {
            to: leaving.to,
            headers: &self.headers,
            payload: match &leaving.body {
                body if body.bytes() == 0 => PacketPayload::Nothing,
                DatagramBody::Inline(bytes) => PacketPayload::Inline(bytes),
                DatagramBody::Sge(sge) => PacketPayload::Sge(*sge),
            },
            filler_bytes: 0,
            is_repeated: false,
        })
    }

    /// Handles a received packet whose ICRC is correct; `from` is its sender.
    pub fn receive<M: RegisteredMemory>(
        &mut self,
        from: IpAddr,
        packet: &Packet<'_>,
        memory: &mut M,
        receives: &mut ReceiveQueue,
    ) {
        let source = self.source_of(packet);
        let Some((source, buffer)) = source.and_then(|source| Some((source, receives.take()?)))
        else {
            self.dropped += 1;
            return;
        };
        let payload = u32::try_from(packet.payload.len()).unwrap_or(u32::MAX);
        let bytes = payload.saturating_add(GRH_BYTES);
        let status = match bytes <= buffer.sge.bytes {
            true => place(buffer.sge.part(GRH_BYTES, payload), packet.payload, memory),
            false => CompletionStatus::LocalLength,
        };
        self.received.push_back(ReceivedDatagram {
            completion: WorkCompletion {
                work: buffer.work,
                status,
                bytes: if status == CompletionStatus::Success {
                    bytes
                } else {
                    0
                },
                number: self.config.number,
                immediate: packet.immediate().map(|immediate| immediate.data),
            },
            source,
            from,
        });
    }

    /// Takes the next send completion.
    pub fn poll_sends(&mut self) -> Option<WorkCompletion> {
        self.done.pop_front()
    }

    /// Takes the next received datagram.
    pub fn poll_receives(&mut self) -> Option<ReceivedDatagram> {
        self.received.pop_front()
    }

    /// The sender's QPN; `None`: the packet is not a valid datagram for this queue pair.
    fn source_of(&self, packet: &Packet<'_>) -> Option<u32> {
        let bth = &packet.bth;
        let deth = packet.deth()?;
        let is_ours = bth.opcode.service() == Service::UnreliableDatagram
            && bth.destination == self.config.number
            && deth.key == self.config.key
            && bth.is_of_partition(self.config.partition)
            && packet.payload.len() <= self.config.most_bytes() as usize;
        is_ours.then_some(deth.source)
    }

    fn end(&mut self, waiting: &QueuedDatagram, status: CompletionStatus) {
        if waiting.signaled || status != CompletionStatus::Success {
            self.done.push_back(WorkCompletion {
                work: waiting.work,
                status,
                bytes: match status {
                    CompletionStatus::Success => waiting.body.bytes(),
                    _ => 0,
                },
                number: self.config.number,
                immediate: None,
            });
        }
    }
}

impl DatagramBody {
    fn bytes(&self) -> u32 {
        match self {
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Sge(sge) => sge.bytes,
        }
    }
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "send queue for datagrams is full"),
            Self::TooLong { bytes, most } => {
                write!(f, "datagram has {bytes} bytes, a packet takes {most}")
            }
        }
    }
}

impl std::error::Error for DatagramError {}

fn headers(config: &DatagramConfig, leaving: &QueuedDatagram, psn: Psn) -> Headers {
    let opcode = Opcode::datagram(leaving.immediate.is_some());
    let bth = Bth::new(opcode, config.partition, leaving.number, psn);
    let headers = Headers::new(&bth.carrying(leaving.body.bytes())).deth(&Deth {
        key: leaving.key,
        source: config.number,
    });
    let immediate = leaving.immediate;
    immediate.map_or(headers, |data| headers.immediate(&ImmDt { data }))
}

/// Whether the payload is inline, or its memory is registered and may be read.
fn may_leave<M: RegisteredMemory>(body: &DatagramBody, memory: &M) -> bool {
    match body {
        DatagramBody::Sge(sge) if sge.bytes != 0 => {
            let bytes = sge.bytes.into();
            let checked = memory.check(sge.key, sge.address, bytes, MemoryAccess::LocalRead);
            checked.is_ok()
        }
        _ => true,
    }
}

/// Writes the payload to the receive buffer.
fn place<M: RegisteredMemory>(part: RoceSge, payload: &[u8], memory: &mut M) -> CompletionStatus {
    if payload.is_empty() {
        return CompletionStatus::Success;
    }
    let bytes = part.bytes.into();
    let placed = memory
        .check(part.key, part.address, bytes, MemoryAccess::LocalWrite)
        .and_then(|()| memory.place(part.key, part.address, payload));
    match placed {
        Ok(()) => CompletionStatus::Success,
        Err(_) => CompletionStatus::LocalProtection,
    }
}
