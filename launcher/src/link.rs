// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between the front and a node daemon: encodes and decodes messages. This module does no I/O.
//!
//! | offset | bytes | field  | |
//! |-------:|------:|--------|------------------------------------------------------------------------|
//! |      0 |     4 | length | bytes after this field, little endian, at most [`LONGEST_FRAME_BYTES`] |
//! |      4 |     1 | kind   | 1.. orders to the daemon, 129.. events from it |
//! |      5 |     – | body   | numbers little endian, text and data to the end of the frame |
//!
//! Bulk data (a rank's output, standard input) is sent against credit: at most a window of it is in flight, and the
//! receiver acknowledges what it has consumed. So neither side ever has to stop reading, and unconsumed output never
//! delays an order or a failure report.

use crate::failure::{FailureCause, RankFailure};
use crate::job::{self, JobProgram, LaunchTimes, NodeJob};
use crate::strided_ranks::StridedRanks;
use ring::layout::MAX_LOCAL_RANKS;
use std::ffi::CString;
use wireup::Record;

/// Maximum number of output bytes that a daemon may have in flight.
pub(crate) const OUTPUT_WINDOW_BYTES: u64 = 4 << 20;
/// Maximum number of bytes of standard input that the front may have in flight.
pub(crate) const INPUT_WINDOW_BYTES: u64 = 256 << 10;

/// Maximum size of a frame, in bytes. It is large because a job may have many programs, each with an environment of its
/// own.
pub(crate) const LONGEST_FRAME_BYTES: usize = 1 << 29;

/// Frame kind of [`Order::Job`].
const JOB: u8 = 9;
/// Frame kind of [`Order::Programs`].
const PROGRAMS: u8 = 15;

/// Output stream of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Message from the front to a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run this part of the job. It is sent once. Only [`Order::Programs`] may precede it.
    Job(Box<NodeJob>),
    /// The programs of a job over hosts. They are the same for all daemons and may be large, so they are sent in this
    /// message, and the [`Order::Job`] that follows has no programs.
    Programs(Vec<JobProgram>),
    /// Send this signal to every rank that is alive.
    Signal(i32),
    /// Send SIGKILL to all ranks and their descendants, repeatedly until no process is left.
    Kill,
    /// Bytes for standard input of the ranks that read it.
    Input(Vec<u8>),
    /// End of standard input.
    InputEnd,
    /// This many bytes of output were written: credit for further output.
    OutputTaken(u64),
    /// These ranks have failed and the job continues: inform the other ranks, with this text.
    Lost {
        /// The ranks.
        ranks: Vec<StridedRanks>,
        /// The failure, for the user.
        why: String,
    },
    /// Release the ranks that are held for a debugger.
    Release,
    /// Start a program for a debugger. The first item is the program's path, the others are its arguments.
    Tool(Vec<CString>),
    /// Another node needs the location of this rank: report the location now and whenever it changes.
    Watch(u32),
    /// Location of a rank of another node; the receiving node has requested it ([`NodeEvent::Watch`]).
    Location(RankLocation),
    /// The ranks of all nodes are quiet in their MPI program of this number: none of their network messages is in
    /// flight.
    AllQuiet(u32),
    /// The ranks of all nodes have entered a PMI fence. The pairs are those that they have put since the last fence.
    Fence(Pairs),
    /// All daemons are ready: start the ranks. The daemon passes the durations of the start to the ranks.
    Start(LaunchTimes),
    /// Read what the ranks wait for. The answer is [`NodeEvent::Waits`] with the number of this order.
    Query(u32),
}

/// Message from a daemon to the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeEvent {
    /// A rank wrote whole lines, or the last part of its stream.
    Output {
        /// The rank.
        rank: u32,
        /// The stream it wrote to.
        stream: OutputStream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A rank failed.
    Failed(RankFailure),
    /// This many bytes of standard input reached all ranks that read it: credit for further input.
    InputTaken(u64),
    /// No rank reads standard input any more.
    InputClosed,
    /// A message for the user.
    Notice(String),
    /// A remark of a rank. The user sees only the first one of the job.
    Remark(String),
    /// The daemon of a host that the front cannot inspect has found the program of these ranks at this path.
    Program {
        /// The path on that host.
        path: CString,
        /// The ranks that run it.
        ranks: Vec<u32>,
    },
    /// Ranks were started: pairs of rank and pid.
    Started(Vec<(u32, u32)>),
    /// Every rank that is alive is held for a debugger.
    Held,
    /// No rank has made progress for this many seconds.
    Standstill(u64),
    /// The ranks have reached a phase.
    Reached {
        /// The phase.
        phase: NodePhase,
        /// Time at which the phase was reached, in nanoseconds of the monotonic clock of the daemon's machine.
        at: u64,
    },
    /// The daemon cannot continue; all its ranks are being killed.
    Broken {
        /// The reason, as a message for the user.
        message: String,
        /// The exit code of the job.
        code: u8,
    },
    /// No process of the job is left on this node; the last event.
    Ended(NodeSummary),
    /// This node needs the location of this rank of another node, now and whenever it changes.
    Watch(u32),
    /// Location of a rank of this node; other nodes have requested it ([`Order::Watch`]).
    Location(RankLocation),
    /// The ranks of this node are quiet in their MPI program of this number: none of their network messages is in
    /// flight.
    Quiet(u32),
    /// The ranks of this node have entered a PMI fence. The pairs are those that they have put since the last fence.
    Fence(Pairs),
    /// The ranks of this node will not enter another fence.
    NoFence,
    /// Records that the ranks of this node left for `--stats`.
    Stats(Vec<u8>),
    /// The daemon has found everything that its ranks need, and starts them on [`Order::Start`].
    Ready,
    /// Reply to [`Order::Query`]: wait states of the ranks of this node.
    Waits(WaitReport),
}

/// Pairs of key and value. Keys have no blanks, and values have no line ends.
pub(crate) type Pairs = Vec<(String, String)>;

fn put_pairs(pairs: &Pairs, body: &mut Vec<u8>) {
    for (key, value) in pairs {
        body.extend(format!("{key} {value}\n").into_bytes());
    }
}

fn take_pairs(body: &mut Body<'_>) -> Result<Pairs, Garbled> {
    let text = body.text()?;
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ').ok_or(Garbled)?;
        Ok((key.to_owned(), value.to_owned()))
    };
    text.lines().map(pair).collect()
}

/// Reply to [`Order::Query`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitReport {
    /// Number of the [`Order::Query`].
    pub(crate) query: u32,
    /// Ranks of the node that have ended.
    pub(crate) ended: Vec<u32>,
    /// Output of `rmpi-queues`, or the reason why there is no output.
    pub(crate) read: Result<Vec<u8>, String>,
}

impl WaitReport {
    fn put(&self, body: &mut Vec<u8>) {
        let count = u32::try_from(self.ended.len()).unwrap_or(u32::MAX);
        let head = [self.query, count, u32::from(self.read.is_ok())];
        let numbers = head.iter().chain(&self.ended);
        body.extend(numbers.flat_map(|number| number.to_le_bytes()));
        body.extend_from_slice(match &self.read {
            Ok(bytes) => bytes,
            Err(why) => why.as_bytes(),
        });
    }

    fn take(body: &mut Body<'_>) -> Result<Self, Garbled> {
        let (query, count, is_read) = (body.number()?, body.number()?, body.number()?);
        let bytes = (count as usize).checked_mul(4).ok_or(Garbled)?;
        let (ended, rest) = body.0.split_at_checked(bytes).ok_or(Garbled)?;
        Ok(Self {
            query,
            ended: Body(ended).numbers()?,
            read: match is_read {
                0 => Err(Body(rest).text()?),
                _ => Ok(rest.to_vec()),
            },
        })
    }
}

/// Network location of a rank, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankLocation {
    /// The rank.
    pub(crate) rank: u32,
    /// Number of MPI programs that the rank has completed.
    pub(crate) round: u32,
    /// Whether the rank's current program has published no record and will publish none.
    pub(crate) silent: bool,
    /// Whether the rank runs no further program.
    pub(crate) ended: bool,
    /// The record that the rank published last, with the number of the program that published it.
    pub(crate) last: Option<(u32, Record)>,
}

impl RankLocation {
    fn put(&self, body: &mut Vec<u8>) {
        let round_of_last = self.last.as_ref().map_or(0, |(round, _)| *round);
        for number in [self.rank, self.round, round_of_last] {
            body.extend(number.to_le_bytes());
        }
        let flags = [self.silent, self.ended, self.last.is_some()];
        body.extend(flags.map(u8::from));
        if let Some((_, record)) = &self.last {
            body.extend(record.bytes());
        }
    }

    fn take(body: &mut Body<'_>) -> Result<Self, Garbled> {
        let (rank, round, round_of_last) = (body.number()?, body.number()?, body.number()?);
        let [silent, ended, has_record] = body.chunk()?;
        let record = Record::new(body.0).ok_or(Garbled)?;
        if has_record == 0 && !record.is_empty() {
            return Err(Garbled);
        }
        Ok(Self {
            rank,
            round,
            silent: silent != 0,
            ended: ended != 0,
            last: (has_record != 0).then_some((round_of_last, record)),
        })
    }
}

/// Phase of a node's part of the job. Some phases are reached by the node's first rank, others by all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodePhase {
    /// The processes of all ranks were forked.
    Started = 1,
    /// One rank has called `MPI_Init`.
    FirstInMpi = 2,
    /// All ranks have called `MPI_Init`.
    AllInMpi = 3,
    /// All ranks have called `MPI_Finalize`.
    AllFinalized = 4,
    /// No rank is alive.
    Ended = 5,
}

impl NodePhase {
    /// All phases, in order.
    pub(crate) const ALL: [Self; 5] = [
        Self::Started,
        Self::FirstInMpi,
        Self::AllInMpi,
        Self::AllFinalized,
        Self::Ended,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| *phase as u8 == number)
    }
}

/// How a node's part of the job ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeSummary {
    /// Ranks that were running when a signal that ends the job was ordered.
    pub(crate) signalled: u32,
    /// Ranks that were running when SIGKILL was ordered.
    pub(crate) killed: u32,
    /// Processes that outlived their rank and were ended by the daemon.
    pub(crate) leftovers: u32,
    /// Processes of a debugger that outlived all ranks and were ended by the daemon.
    pub(crate) tools: u32,
    /// Processes that did not end after SIGKILL.
    pub(crate) stubborn: Vec<u32>,
}

impl Order {
    /// Appends the frame.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Signal(number) => frame(out, 1, |body| body.extend(number.to_le_bytes())),
            Self::Kill => frame(out, 2, |_| ()),
            Self::Input(bytes) => frame(out, 3, |body| body.extend_from_slice(bytes)),
            Self::InputEnd => frame(out, 4, |_| ()),
            Self::OutputTaken(bytes) => frame(out, 5, |body| body.extend(bytes.to_le_bytes())),
            Self::Lost { ranks, why } => frame(out, 6, |body| {
                let bytes = postcard::to_allocvec(&(ranks, why));
                body.extend(bytes.expect("numbers and a text"));
            }),
            Self::Release => frame(out, 7, |_| ()),
            Self::Tool(command) => frame(out, 8, |body| {
                body.extend(command.iter().flat_map(|string| string.as_bytes_with_nul()));
            }),
            Self::Job(job) => frame(out, JOB, |body| job.encode(body)),
            Self::Programs(programs) => frame(out, PROGRAMS, |body| {
                body.extend(job::encoded_programs(programs));
            }),
            Self::Watch(rank) => frame(out, 10, |body| body.extend(rank.to_le_bytes())),
            Self::Location(of) => frame(out, 11, |body| of.put(body)),
            Self::Fence(pairs) => frame(out, 16, |body| put_pairs(pairs, body)),
            Self::AllQuiet(round) => frame(out, 12, |body| body.extend(round.to_le_bytes())),
            Self::Start(begun) => frame(out, 13, |body| body.extend(begun.encoded())),
            Self::Query(number) => frame(out, 14, |body| body.extend(number.to_le_bytes())),
        }
    }

    /// The frame of [`Order::Job`].
    ///
    /// # Errors
    /// The frame's size and the size limit, both in bytes, if the frame is too long.
    pub(crate) fn job_frame(job: &NodeJob) -> Result<Vec<u8>, (usize, usize)> {
        let mut bytes = Vec::new();
        job.encode(&mut bytes);
        long_frame(JOB, bytes)
    }

    /// The frame of [`Order::Programs`].
    ///
    /// # Errors
    /// The frame's size and the size limit, both in bytes, if the frame is too long.
    pub(crate) fn programs_frame(programs: &[JobProgram]) -> Result<Vec<u8>, (usize, usize)> {
        long_frame(PROGRAMS, job::encoded_programs(programs))
    }

    /// Reads the next whole frame of the inbox.
    pub(crate) fn take(inbox: &mut Inbox) -> Result<Option<Self>, Garbled> {
        let Some((kind, mut body)) = inbox.frame()? else {
            return Ok(None);
        };
        let order = match kind {
            1 => Self::Signal(body.number()?.cast_signed()),
            2 => Self::Kill,
            3 => Self::Input(body.rest()),
            4 => Self::InputEnd,
            5 => Self::OutputTaken(body.long()?),
            6 => {
                let ((ranks, why), rest) =
                    postcard::take_from_bytes::<(Vec<StridedRanks>, _)>(body.0)
                        .map_err(|_| Garbled)?;
                let counts = ranks.iter().map(|series| u64::from(series.count));
                let is_good = rest.is_empty() && counts.sum::<u64>() <= u64::from(MAX_LOCAL_RANKS);
                let lost = Self::Lost { ranks, why };
                is_good.then_some(lost).ok_or(Garbled)?
            }
            7 => Self::Release,
            8 => Self::Tool(body.texts()?),
            10 => Self::Watch(body.number()?),
            11 => Self::Location(RankLocation::take(&mut body)?),
            12 => Self::AllQuiet(body.number()?),
            16 => Self::Fence(take_pairs(&mut body)?),
            13 => Self::Start(LaunchTimes::decoded(body.0).ok_or(Garbled)?),
            14 => Self::Query(body.number()?),
            JOB => Self::Job(Box::new(NodeJob::decode(body.0).ok_or(Garbled)?)),
            PROGRAMS => Self::Programs(job::decoded_programs(body.0).ok_or(Garbled)?),
            _ => return Err(Garbled),
        };
        Ok(Some(order))
    }
}

impl NodeEvent {
    /// Appends the frame.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Output {
                rank,
                stream,
                bytes,
            } => frame(out, 129, |body| {
                body.extend(rank.to_le_bytes());
                body.push(u8::from(*stream == OutputStream::Err));
                body.extend_from_slice(bytes);
            }),
            Self::Failed(failure) => frame(out, 130, |body| put_failure(failure, body)),
            Self::InputTaken(bytes) => frame(out, 131, |body| body.extend(bytes.to_le_bytes())),
            Self::InputClosed => frame(out, 132, |_| ()),
            Self::Notice(text) => frame(out, 133, |body| body.extend(text.as_bytes())),
            Self::Remark(text) => frame(out, 147, |body| body.extend(text.as_bytes())),
            Self::Started(started) => frame(out, 134, |body| {
                let numbers = started.iter().flat_map(|(rank, pid)| [rank, pid]);
                body.extend(numbers.flat_map(|number| number.to_le_bytes()));
            }),
            Self::Program { path, ranks } => frame(out, 146, |body| {
                body.extend(path.as_bytes_with_nul());
                body.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
            }),
            Self::Held => frame(out, 138, |_| ()),
            Self::Watch(rank) => frame(out, 140, |body| body.extend(rank.to_le_bytes())),
            Self::Location(of) => frame(out, 141, |body| of.put(body)),
            Self::Fence(pairs) => frame(out, 148, |body| put_pairs(pairs, body)),
            Self::NoFence => frame(out, 149, |_| ()),
            Self::Quiet(round) => frame(out, 142, |body| body.extend(round.to_le_bytes())),
            Self::Ready => frame(out, 143, |_| ()),
            Self::Waits(seen) => frame(out, 145, |body| seen.put(body)),
            Self::Stats(bytes) => frame(out, 144, |body| body.extend_from_slice(bytes)),
            Self::Standstill(seconds) => frame(out, 139, |body| body.extend(seconds.to_le_bytes())),
            Self::Broken { message, code } => frame(out, 135, |body| {
                body.push(*code);
                body.extend(message.as_bytes());
            }),
            Self::Reached { phase, at } => frame(out, 137, |body| {
                body.push(*phase as u8);
                body.extend(at.to_le_bytes());
            }),
            Self::Ended(summary) => frame(out, 136, |body| {
                body.extend(summary.signalled.to_le_bytes());
                body.extend(summary.killed.to_le_bytes());
                body.extend(summary.leftovers.to_le_bytes());
                body.extend(summary.tools.to_le_bytes());
                body.extend(summary.stubborn.iter().flat_map(|pid| pid.to_le_bytes()));
            }),
        }
    }

    /// Reads the next whole frame of the inbox.
    pub(crate) fn take(inbox: &mut Inbox) -> Result<Option<Self>, Garbled> {
        let Some((kind, mut body)) = inbox.frame()? else {
            return Ok(None);
        };
        let event = match kind {
            129 => {
                let rank = body.number()?;
                let stream = if body.byte()? == 0 {
                    OutputStream::Out
                } else {
                    OutputStream::Err
                };
                Self::Output {
                    rank,
                    stream,
                    bytes: body.rest(),
                }
            }
            130 => Self::Failed(take_failure(&mut body)?),
            131 => Self::InputTaken(body.long()?),
            132 => Self::InputClosed,
            133 => Self::Notice(body.text()?),
            147 => Self::Remark(body.text()?),
            134 => Self::Started(body.pairs()?),
            146 => {
                let (path, ranks) = body.split_text()?;
                Self::Program { path, ranks }
            }
            138 => Self::Held,
            140 => Self::Watch(body.number()?),
            141 => Self::Location(RankLocation::take(&mut body)?),
            142 => Self::Quiet(body.number()?),
            148 => Self::Fence(take_pairs(&mut body)?),
            149 => Self::NoFence,
            143 => Self::Ready,
            144 => Self::Stats(body.rest()),
            145 => Self::Waits(WaitReport::take(&mut body)?),
            139 => Self::Standstill(body.long()?),
            135 => Self::Broken {
                code: body.byte()?,
                message: body.text()?,
            },
            137 => Self::Reached {
                phase: NodePhase::of(body.byte()?).ok_or(Garbled)?,
                at: body.long()?,
            },
            136 => Self::Ended(NodeSummary {
                signalled: body.number()?,
                killed: body.number()?,
                leftovers: body.number()?,
                tools: body.number()?,
                stubborn: body.numbers()?,
            }),
            _ => return Err(Garbled),
        };
        Ok(Some(event))
    }
}

/// The bytes are not valid frames: the other side is of another build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Received bytes that were not yet parsed as frames.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    read: usize,
}

impl Inbox {
    /// Appends received bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Frees the memory if nothing is left to parse. There may be many connections, and few of them receive again soon.
    pub(crate) fn give_back(&mut self) {
        if self.read == self.bytes.len() {
            *self = Self::default();
        }
    }

    /// Removes the next whole frame and returns its kind and body; `None` if no frame is complete.
    pub(crate) fn raw_frame(&mut self) -> Result<Option<(u8, &[u8])>, Garbled> {
        let frame = self.frame()?;
        Ok(frame.map(|(kind, body)| (kind, body.0)))
    }

    fn frame(&mut self) -> Result<Option<(u8, Body<'_>)>, Garbled> {
        let unread = self.bytes.get(self.read..).unwrap_or(&[]);
        let Some((length, rest)) = unread.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > LONGEST_FRAME_BYTES {
            return Err(Garbled);
        }
        let Some((kind, body)) = rest.get(..length).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        self.read += 4 + length;
        Ok(Some((*kind, Body(body))))
    }
}

/// The unread part of a frame.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Garbled)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn byte(&mut self) -> Result<u8, Garbled> {
        self.chunk().map(|[byte]| byte)
    }

    fn number(&mut self) -> Result<u32, Garbled> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, Garbled> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn numbers(&self) -> Result<Vec<u32>, Garbled> {
        let (chunks, rest) = self.0.as_chunks();
        if !rest.is_empty() {
            return Err(Garbled);
        }
        Ok(chunks
            .iter()
            .map(|chunk| u32::from_le_bytes(*chunk))
            .collect())
    }

    fn pairs(&self) -> Result<Vec<(u32, u32)>, Garbled> {
        let numbers = self.numbers()?;
        let (pairs, rest) = numbers.as_chunks();
        if !rest.is_empty() {
            return Err(Garbled);
        }
        Ok(pairs.iter().map(|[one, other]| (*one, *other)).collect())
    }

    /// Parses NUL-terminated texts up to the end of the frame.
    fn texts(&self) -> Result<Vec<CString>, Garbled> {
        let texts = self.0.split_inclusive(|byte| *byte == 0);
        texts
            .map(|string| CString::from_vec_with_nul(string.to_vec()).map_err(|_| Garbled))
            .collect()
    }

    /// Parses a NUL-terminated text and then numbers up to the end of the frame.
    fn split_text(&self) -> Result<(CString, Vec<u32>), Garbled> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Garbled)?;
        let (text, rest) = self.0.split_at(end);
        let text = CString::new(text).map_err(|_| Garbled)?;
        Ok((text, Body(rest.get(1..).ok_or(Garbled)?).numbers()?))
    }

    /// Parses a NUL-terminated text.
    fn string(&mut self) -> Result<String, Garbled> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Garbled)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        String::from_utf8(string.to_vec()).map_err(|_| Garbled)
    }

    fn rest(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn text(&self) -> Result<String, Garbled> {
        String::from_utf8(self.rest()).map_err(|_| Garbled)
    }
}

/// Appends a frame of kind `kind`. `body` appends the body of the frame.
pub(crate) fn frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, 0, 0, 0, kind]);
    body(out);
    let length = u32::try_from(out.len() - start - 4).expect("a frame holds one read, or one job");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// A frame with this body; the error has the frame's size and the size limit.
fn long_frame(kind: u8, bytes: Vec<u8>) -> Result<Vec<u8>, (usize, usize)> {
    if bytes.len() >= LONGEST_FRAME_BYTES {
        return Err((bytes.len(), LONGEST_FRAME_BYTES));
    }
    let mut out = Vec::with_capacity(bytes.len() + 5);
    frame(&mut out, kind, |body| body.extend(bytes));
    Ok(out)
}

fn put_failure(failure: &RankFailure, body: &mut Vec<u8>) {
    let (how, value, text) = match &failure.how {
        FailureCause::NotStarted(why) => (0, 0, why.as_str()),
        FailureCause::Signal {
            number,
            core: false,
        } => (1, *number, ""),
        FailureCause::Signal { number, core: true } => (2, *number, ""),
        FailureCause::Code(code) => (3, *code, ""),
        FailureCause::Unfinalized(code) => (4, *code, ""),
        FailureCause::Abort { code, message } => (5, *code, message.as_str()),
        FailureCause::Fatal { code, message } => (8, *code, message.as_str()),
        FailureCause::Deserted { pid } => (6, pid.cast_signed(), ""),
        FailureCause::Twice { pid } => (7, pid.cast_signed(), ""),
    };
    body.extend(failure.rank.to_le_bytes());
    body.extend(failure.pid.to_le_bytes());
    body.extend([u8::from(failure.finalized), how]);
    body.extend(value.to_le_bytes());
    body.extend(failure.missing.as_bytes());
    body.push(0);
    body.extend(text.as_bytes());
}

fn take_failure(body: &mut Body<'_>) -> Result<RankFailure, Garbled> {
    let (rank, pid) = (body.number()?, body.number()?);
    let (finalized, how) = (body.byte()? != 0, body.byte()?);
    let value = body.number()?;
    let code = value.cast_signed();
    let missing = body.string()?;
    let how = match how {
        0 => FailureCause::NotStarted(body.text()?),
        1 => FailureCause::Signal {
            number: code,
            core: false,
        },
        2 => FailureCause::Signal {
            number: code,
            core: true,
        },
        3 => FailureCause::Code(code),
        4 => FailureCause::Unfinalized(code),
        5 => FailureCause::Abort {
            code,
            message: body.text()?,
        },
        6 => FailureCause::Deserted { pid: value },
        7 => FailureCause::Twice { pid: value },
        8 => FailureCause::Fatal {
            code,
            message: body.text()?,
        },
        _ => return Err(Garbled),
    };
    Ok(RankFailure {
        rank,
        pid,
        finalized,
        how,
        missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::{some_begun, some_job};
    use proptest::prelude::*;

    fn failures() -> Vec<NodeEvent> {
        let failed = |how| {
            NodeEvent::Failed(RankFailure {
                rank: 7,
                pid: 99,
                finalized: false,
                how,
                missing: "MPI_Win_create".into(),
            })
        };
        vec![
            failed(FailureCause::NotStarted("chdir: no".into())),
            failed(FailureCause::Signal {
                number: 11,
                core: true,
            }),
            failed(FailureCause::Signal {
                number: 9,
                core: false,
            }),
            failed(FailureCause::Code(3)),
            failed(FailureCause::Unfinalized(0)),
            failed(FailureCause::Abort {
                code: -5,
                message: "ä".into(),
            }),
            failed(FailureCause::Twice { pid: u32::MAX }),
            failed(FailureCause::Deserted { pid: 8 }),
        ]
    }

    fn events() -> Vec<NodeEvent> {
        let output = |stream, bytes: &[u8]| NodeEvent::Output {
            rank: 1,
            stream,
            bytes: bytes.to_vec(),
        };
        let others = vec![
            output(OutputStream::Err, b"a\0b\n"),
            output(OutputStream::Out, b""),
            NodeEvent::InputTaken(1 << 40),
            NodeEvent::InputClosed,
            NodeEvent::Notice("n".into()),
            NodeEvent::Remark("r".into()),
            NodeEvent::Started(vec![(3, 4), (0, u32::MAX)]),
            NodeEvent::Program {
                path: c"/bin/a b".into(),
                ranks: vec![0, 9],
            },
            NodeEvent::Held,
            NodeEvent::Standstill(60),
            NodeEvent::Reached {
                phase: NodePhase::AllFinalized,
                at: u64::MAX,
            },
            NodeEvent::Broken {
                message: "b".into(),
                code: 126,
            },
            NodeEvent::Ready,
            NodeEvent::Stats(vec![1, 2]),
            seen(Ok(vec![0, 9])),
            seen(Err("no".into())),
            NodeEvent::Ended(NodeSummary {
                signalled: 1,
                killed: 2,
                leftovers: 3,
                tools: 4,
                stubborn: vec![5, 6],
            }),
            NodeEvent::Watch(7),
            NodeEvent::Location(somewhere()),
            NodeEvent::Quiet(3),
            NodeEvent::NoFence,
            NodeEvent::Fence(vec![
                ("a".to_owned(), "b=c".to_owned()),
                ("d".to_owned(), String::new()),
            ]),
        ];
        failures().into_iter().chain(others).collect()
    }

    fn seen(read: Result<Vec<u8>, String>) -> NodeEvent {
        NodeEvent::Waits(WaitReport {
            query: 3,
            ended: vec![1, u32::MAX],
            read,
        })
    }

    fn somewhere() -> RankLocation {
        RankLocation {
            rank: 1,
            round: 2,
            silent: false,
            ended: true,
            last: Some((1, Record::new(&[9; 24]).unwrap())),
        }
    }

    fn orders() -> Vec<Order> {
        let input = Order::Input(vec![0, 255]);
        vec![
            Order::Job(Box::new(some_job())),
            Order::Signal(15),
            Order::Kill,
            input,
            Order::InputEnd,
            Order::OutputTaken(9),
            Order::Lost {
                ranks: StridedRanks::of_all(&[3, 4, 9]),
                why: "killed".into(),
            },
            Order::Release,
            Order::Tool(vec![c"/bin/tool".into(), c"".into(), c"two words".into()]),
            Order::Watch(u32::MAX),
            Order::Location(RankLocation {
                silent: true,
                last: None,
                ..somewhere()
            }),
            Order::AllQuiet(0),
            Order::Fence(vec![("k".to_owned(), "v".to_owned())]),
            Order::Fence(Vec::new()),
            Order::Start(some_begun()),
            Order::Query(5),
            Order::Programs(some_job().programs),
        ]
    }

    #[test]
    fn events_arriving_byte_by_byte_are_decoded_in_order() {
        let mut bytes = Vec::new();
        events().iter().for_each(|event| event.put(&mut bytes));
        let (mut inbox, mut seen) = (Inbox::default(), Vec::new());
        for byte in bytes {
            inbox.add(&[byte]);
            seen.extend(NodeEvent::take(&mut inbox).unwrap());
        }
        assert_eq!(seen, events());
    }

    #[test]
    fn job_frames_equal_the_encoded_order() {
        let mut put = Vec::new();
        Order::Job(Box::new(some_job())).put(&mut put);
        assert_eq!(Order::job_frame(&some_job()), Ok(put));
        let (mut put, programs) = (Vec::new(), some_job().programs);
        Order::Programs(programs.clone()).put(&mut put);
        assert_eq!(Order::programs_frame(&programs), Ok(put));
    }

    #[test]
    fn orders_arriving_together_are_decoded_one_by_one() {
        let mut bytes = Vec::new();
        orders().iter().for_each(|order| order.put(&mut bytes));
        let mut inbox = Inbox::default();
        inbox.add(&bytes);
        let seen: Vec<Order> = std::iter::from_fn(|| Order::take(&mut inbox).unwrap()).collect();
        assert_eq!(seen, orders());
    }

    #[test]
    fn a_frame_of_zero_or_huge_length_is_rejected() {
        for length in [0, u32::MAX] {
            let mut inbox = Inbox::default();
            inbox.add(&length.to_le_bytes());
            assert_eq!(NodeEvent::take(&mut inbox), Err(Garbled));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), kind: u8,
        ) {
            let mut framed = Vec::new();
            frame(&mut framed, kind, |body| body.extend_from_slice(&bytes));
            for stream in [bytes, framed] {
                let mut inbox = Inbox::default();
                inbox.add(&stream);
                while let Ok(Some(_)) = NodeEvent::take(&mut inbox) {}
                let mut inbox = Inbox::default();
                inbox.add(&stream);
                while let Ok(Some(_)) = Order::take(&mut inbox) {}
            }
        }
    }
}
