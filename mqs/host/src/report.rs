// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found, as data.

use std::borrow::Cow;
use std::sync::Arc;

use mqs::interface::{self, MATCHED, PENDING_RECEIVES};
use serde::{Deserialize, Serialize};

/// A rank with its communicators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Rank in `MPI_COMM_WORLD`, if the library knows it.
    pub rank: Option<i32>,
    /// The host, in a job over several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// The process there.
    pub pid: u32,
    /// The library says which calls wait; of a rank of another, waiting and computing look alike.
    pub tells_calls: bool,
    /// Its communicators; none while MPI is not initialized.
    pub communicators: Vec<CommReport>,
}

/// A communicator of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommReport {
    /// The same on all its ranks.
    pub id: u64,
    /// Its name, if it has one.
    pub name: String,
    /// The rank in it.
    pub rank: i64,
    /// Ranks that messages come from and go to, as ranks in `MPI_COMM_WORLD`.
    pub ranks: Vec<i32>,
    /// Sends that are not finished or not collected.
    pub sends: Vec<OperationReport>,
    /// Receives that are not finished or not collected.
    pub receives: Vec<OperationReport>,
    /// Messages that arrived before their receives.
    pub unexpected: Vec<OperationReport>,
    /// Calls that a thread waits in, of which no send or receive tells, if the library says so.
    pub calls: Vec<CallReport>,
    /// Nonblocking collectives under way, if the library lists them.
    pub begun: Vec<NonblockingCollective>,
    /// Persistent receives that are not started, if the library lists them.
    pub inactive: Vec<OperationReport>,
    /// Collectives that were called, if the library counts them.
    pub collectives: Vec<Collective>,
}

/// One pending operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Rank of the other side in the communicator; none: any.
    pub peer: Option<i64>,
    /// The same in `MPI_COMM_WORLD`.
    pub world_peer: Option<i64>,
    /// Tag; none: any.
    pub tag: Option<i64>,
    /// Bytes of the buffer or the message.
    pub bytes: i64,
    /// Items of a datatype that these are, if the library says so.
    pub items: Option<u64>,
    /// That datatype.
    pub datatype: Option<Arc<str>>,
    /// Address of the data; 0: not here.
    pub buffer: u64,
    /// `pending`, `matched` or `complete`.
    pub status: Cow<'static, str>,
    /// Rank, tag and bytes of the message that a receive has matched.
    pub matched: Option<(i64, i64, i64)>,
    /// What the library says of it.
    pub words: Arc<[String]>,
    /// The function that a thread waits for it in, if the library says so.
    pub call: Option<Arc<str>>,
    /// That thread, where it is not the main one.
    pub thread: Option<u32>,
    /// Which of its waits that is, if the library counts them.
    pub wait: Option<u32>,
    /// No other thread of the rank can be in MPI meanwhile.
    pub alone: bool,
    /// Requests of that call that are done, and those that are pending, if it has several.
    pub requests: Option<(u32, u32)>,
    /// That call waits in a collective whose data are just moving.
    pub moving: bool,
}

impl RankReport {
    /// Its process in words.
    #[must_use]
    pub fn process(&self) -> String {
        let pid = self.pid;
        match &self.host {
            Some(host) => format!("pid {pid} on host {host}"),
            None => format!("pid {pid}"),
        }
    }
}

impl OperationReport {
    /// Of the entry of a collective.
    fn bytes_a_rank(&self) -> Option<i64> {
        let told = |line: &String| line.ends_with(" a rank");
        self.words.iter().any(told).then_some(self.bytes)
    }

    /// Bytes, and of what they are.
    #[must_use]
    pub fn data(&self) -> MessageData {
        MessageData {
            bytes: self.bytes,
            items: self.items,
            datatype: self.datatype.clone(),
        }
    }
}

/// The size of a message or a buffer, and its datatype.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MessageData {
    /// Bytes.
    pub bytes: i64,
    /// Items of a datatype that these are, if that is known.
    pub items: Option<u64>,
    /// That datatype.
    pub datatype: Option<Arc<str>>,
}

/// A call that a thread waits in: a probe, a collective, `MPI_Finalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// The function.
    pub function: String,
    /// What it waits for, in the library's words.
    pub waits: String,
    /// The thread, where that is not the main one.
    pub thread: Option<u32>,
    /// Which of its waits it is, if the library counts them.
    pub wait: Option<u32>,
    /// No other thread of the rank can be in MPI meanwhile.
    pub alone: bool,
    /// Of a probe: whose message, as a rank of the communicator; none: any. Of a collective: its root, if it has one.
    pub peer: Option<i64>,
    /// Of a probe: with which tag; none: any. Of a collective: which call of the communicator's it is.
    pub tag: Option<i64>,
    /// Of a collective: bytes that all ranks must name alike, if there are such and the library says them.
    pub bytes: Option<i64>,
    /// Of a collective: data of it are just moving.
    pub moving: bool,
    /// Requests of it that are done, and those that are pending, if it has several.
    pub requests: Option<(u32, u32)>,
}

/// A nonblocking collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NonblockingCollective {
    /// Its name, as `Bcast`.
    pub name: String,
    /// Its root, as a rank of the communicator, if it has one.
    pub root: Option<i64>,
    /// Which call of the communicator's it is.
    pub place: Option<i64>,
    /// Bytes that all ranks must name alike, if there are such and the library says them.
    pub bytes: Option<i64>,
    /// The function that a thread waits for it in.
    pub call: Option<String>,
    /// That thread, where it is not the main one.
    pub thread: Option<u32>,
    /// Which of its waits that is.
    pub wait: Option<u32>,
    /// No other thread of the rank can be in MPI meanwhile.
    pub alone: bool,
    /// Data of a collective are just moving.
    pub moving: bool,
    /// Requests of that call that are done, and those that are pending, if it has several.
    pub requests: Option<(u32, u32)>,
}

impl NonblockingCollective {
    /// rmpi's library lists them in a queue of its own.
    pub(crate) fn of(entry: &OperationReport) -> Option<Self> {
        let what = entry.words.first()?.strip_prefix("nonblocking ")?;
        let name = what.split(", ").next()?;
        Some(Self {
            name: name.to_owned(),
            root: entry.peer,
            place: entry.tag,
            bytes: entry.bytes_a_rank(),
            call: entry.call.as_deref().map(str::to_owned),
            thread: entry.thread,
            wait: entry.wait,
            alone: entry.alone,
            moving: entry.moving,
            requests: entry.requests,
        })
    }
}

impl CallReport {
    /// rmpi's library lists such calls in a queue of its own, with the function's name where operations say `receive`.
    pub(crate) fn of(entry: &OperationReport) -> Option<Self> {
        let function = entry.call.as_deref()?;
        let [first, waits, ..] = &entry.words[..] else {
            return None;
        };
        (first == function).then(|| Self {
            function: function.to_owned(),
            waits: waits.clone(),
            thread: entry.thread,
            wait: entry.wait,
            alone: entry.alone,
            peer: entry.peer,
            tag: entry.tag,
            bytes: entry.bytes_a_rank(),
            moving: entry.moving,
            requests: entry.requests,
        })
    }
}

/// Calls of one collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Its name without `MPI_`.
    pub name: Cow<'static, str>,
    /// Calls that were begun.
    pub called: i32,
    /// Calls that have not ended.
    pub active: i32,
}

impl OperationReport {
    /// As the interface gives it.
    pub(crate) fn of(
        it: &interface::PendingOperation,
        class: i32,
        reader: &mut OperationTextReader,
    ) -> Self {
        // Some libraries forget the sign of what they have read.
        let any = |rank: i64| (rank != -1 && rank != i64::from(u32::MAX)).then_some(rank);
        let matched = (it.actual_local_rank, it.actual_tag, it.actual_length);
        let is_matched = class == PENDING_RECEIVES && it.status >= MATCHED;
        let told = reader.read(&it.extra_text);
        Self {
            peer: any(it.desired_local_rank),
            world_peer: any(it.desired_global_rank),
            tag: (it.tag_wild == 0).then_some(it.desired_tag),
            bytes: it.desired_length,
            items: told.items,
            datatype: told.datatype,
            buffer: it.buffer,
            status: Cow::Borrowed(match it.status {
                interface::PENDING => "pending",
                MATCHED => "matched",
                _ => "complete",
            }),
            matched: is_matched.then_some(matched),
            call: told.call,
            thread: told.thread,
            wait: told.wait,
            alone: told.alone,
            requests: told.requests,
            moving: told.moving,
            words: told.words,
        }
    }
}

/// The parsed text of the library about an operation.
#[derive(Clone, Debug)]
struct OperationText {
    words: Arc<[String]>,
    items: Option<u64>,
    datatype: Option<Arc<str>>,
    call: Option<Arc<str>>,
    thread: Option<u32>,
    wait: Option<u32>,
    alone: bool,
    requests: Option<(u32, u32)>,
    moving: bool,
}

impl OperationText {
    fn of(lines: &Lines) -> Self {
        let lines = lines.iter().map(|line| text(line));
        let words: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let line = words.iter().find_map(|line| line.strip_prefix("in "));
        let number = |word: &str| {
            let mut parts = line.into_iter().flat_map(|line| line.split(", "));
            parts.find_map(|part| part.strip_prefix(word)?.parse().ok())
        };
        let call = line.and_then(|line| line.split(", ").next());
        let (items, datatype) = words.iter().find_map(|line| data(line)).unzip();
        Self {
            items: items.flatten(),
            datatype: datatype.map(Arc::from),
            call: call.map(Arc::from),
            thread: number("thread "),
            wait: number("wait "),
            alone: line.is_some_and(|line| line.ends_with(", alone")),
            requests: words.iter().find_map(|line| requests(line)),
            moving: line.is_some_and(|line| line.split(", ").any(|part| part == "moving")),
            words: words.into(),
        }
    }
}

/// Parses the text of the library about operations. Thousands of operations mostly have the same text, so the last
/// result is kept.
#[derive(Debug, Default)]
pub(crate) struct OperationTextReader(Option<(Lines, OperationText)>);

impl OperationTextReader {
    fn read(&mut self, lines: &Lines) -> OperationText {
        match &self.0 {
            Some((known, told)) if known == lines => told.clone(),
            _ => {
                let told = OperationText::of(lines);
                self.0 = Some((*lines, told.clone()));
                told
            }
        }
    }
}

/// As they stand in [`interface::PendingOperation`].
type Lines = [[u8; 64]; 5];

/// `requests: 3 done, 2 pending`.
fn requests(line: &str) -> Option<(u32, u32)> {
    let (done, pending) = line.strip_prefix("requests: ")?.split_once(" done, ")?;
    let pending = pending.strip_suffix(" pending")?;
    Some((done.parse().ok()?, pending.parse().ok()?))
}

/// `10 of MPI_DOUBLE`, or `of face` where the number is not known.
fn data(line: &str) -> Option<(Option<u64>, &str)> {
    if let Some(datatype) = line.strip_prefix("of ") {
        return Some((None, datatype));
    }
    let (items, datatype) = line.split_once(" of ")?;
    Some((Some(items.parse().ok()?), datatype))
}

/// The text in a field that a zero ends.
pub(crate) fn text(field: &[u8]) -> String {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl CommReport {
    /// Its name, or its number.
    #[must_use]
    pub fn label(&self) -> String {
        match self.name.as_str() {
            "" => format!("communicator {}", self.id),
            name => name.to_owned(),
        }
    }
}
