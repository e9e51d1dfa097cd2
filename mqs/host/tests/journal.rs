// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops ranks under random traffic at random instants. Each rank keeps a journal of its operations
//! (`journal/traffic.c`), which is read at the same stop; the report on the rank must be consistent with it.
//!
//! MQS-031..034, MQS-035..047, MQS-084..088, MQS-091, MQS-092, for queues that change between stops.
//!
//! `cargo xtask test debuggers` runs this test with [`STOPS`] stops; `RMPI_TEST_STOPS=10000` makes it a long run.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use queues::dll::Dll;
use queues::job;
use queues::report::{CommReport, OperationReport, RankReport};
use queues::stop::HaltedProcesses;
use queues::symbols::SymbolFiles;
use queues::target::RankProcess;

const VARIABLE: &str = "RMPI_TEST_PREFIX";
/// Number of stops in all, over all kinds of jobs.
const STOPS: usize = 300;
const RANKS: usize = 3;

/// Kinds of jobs: number of threads, and whether the library lists complete sends until they are collected
/// (`MPIR_being_debugged`).
const KINDS: [(usize, bool); 3] = [(2, false), (2, true), (1, false)];

fn installed(name: &str) -> PathBuf {
    let prefix = std::env::var_os(VARIABLE)
        .unwrap_or_else(|| panic!("{VARIABLE} is not set; type: cargo xtask test debuggers"));
    Path::new(&prefix).join(name)
}

#[test]
#[ignore = "needs the installed launcher: cargo xtask test debuggers"]
fn mqs_084_088_queues_read_at_any_instant_are_consistent() {
    let stops = std::env::var("RMPI_TEST_STOPS").ok();
    let stops = stops.map_or(STOPS, |text| text.parse().unwrap());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("journal-traffic");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/traffic.c");
    let mut compile = Command::new(installed("bin/rmpicc"));
    compile.args(["-O2", "-Wall", "-Werror", "-pthread", "-o"]);
    assert!(
        compile
            .arg(&program)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    let mut seen = Seen::default();
    for (number, (threads, keep)) in KINDS.into_iter().enumerate() {
        let mut job = Running::start(&program, threads, keep);
        for stop in 0..stops.div_ceil(KINDS.len()) {
            let pause = mix((number * 100_000 + stop) as u64) % 4000;
            std::thread::sleep(Duration::from_micros(pause));
            job.stop(&mut seen);
        }
    }
    println!("{seen:?}");
    // Checks that every kind of operation occurred often enough.
    let least = (stops / 10).max(1);
    assert!(
        seen.sends > least && seen.receives > least && seen.unexpected > least,
        "{seen:?}"
    );
    assert!(
        seen.in_calls > 0 && seen.probes > 0 && seen.collectives > 0,
        "{seen:?}"
    );
    assert!(
        seen.changing * 10 < stops * RANKS,
        "too many were being changed: {seen:?}"
    );
}

/// Counts over all stops.
#[derive(Debug, Default)]
struct Seen {
    stops: usize,
    sends: usize,
    receives: usize,
    matched: usize,
    unexpected: usize,
    /// Operations that a call waits for.
    in_calls: usize,
    probes: usize,
    collectives: usize,
    /// Operations that were not reported because the rank was stopped while it changed them.
    changing: usize,
}

struct Running {
    launcher: Child,
    pids: Vec<u32>,
    files: SymbolFiles,
    dll: Dll,
    kind: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The launcher may have ended already; the ranks end when it ends.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

impl Running {
    fn start(program: &Path, threads: usize, keep: bool) -> Self {
        let mut start = Command::new(installed("bin/rmpiexec"));
        start.env_remove(VARIABLE).env_remove("RMPI_TEST_STOPS");
        start.args(["-n", &RANKS.to_string()]).arg(program);
        start.args([threads.to_string(), u32::from(keep).to_string()]);
        let mut launcher = start.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = launcher.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "under way\n");
        let mut files = SymbolFiles::default();
        let targets = job::ranks(launcher.id(), &mut files).unwrap();
        let dll = Dll::load(&targets.ranks[0].dll_path().unwrap()).unwrap();
        let pids: Vec<u32> = targets.ranks.iter().map(RankProcess::pid).collect();
        assert_eq!(pids.len(), RANKS);
        Self {
            launcher,
            pids,
            files,
            dll,
            kind: format!("{threads} threads, sends are kept: {keep}"),
        }
    }

    /// Stops all ranks, compares the reports with their journals, and lets them continue.
    fn stop(&mut self, seen: &mut Seen) {
        let stopped = HaltedProcesses::stop(self.pids.iter().copied()).unwrap();
        let mut journals: Vec<Journal> = Vec::new();
        let mut reported: Vec<RankReport> = Vec::new();
        for pid in &self.pids {
            let target = RankProcess::open(*pid, &mut self.files).unwrap();
            journals.push(Journal::read(&target));
            reported.push(self.dll.read(&target).unwrap());
        }
        let by_rank = |rank: i64| {
            journals
                .iter()
                .find(|it| i64::from(it.rank) == rank)
                .unwrap()
        };
        for (journal, rank) in journals.iter().zip(&reported) {
            if journal.threads.is_empty() {
                continue;
            }
            assert_eq!(rank.rank, Some(journal.rank));
            let mut check = Check {
                journal,
                seen,
                what: format!("rank {} of {}", journal.rank, self.kind),
                reported: HashSet::new(),
                left_out: 0,
            };
            for communicator in &rank.communicators {
                check.communicator(communicator, &by_rank);
            }
            check.nothing_is_missing(rank);
        }
        seen.stops += 1;
        drop(stopped);
    }
}

/// A rank and its journal, during a comparison.
struct Check<'a> {
    journal: &'a Journal,
    seen: &'a mut Seen,
    what: String,
    /// Entries of the journal that were reported, by thread and place.
    reported: HashSet<(usize, usize)>,
    left_out: usize,
}

impl Check<'_> {
    fn communicator<'j>(&mut self, it: &CommReport, by_rank: &impl Fn(i64) -> &'j Journal) {
        let what = format!("{}, {}", self.what, it.name);
        assert_eq!(
            it.rank,
            if it.name == "MPI_COMM_SELF" {
                0
            } else {
                self.journal.rank.into()
            }
        );
        let Some(comm) = COMMS.iter().position(|name| **name == it.name) else {
            assert!(
                it.name.starts_with("own ") || it.name == "MPI_COMM_SELF",
                "{what}"
            );
            let queues = [&it.sends, &it.receives, &it.unexpected];
            assert!(
                queues.iter().all(|queue| queue.is_empty()),
                "{what}: {it:?}"
            );
            self.collectives(it, &what);
            return;
        };
        assert_eq!(it.ranks, (0..RANKS as i32).collect::<Vec<_>>(), "{what}");
        for (kind, queue) in [(SEND, &it.sends), (RECEIVE, &it.receives)] {
            let mut orders = [-1; 2];
            for operation in queue {
                let (thread, entry) = self.operation(kind, comm as i32, operation, &what);
                if kind == RECEIVE && entry.claimed == 0 {
                    assert!(
                        entry.order > orders[thread],
                        "{what}: {queue:#?} is in another order"
                    );
                    orders[thread] = entry.order;
                }
            }
        }
        self.unexpected(it, comm as i32, by_rank, &what);
        for call in &it.calls {
            self.call(&call.function, &what);
            match call.function.as_str() {
                "MPI_Probe" | "MPI_Mprobe" => {
                    let probe = self.journal.find(|entry| {
                        entry.kind == PROBE
                            && entry.comm == comm as i32
                            && Some(i64::from(entry.peer)) == call.peer
                            && Some(i64::from(entry.tag)) == call.tag
                    });
                    assert!(probe.is_some(), "{what}: {call:?}");
                    self.seen.probes += 1;
                }
                other => panic!("{what}: {other} waits for nothing that is listed"),
            }
        }
    }

    /// The journal entry of a reported send or receive.
    fn operation(
        &mut self,
        kind: i32,
        comm: i32,
        it: &OperationReport,
        what: &str,
    ) -> (usize, Entry) {
        let found = self.journal.find(|entry| {
            entry.kind == kind
                && entry.comm == comm
                && Some(i64::from(entry.tag)) == it.tag
                && (kind == RECEIVE || Some(i64::from(entry.peer)) == it.peer)
        });
        let Some((thread, place, entry)) = found else {
            panic!("{what}: {it:?} is nothing that was started and not collected");
        };
        let peer = (entry.peer >= 0 && entry.claimed == 0 || kind == SEND)
            .then_some(i64::from(entry.peer));
        if entry.claimed == 0 {
            assert_eq!(
                (it.peer, it.world_peer),
                (peer, peer),
                "{what}: {it:?} {entry:?}"
            );
        }
        assert_eq!(it.bytes, entry.bytes, "{what}: {it:?} {entry:?}");
        if entry.structured == 0 {
            assert_eq!(it.buffer, entry.buffer, "{what}: {it:?} {entry:?}");
        }
        let synchronous = it.words[0].contains("synchronous");
        assert_eq!(synchronous, entry.synchronous != 0, "{what}: {it:?}");
        if let Some((rank, tag, bytes)) = it.matched {
            let of_entry = (entry.source.into(), entry.tag.into(), entry.bytes);
            assert_eq!((rank, tag, bytes), of_entry, "{what}: {it:?}");
            self.seen.matched += 1;
        }
        if let Some(function) = &it.call {
            self.call(function, what);
            self.seen.in_calls += 1;
        }
        assert!(
            self.reported.insert((thread, place)),
            "{what}: {it:?} twice"
        );
        match kind {
            SEND => self.seen.sends += 1,
            _ => self.seen.receives += 1,
        }
        (thread, entry)
    }

    fn unexpected<'j>(
        &mut self,
        it: &CommReport,
        comm: i32,
        by_rank: &impl Fn(i64) -> &'j Journal,
        what: &str,
    ) {
        // Round and number of the last message of each source and thread: messages of one thread do not overtake each
        // other.
        let mut before = [[(-1, -1); 2]; RANKS];
        for message in &it.unexpected {
            let (source, tag) = (message.peer.unwrap(), message.tag.unwrap() as i32);
            let sender = by_rank(source);
            let (number, thread) = ((tag & 7) as usize, (tag >> 3 & 1) as usize);
            assert_eq!(i64::from(tag >> 4 & 3), source, "{what}: {message:?}");
            let here = &self.journal.threads[thread];
            let there = &sender.threads[thread];
            // The tag contains the low bits of the sender's round.
            let ahead = (tag >> 6).wrapping_sub(here.round) & ROUNDS;
            assert!(ahead <= 1, "{what}: {message:?} in round {}", here.round);
            let round = here.round + ahead;
            let sent = round < there.round
                || round == there.round && there.sent[source_index(self.journal.rank)][number];
            assert!(sent, "{what}: {message:?} was not sent");
            let received = ahead == 0 && here.received[source_index(source as i32)][number];
            assert!(!received, "{what}: {message:?} was received");
            let posted = self.journal.find(|entry| {
                entry.kind == RECEIVE
                    && entry.phase == PENDING
                    && entry.comm == comm
                    && entry.tag == tag
            });
            assert!(
                posted.is_none(),
                "{what}: {message:?} has a receive {posted:?}, of {:#?}",
                it.receives
            );
            let (bytes, of) = message_of(round, source, self.journal.rank, thread, number);
            assert_eq!((message.bytes, comm), (bytes, of), "{what}: {message:?}");
            let last = &mut before[source_index(source as i32)][thread];
            assert!(
                (round, number as i32) > *last,
                "{what}: {:#?} overtook",
                it.unexpected
            );
            *last = (round, number as i32);
            self.seen.unexpected += 1;
        }
    }

    fn collectives(&mut self, it: &CommReport, what: &str) {
        let Some(thread) = it.name.strip_prefix("own ") else {
            return;
        };
        let Some(thread) = self.journal.threads.get(thread.parse::<usize>().unwrap()) else {
            return;
        };
        for (which, name) in ["Barrier", "Allreduce"].into_iter().enumerate() {
            let counted = it.collectives.iter().find(|it| it.name == name);
            let (called, active) = counted.map_or((0, 0), |it| (it.called, it.active));
            let (begun, ended) = (thread.begun[which], thread.ended[which]);
            assert!(
                (ended..=begun).contains(&called),
                "{what}: {name} {called} of {ended}..{begun}"
            );
            assert!(
                (0..=1).contains(&active) && (active == 0 || begun > ended),
                "{what}: {name}"
            );
        }
        for call in &it.calls {
            self.call(&call.function, what);
            assert_eq!(call.function, thread.function, "{what}");
            assert_eq!(call.waits, "waits for the other ranks");
            self.seen.collectives += 1;
        }
    }

    /// Checks that a thread is in this call.
    fn call(&self, function: &str, what: &str) {
        let is_in = |it: &Thread| it.function == function;
        assert!(
            self.journal.threads.iter().any(is_in),
            "{what}: no call of {function}"
        );
    }

    /// Checks that all pending operations were reported, except at most one that the rank was changing when it was stopped.
    fn nothing_is_missing(&mut self, rank: &RankReport) {
        for (number, thread) in self.journal.threads.iter().enumerate() {
            for (place, entry) in thread.entries.iter().enumerate() {
                let must = entry.phase == PENDING
                    && (entry.kind == RECEIVE || entry.kind == SEND && self.journal.keep);
                if must && !self.reported.contains(&(number, place)) {
                    self.left_out += 1;
                    let what = &self.what;
                    assert!(
                        self.left_out <= 1,
                        "{what}: {entry:?} is missing too, of {rank:#?}"
                    );
                }
            }
        }
        self.seen.changing += self.left_out;
    }
}

#[derive(Debug)]
struct Journal {
    rank: i32,
    keep: bool,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    round: i32,
    begun: [i32; 2],
    ended: [i32; 2],
    function: String,
    sent: [[bool; 8]; 4],
    received: [[bool; 8]; 4],
    entries: Vec<Entry>,
}

/// An operation in the journal, with the fields that it has in `traffic.c`.
#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: i32,
    kind: i32,
    comm: i32,
    /// -1: any.
    peer: i32,
    tag: i32,
    source: i32,
    synchronous: i32,
    structured: i32,
    claimed: i32,
    order: i32,
    bytes: i64,
    buffer: u64,
}

impl Journal {
    fn read(target: &RankProcess) -> Self {
        let mut bytes = vec![0; HEAD + 2 * THREAD];
        assert!(target.read(target.find(b"journal").unwrap(), &mut bytes));
        let [rank, _, threads, keep] = core::array::from_fn(|at| word(&bytes, 4 * at));
        let threads = bytes[HEAD..].chunks(THREAD).take(threads as usize);
        Self {
            rank,
            keep: keep != 0,
            threads: threads.map(Thread::of).collect(),
        }
    }

    /// An operation that may be pending, with its thread and position.
    fn find(&self, is_it: impl Fn(&Entry) -> bool) -> Option<(usize, usize, Entry)> {
        let threads = self.threads.iter().enumerate();
        let mut all = threads.flat_map(|(number, thread)| {
            let entries = thread.entries.iter().enumerate();
            entries.map(move |(place, entry)| (number, place, *entry))
        });
        all.find(|(_, _, entry)| entry.phase != IDLE && is_it(entry))
    }
}

impl Thread {
    fn of(bytes: &[u8]) -> Self {
        let pair = |at| [word(bytes, at), word(bytes, at + 4)];
        let flags = |at: usize| {
            core::array::from_fn(|row| {
                core::array::from_fn(|number| bytes[at + 8 * row + number] != 0)
            })
        };
        let text = bytes[24..56].split(|byte| *byte == 0).next().unwrap();
        Self {
            round: word(bytes, 0),
            begun: pair(8),
            ended: pair(16),
            function: String::from_utf8_lossy(text).into_owned(),
            sent: flags(56),
            received: flags(88),
            entries: bytes[120..].chunks_exact(ENTRY).map(Entry::of).collect(),
        }
    }
}

impl Entry {
    fn of(bytes: &[u8]) -> Self {
        let long = |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let [
            phase,
            kind,
            comm,
            peer,
            tag,
            source,
            synchronous,
            structured,
            claimed,
            order,
        ] = core::array::from_fn(|at| word(bytes, 4 * at));
        Self {
            phase,
            kind,
            comm,
            peer,
            tag,
            source,
            synchronous,
            structured,
            claimed,
            order,
            bytes: long(40),
            buffer: long(48).cast_unsigned(),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn source_index(rank: i32) -> usize {
    usize::try_from(rank).unwrap()
}

/// Bytes and communicator of a message: `message` in `traffic.c`.
fn message_of(round: i32, source: i64, dest: i32, thread: usize, number: usize) -> (i64, i32) {
    let [round, source, dest] = [i64::from(round), source, dest.into()].map(i64::cast_unsigned);
    let key = (((round * 4 + source) * 4 + dest) * 2 + thread as u64) * 8 + number as u64;
    let random = mix(mix(key + 1));
    let most = [0, 0, 64, 64, 4096, 20_000, 60_000, 200_000][(random % 8) as usize];
    let bytes = match most {
        0 => 8,
        most => 8 * ((random >> 8) % (most / 8)) + 8,
    };
    (bytes.cast_signed(), (random >> 40 & 1) as i32)
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Names of the communicators, indexed by their numbers in the journal.
const COMMS: [&str; 2] = ["MPI_COMM_WORLD", "halo"];
const ROUNDS: i32 = 0x3fff;
const HEAD: usize = 16;
const ENTRY: usize = 56;
const THREAD: usize = 120 + 48 * ENTRY;
const IDLE: i32 = 0;
const PENDING: i32 = 2;
const SEND: i32 = 0;
const RECEIVE: i32 = 1;
const PROBE: i32 = 2;
