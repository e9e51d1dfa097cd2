// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defines the report on a rank: its communicators, queues and calls, as the debugger library lists them.

use std::borrow::Cow;
use std::sync::Arc;

use mqs::interface::{self, MATCHED, PENDING_RECEIVES};
use serde::{Deserialize, Serialize};

/// A rank with its communicators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Rank in `MPI_COMM_WORLD`, if known.
    pub rank: Option<i32>,
    /// The host, in a job over several hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// The pid of the process, on that host.
    pub pid: u32,
    /// Whether the library lists blocking calls. If not, it is unknown whether the rank waits.
    #[serde(rename = "tells_calls")]
    pub reports_calls: bool,
    /// Communicators of the rank; none before MPI is initialized, or after it is finalized.
    pub communicators: Vec<CommReport>,
}

/// A communicator of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommReport {
    /// Id of the communicator, equal on all its ranks.
    pub id: u64,
    /// Name of the communicator, if it has one.
    pub name: String,
    /// Rank of the process in the communicator.
    pub rank: i64,
    /// Peers in the communicator (of an intercommunicator, the remote group), as ranks in `MPI_COMM_WORLD`.
    pub ranks: Vec<i32>,
    /// Sends that are pending, or complete but not yet collected by a test or wait.
    pub sends: Vec<OperationReport>,
    /// Receives that are pending, or complete but not yet collected by a test or wait.
    pub receives: Vec<OperationReport>,
    /// Messages that arrived before their receives.
    pub unexpected: Vec<OperationReport>,
    /// Blocking calls that wait for something other than listed requests, if the library lists these calls.
    pub calls: Vec<CallReport>,
    /// Nonblocking collectives in progress, if the library lists these.
    pub begun: Vec<NonblockingCollective>,
    /// Persistent receives that are not started, if the library lists these.
    pub inactive: Vec<OperationReport>,
    /// Counts of collective calls, if the library has them.
    pub collectives: Vec<Collective>,
}

/// One pending operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Rank of the peer in the communicator; `None`: any.
    pub peer: Option<i64>,
    /// Rank of the peer in `MPI_COMM_WORLD`; `None`: any.
    pub world_peer: Option<i64>,
    /// Tag; `None`: any.
    pub tag: Option<i64>,
    /// Bytes of the buffer or the message.
    pub bytes: i64,
    /// Number of items of the datatype, if known.
    pub items: Option<u64>,
    /// The datatype, if known.
    pub datatype: Option<Arc<str>>,
    /// Address of the data; 0: none.
    pub buffer: u64,
    /// `pending`, `matched` or `complete`.
    pub status: Cow<'static, str>,
    /// Rank, tag and bytes of the message that a receive has matched.
    pub matched: Option<(i64, i64, i64)>,
    /// The library's `extra_text`.
    pub words: Arc<[String]>,
    /// The function in which a thread waits for it, if any.
    pub call: Option<Arc<str>>,
    /// Id of the thread; `None` for the main thread.
    pub thread: Option<u32>,
    /// Number of the wait, if the library counts them.
    pub wait: Option<u32>,
    /// Whether no other thread of the rank can be in MPI at the same time.
    pub alone: bool,
    /// How many requests of the call `call` are complete, and how many pending; `None` unless it has several.
    pub requests: Option<(u32, u32)>,
    /// Whether the call `call` waits in a collective whose data are being transferred.
    pub moving: bool,
}

impl RankReport {
    /// The process of the rank, as text.
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
    /// Bytes per rank, for the entry of a collective.
    fn bytes_a_rank(&self) -> Option<i64> {
        let is_size = |line: &String| line.ends_with(" a rank");
        self.words.iter().any(is_size).then_some(self.bytes)
    }

    /// Size and datatype of the operation's data.
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
    /// Number of items of the datatype, if known.
    pub items: Option<u64>,
    /// The datatype, if known.
    pub datatype: Option<Arc<str>>,
}

/// A blocking call that waits for something other than listed requests: a probe, a collective, `MPI_Finalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// The function.
    pub function: String,
    /// The library's text for what the call waits for.
    pub waits: String,
    /// Id of the thread; `None` for the main thread.
    pub thread: Option<u32>,
    /// Number of the wait, if the library counts them.
    pub wait: Option<u32>,
    /// Whether no other thread of the rank can be in MPI at the same time.
    pub alone: bool,
    /// Of a probe: the source in the communicator; `None`: any. Of a collective: its root, if it has one.
    pub peer: Option<i64>,
    /// Of a probe: the tag; `None`: any. Of a collective: the number of the call on its communicator.
    pub tag: Option<i64>,
    /// Of a collective: the size that must be equal on all ranks, if there is one and it is known.
    pub bytes: Option<i64>,
    /// For a collective: whether its data are being transferred.
    pub moving: bool,
    /// How many of the call's requests are complete, and how many pending; `None` unless it has several.
    pub requests: Option<(u32, u32)>,
}

/// A nonblocking collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NonblockingCollective {
    /// Name of the collective, such as `Bcast`.
    pub name: String,
    /// Root of the collective, as a rank of the communicator, if it has one.
    pub root: Option<i64>,
    /// Number of the call on its communicator.
    pub place: Option<i64>,
    /// The size that must be equal on all ranks, if there is one and it is known.
    pub bytes: Option<i64>,
    /// The function in which a thread waits for it, if any.
    pub call: Option<String>,
    /// Id of the thread; `None` for the main thread.
    pub thread: Option<u32>,
    /// Number of the wait, if a thread waits for it.
    pub wait: Option<u32>,
    /// Whether no other thread of the rank can be in MPI at the same time.
    pub alone: bool,
    /// Whether its data are being transferred.
    pub moving: bool,
    /// How many requests of the call `call` are complete, and how many pending; `None` unless it has several.
    pub requests: Option<(u32, u32)>,
}

impl NonblockingCollective {
    /// Converts an entry of rmpi's own queue; `None` if it is not a nonblocking collective.
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
    /// Converts an entry of rmpi's own queue, whose first line is the function's name; `None` if it is not a call.
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

/// Counts of the calls of one collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Name of the collective, without `MPI_`.
    pub name: Cow<'static, str>,
    /// Number of calls that were started.
    pub called: i32,
    /// Number of calls in progress.
    pub active: i32,
}

impl OperationReport {
    /// Converts the interface's structure.
    pub(crate) fn of(
        it: &interface::PendingOperation,
        class: i32,
        reader: &mut OperationTextReader,
    ) -> Self {
        // Some libraries return -1 as an unsigned 32-bit number.
        let any = |rank: i64| (rank != -1 && rank != i64::from(u32::MAX)).then_some(rank);
        let matched = (it.actual_local_rank, it.actual_tag, it.actual_length);
        let is_matched = class == PENDING_RECEIVES && it.status >= MATCHED;
        let text = reader.read(&it.extra_text);
        Self {
            peer: any(it.desired_local_rank),
            world_peer: any(it.desired_global_rank),
            tag: (it.tag_wild == 0).then_some(it.desired_tag),
            bytes: it.desired_length,
            items: text.items,
            datatype: text.datatype,
            buffer: it.buffer,
            status: Cow::Borrowed(match it.status {
                interface::PENDING => "pending",
                MATCHED => "matched",
                _ => "complete",
            }),
            matched: is_matched.then_some(matched),
            call: text.call,
            thread: text.thread,
            wait: text.wait,
            alone: text.alone,
            requests: text.requests,
            moving: text.moving,
            words: text.words,
        }
    }
}

/// The parsed `extra_text` of an operation.
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
        let number = |prefix: &str| {
            let mut parts = line.into_iter().flat_map(|line| line.split(", "));
            parts.find_map(|part| part.strip_prefix(prefix)?.parse().ok())
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

/// Parses the `extra_text` of operations. Consecutive operations mostly have the same text, so the last result is cached.
#[derive(Debug, Default)]
pub(crate) struct OperationTextReader(Option<(Lines, OperationText)>);

impl OperationTextReader {
    fn read(&mut self, lines: &Lines) -> OperationText {
        match &self.0 {
            Some((known, text)) if known == lines => text.clone(),
            _ => {
                let text = OperationText::of(lines);
                self.0 = Some((*lines, text.clone()));
                text
            }
        }
    }
}

/// `extra_text` of [`interface::PendingOperation`].
type Lines = [[u8; 64]; 5];

/// Parses a line like `requests: 3 done, 2 pending`.
fn requests(line: &str) -> Option<(u32, u32)> {
    let (done, pending) = line.strip_prefix("requests: ")?.split_once(" done, ")?;
    let pending = pending.strip_suffix(" pending")?;
    Some((done.parse().ok()?, pending.parse().ok()?))
}

/// Parses a line like `10 of MPI_DOUBLE`, or `of face` if the number is unknown.
fn data(line: &str) -> Option<(Option<u64>, &str)> {
    if let Some(datatype) = line.strip_prefix("of ") {
        return Some((None, datatype));
    }
    let (items, datatype) = line.split_once(" of ")?;
    Some((Some(items.parse().ok()?), datatype))
}

/// The text of a zero-terminated field.
pub(crate) fn text(field: &[u8]) -> String {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl CommReport {
    /// The communicator's name, or a text with its id if it has no name.
    #[must_use]
    pub fn label(&self) -> String {
        match self.name.as_str() {
            "" => format!("communicator {}", self.id),
            name => name.to_owned(),
        }
    }
}
