// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found, as data and as text.

use std::fmt::{self, Display, Formatter};

use mqs::interface::{self, MATCHED, PENDING_RECEIVES, PENDING_SENDS};
use serde::Serialize;

/// A rank with its communicators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// Rank in `MPI_COMM_WORLD`, if the library knows it.
    pub rank: Option<i32>,
    /// The process.
    pub pid: u32,
    /// Its communicators; none while MPI is not initialized.
    pub communicators: Vec<Communicator>,
}

/// A communicator of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Communicator {
    /// The same on all its ranks.
    pub id: u64,
    /// Its name, if it has one.
    pub name: String,
    /// The rank in it.
    pub rank: i64,
    /// Ranks that messages come from and go to, as ranks in `MPI_COMM_WORLD`.
    pub ranks: Vec<i32>,
    /// Sends that are not finished or not collected.
    pub sends: Vec<Operation>,
    /// Receives that are not finished or not collected.
    pub receives: Vec<Operation>,
    /// Messages that arrived before their receives.
    pub unexpected: Vec<Operation>,
    /// Calls that a thread waits in, of which no send or receive tells, if the library says so.
    pub calls: Vec<Call>,
    /// Collectives that were called, if the library counts them.
    pub collectives: Vec<Collective>,
}

/// One pending operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// Rank of the other side in the communicator; none: any.
    pub peer: Option<i64>,
    /// The same in `MPI_COMM_WORLD`.
    pub world_peer: Option<i64>,
    /// Tag; none: any.
    pub tag: Option<i64>,
    /// Bytes of the buffer or the message.
    pub bytes: i64,
    /// Address of the data; 0: not here.
    pub buffer: u64,
    /// `pending`, `matched` or `complete`.
    pub status: &'static str,
    /// Rank, tag and bytes of the message that a receive has matched.
    pub matched: Option<(i64, i64, i64)>,
    /// What the library says of it.
    pub words: Vec<String>,
    /// The function that a thread waits for it in, if the library says so.
    pub call: Option<String>,
}

/// A call that a thread waits in: a probe, a collective, `MPI_Finalize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The function.
    pub function: String,
    /// What it waits for, in the library's words.
    pub waits: String,
    /// The thread, where that is not the main one.
    pub thread: Option<u32>,
    /// Of a probe: whose message, as a rank of the communicator; none: any, or no probe.
    pub peer: Option<i64>,
    /// Of a probe: with which tag; none: any, or no probe.
    pub tag: Option<i64>,
}

impl Call {
    /// rmpi's library lists such calls behind the posted receives, with the function's name where others say `receive`.
    pub(crate) fn of(entry: &Operation) -> Option<Self> {
        let function = entry.call.clone()?;
        let [first, waits, ..] = &entry.words[..] else {
            return None;
        };
        let thread = entry.words.iter().find_map(|line| {
            let (_, thread) = line.split_once(", thread ")?;
            thread.parse().ok()
        });
        (*first == function).then(|| Self {
            function,
            waits: waits.clone(),
            thread,
            peer: entry.peer,
            tag: entry.tag,
        })
    }
}

impl Display for Call {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "in {}, {}", self.function, self.waits)?;
        if self.waits.ends_with("message") {
            let peer = self.peer.map(|rank| format!("rank {rank}"));
            let tag = self.tag.map(|tag| format!("tag {tag}"));
            let peer = peer.as_deref().unwrap_or("any rank");
            let tag = tag.as_deref().unwrap_or("any tag");
            write!(out, " from {peer}, {tag}")?;
        }
        match self.thread {
            Some(thread) => write!(out, " (thread {thread})"),
            None => Ok(()),
        }
    }
}

/// Calls of one collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collective {
    /// Its name without `MPI_`.
    pub name: &'static str,
    /// Calls that were begun.
    pub called: i32,
    /// Calls that have not ended.
    pub active: i32,
}

impl Operation {
    /// As the interface gives it.
    pub(crate) fn of(it: &interface::PendingOperation, class: i32) -> Self {
        let any = |rank: i64| (rank != -1).then_some(rank);
        let matched = (it.actual_local_rank, it.actual_tag, it.actual_length);
        let is_matched = class == PENDING_RECEIVES && it.status >= MATCHED;
        let lines = it.extra_text.iter().map(|line| text(line));
        let words: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let call = words.iter().find_map(|line| line.strip_prefix("in "));
        let call = call.map(|call| call.split(',').next().unwrap_or_default().to_owned());
        Self {
            peer: any(it.desired_local_rank),
            world_peer: any(it.desired_global_rank),
            tag: (it.tag_wild == 0).then_some(it.desired_tag),
            bytes: it.desired_length,
            buffer: it.buffer,
            status: match it.status {
                interface::PENDING => "pending",
                MATCHED => "matched",
                _ => "complete",
            },
            matched: is_matched.then_some(matched),
            words,
            call,
        }
    }

    fn line(&self, class: i32) -> String {
        let towards = if class == PENDING_SENDS { "to" } else { "from" };
        let peer = match (self.peer, self.world_peer) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, Some(rank)) => format!("rank {rank} of MPI_COMM_WORLD"),
            (None, None) => "any rank".to_owned(),
        };
        let tag = self
            .tag
            .map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"));
        let mut line = format!("{towards} {peer}, {tag}, {} bytes", self.bytes);
        let words = self.words.join("; ");
        if !words.is_empty() {
            line += &format!(" ({words})");
        }
        if let Some((rank, tag, bytes)) = self.matched {
            line += &format!(" <- rank {rank}, tag {tag}, {bytes} bytes");
        }
        line
    }
}

/// The text in a field that a zero ends.
pub(crate) fn text(field: &[u8]) -> String {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl Display for Rank {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => writeln!(out, "rank {rank} (pid {})", self.pid)?,
            None => writeln!(out, "pid {}, MPI is not initialized", self.pid)?,
        }
        let busy = |it: &&Communicator| !it.is_quiet();
        if !self.communicators.iter().any(|it| busy(&it)) {
            writeln!(out, "  nothing is pending")?;
        }
        self.communicators
            .iter()
            .filter(busy)
            .try_for_each(|it| it.fmt(out))
    }
}

impl Communicator {
    fn is_quiet(&self) -> bool {
        let queues = [&self.sends, &self.receives, &self.unexpected];
        let still = self.calls.is_empty() && queues.iter().all(|it| it.is_empty());
        still && self.collectives.iter().all(|it| it.active == 0)
    }
}

impl Display for Communicator {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => format!("communicator {}", self.id),
            name => name.to_owned(),
        };
        writeln!(out, "  {name}: rank {}", self.rank)?;
        for it in &self.calls {
            writeln!(out, "    {it}")?;
        }
        for it in self.collectives.iter().filter(|it| it.active > 0) {
            writeln!(out, "    in {}, call {}", it.name, it.called)?;
        }
        let queues = [
            ("sends", PENDING_SENDS, &self.sends),
            ("receives", PENDING_RECEIVES, &self.receives),
            (
                "unexpected messages",
                interface::UNEXPECTED_MESSAGES,
                &self.unexpected,
            ),
        ];
        for (name, class, queue) in queues {
            if !queue.is_empty() {
                writeln!(out, "    {name}")?;
            }
            for operation in queue {
                writeln!(out, "      {}", operation.line(class))?;
            }
        }
        Ok(())
    }
}
