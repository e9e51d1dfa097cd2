// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs for datagrams (UD). IBTA vol. 1 section 9.8.
//!
//! A datagram is one packet; it may be lost, and nobody says so. Its request has ended when it was handed out. One that comes
//! without a receive buffer, or with the wrong key, is dropped. Between two of these engines it may be a little longer than an
//! adapter's ([`DATAGRAM_BYTES_MORE`](crate::format::DATAGRAM_BYTES_MORE)).

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

/// A queue pair for datagrams.
#[derive(Debug)]
pub struct DatagramPair {
    config: DatagramConfig,
    next: Psn,
    waiting: VecDeque<QueuedDatagram>,
    /// What was handed out last: its inline bytes are lent to the carrier.
    leaving: Option<QueuedDatagram>,
    /// Headers of it.
    headers: Headers,
    done: VecDeque<WorkCompletion>,
    received: VecDeque<ReceivedDatagram>,
    dropped: u64,
}

/// What a queue pair for datagrams is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramConfig {
    /// Its number, 24 bits.
    pub number: u32,
    /// The Q_Key that a datagram must name to be heard.
    pub key: u32,
    /// P_Key.
    pub partition: u16,
    /// Bytes of a packet: most of a datagram that an adapter takes.
    pub path_mtu: PathMtu,
    /// Datagrams that wait, or whose completions were not polled.
    pub send_depth: usize,
}

/// One datagram that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Comes back in its completion.
    pub work: u64,
    /// Where it goes.
    pub to: SocketAddr,
    /// The queue pair that receives it, 24 bits.
    pub number: u32,
    /// The Q_Key of that.
    pub key: u32,
    /// What it carries.
    pub body: RequestBody<'a>,
    /// Four bytes for the receiver's completion.
    pub immediate: Option<[u8; 4]>,
    /// Whether it has a completion if it succeeds.
    pub signaled: bool,
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// There is no room until an earlier one has left and its completion was polled.
    Full,
    /// It is longer than a packet.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most.
        most: u32,
    },
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The end of the receive buffer; its bytes count the [`GRH_BYTES`] in front, as verbs do. A datagram that was too long for
    /// the buffer, or a buffer that is not registered, is an error of this one alone: the queue pair goes on.
    pub completion: WorkCompletion,
    /// Number of the sender's queue pair.
    pub source: u32,
    /// Address of its host.
    pub from: IpAddr,
}

/// Bytes in front of every datagram in its receive buffer. For IPv6 they would be its header; the engine leaves them alone,
/// since [`ReceivedDatagram::from`] says what they say.
pub const GRH_BYTES: u32 = 40;

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

#[derive(Debug)]
enum DatagramBody {
    Inline(Box<[u8]>),
    Piece(RoceSge),
}

impl DatagramConfig {
    /// Path MTU 1,024, the default partition, 256 datagrams.
    pub fn new(number: u32, key: u32) -> Self {
        Self {
            number,
            key,
            partition: DEFAULT_PARTITION,
            path_mtu: PathMtu::Bytes1024,
            send_depth: 256,
        }
    }

    /// Most bytes of a datagram.
    fn most_bytes(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "some bytes")]
        let more = DATAGRAM_BYTES_MORE as u32;
        self.path_mtu.bytes() + more
    }
}

impl DatagramPair {
    /// A queue pair that sends and receives.
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

    /// What it was told.
    pub fn config(&self) -> &DatagramConfig {
        &self.config
    }

    /// Datagrams that came and were not for it, or for which there was no receive buffer.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Posts a datagram.
    ///
    /// # Errors
    /// There is no room, or it is too long; nothing was posted.
    pub fn post(&mut self, datagram: &Datagram<'_>) -> Result<(), DatagramError> {
        let bytes = match datagram.body {
            RequestBody::Inline(bytes) => bytes.len(),
            RequestBody::Piece(piece) => usize::try_from(piece.bytes).unwrap_or(usize::MAX),
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
                RequestBody::Piece(piece) => DatagramBody::Piece(piece),
            },
            immediate: datagram.immediate,
            signaled: datagram.signaled,
        });
        Ok(())
    }

    /// The next datagram that is to be sent. A piece of memory must be gathered before the completion is polled.
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
                DatagramBody::Piece(piece) => PacketPayload::Piece(*piece),
            },
            is_repeated: false,
        })
    }

    /// A packet has come from this address, and its checksum was right.
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
        let status = match bytes <= buffer.piece.bytes {
            true => place(
                buffer.piece.part(GRH_BYTES, payload),
                packet.payload,
                memory,
            ),
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

    /// Takes the next completion of a datagram that was posted.
    pub fn poll_sends(&mut self) -> Option<WorkCompletion> {
        self.done.pop_front()
    }

    /// Takes the next datagram that has come.
    pub fn poll_receives(&mut self) -> Option<ReceivedDatagram> {
        self.received.pop_front()
    }

    /// The sender's queue pair, if a packet is for this one.
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
            Self::Piece(piece) => piece.bytes,
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

/// Whether memory of this side is registered as it should be.
fn may_leave<M: RegisteredMemory>(body: &DatagramBody, memory: &M) -> bool {
    match body {
        DatagramBody::Piece(piece) if piece.bytes != 0 => {
            let bytes = piece.bytes.into();
            let checked = memory.check(piece.key, piece.address, bytes, MemoryAccess::LocalRead);
            checked.is_ok()
        }
        _ => true,
    }
}

/// Puts what came where it goes.
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
