// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debugger's anchor: the test lists the pending operations of a stopped process from outside, and compares them
//! with those that the program started. It uses only the library's dynamic symbols, reads of the process's memory, and
//! the layout table in that memory.
//!
//! # Safety
//! Two system calls: one reads another process's memory into a buffer, one sends a signal to a child.
#![allow(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test may panic; its numbers are small"
)]

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{prefix, scratch, source, succeed};
use object::{Object, ObjectSymbol};
use queue_layout::{
    ANY_PEER, ANY_TAG, Anchor, CHUNK, MAGIC, RequestKind, RequestState, SLOT, field,
};

/// A program that waits for a line of input before each step, so that the test can inspect it between steps.
const STEPS: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    static void step(const char *name) { puts(name); fflush(stdout); if (getchar() == EOF) MPI_Abort(MPI_COMM_SELF, 3); }\n\
    static char buf[6][100000];\n\
    int main(void) {\n\
    MPI_Request r[6]; int flag;\n\
    step(\"before\");\n\
    MPI_Init(0, 0); step(\"empty\");\n\
    MPI_Irecv(buf[0], 24, MPI_CHAR, 0, 7, MPI_COMM_SELF, &r[0]);\n\
    MPI_Irecv(buf[1], 100, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &r[1]);\n\
    MPI_Irecv(buf[2], 5, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &r[2]);\n\
    MPI_Isend(buf[3], 3, MPI_INT, 0, 21, MPI_COMM_SELF, &r[3]);\n\
    MPI_Isend(buf[4], 100000, MPI_CHAR, 0, 22, MPI_COMM_SELF, &r[4]);\n\
    MPI_Issend(buf[5], 8, MPI_CHAR, 0, 23, MPI_COMM_SELF, &r[5]);\n\
    MPI_Iprobe(0, 99, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);\n\
    printf(\"%p %p %p\\n\", (void *) buf[0], (void *) buf[1], (void *) buf[4]);\n\
    step(\"pending\");\n\
    for (int i = 0; i < 3; i++) { MPI_Cancel(&r[i]); }\n\
    MPI_Recv(buf[0], 3, MPI_INT, 0, 21, MPI_COMM_SELF, MPI_STATUS_IGNORE);\n\
    MPI_Recv(buf[1], 100000, MPI_CHAR, 0, 22, MPI_COMM_SELF, MPI_STATUS_IGNORE);\n\
    MPI_Recv(buf[2], 8, MPI_CHAR, 0, 23, MPI_COMM_SELF, MPI_STATUS_IGNORE);\n\
    MPI_Waitall(6, r, MPI_STATUSES_IGNORE); step(\"empty again\");\n\
    MPI_Finalize(); step(\"after\");\n\
    return 0; }\n";

#[test]
fn mqs_085_a_debugger_finds_pending_operations_in_process_memory() {
    let mut target = Target::start("anchor-steps", STEPS);
    target.expect("before");
    let anchor = target.anchor();
    assert_eq!(
        (anchor.word("state"), anchor.word("pid")),
        (queue_layout::BEFORE, 0)
    );
    assert_eq!(
        anchor.long("chunks"),
        0,
        "an address before there is anything"
    );
    target.go_on();
    target.expect("empty");
    let anchor = target.anchor();
    assert_eq!(anchor.word("state"), queue_layout::RUNNING);
    assert_eq!(
        (anchor.word("world_rank"), anchor.word("world_size")),
        (0, 1)
    );
    assert_eq!(anchor.word("pid"), target.child.id());
    assert_eq!(target.operations(), (Vec::new(), 0));
    target.go_on();
    let addresses = target.line();
    target.expect("pending");
    check_pending(&target.operations(), &addresses);
    target.go_on();
    target.expect("empty again");
    assert_eq!(target.operations(), (Vec::new(), 0));
    target.go_on();
    target.expect("after");
    assert_eq!(target.anchor().word("state"), queue_layout::FINALIZED);
    target.go_on();
    assert!(target.child.wait().unwrap().success());
}

fn check_pending((found, in_transition): &(Vec<Operation>, usize), addresses: &str) {
    assert_eq!(*in_transition, 0, "nothing moves");
    // The operations of one kind, in the order of posting or arrival.
    let own = |kind: RequestKind| -> Vec<(RequestState, u32, i32, u64)> {
        let mine = found.iter().filter(|it| it.kind == kind as u8);
        mine.map(|it| (state(it.state), it.peer, it.tag, it.bytes))
            .collect()
    };
    let receives = [
        (RequestState::Posted, 0, 7, 24),
        (RequestState::Posted, ANY_PEER, 8, 400),
        (RequestState::Posted, 0, ANY_TAG, 40),
    ];
    assert_eq!(own(RequestKind::Receive), receives);
    let unexpected = [
        (RequestState::Kept, 0, 21, 12),
        (RequestState::Envelope, 0, 22, 100_000),
        // A small synchronous send: its data have arrived, and its sender only waits for the match.
        (RequestState::Kept, 0, 23, 8),
    ];
    assert_eq!(own(RequestKind::Unexpected), unexpected);
    let sends = [
        (RequestState::Announced, 0, 22, 100_000),
        (RequestState::Announced, 0, 23, 8),
    ];
    assert_eq!(own(RequestKind::Send), sends);
    assert_eq!(found.len(), 8, "{found:?}");
    check_places(found, addresses);
}

/// Checks the addresses of data and the communicators.
fn check_places(found: &[Operation], addresses: &str) {
    let addresses: Vec<u64> = addresses
        .split_whitespace()
        .map(|word| u64::from_str_radix(&word[2..], 16).unwrap())
        .collect();
    let own = |tag| {
        let mut with_tag = found.iter().filter(|it| it.tag == tag);
        with_tag.find(|it| it.kind != RequestKind::Unexpected as u8)
    };
    let buffers: Vec<u64> = [7, 8, 22].map(|tag| own(tag).unwrap().buffer).into();
    assert_eq!(buffers, addresses);
    let context = |tag| found.iter().find(|it| it.tag == tag).unwrap().context;
    assert_eq!(context(7), context(21), "both of MPI_COMM_SELF");
    assert_ne!(context(7), context(8), "two communicators");
}

/// Decodes a state, which must be valid.
fn state(number: u8) -> RequestState {
    let known = [
        RequestState::Posted,
        RequestState::Announced,
        RequestState::Kept,
        RequestState::Envelope,
    ];
    let state = known.into_iter().find(|state| *state as u8 == number);
    state.unwrap_or_else(|| panic!("state {number}"))
}

/// A program that posts and completes receives and sends in an endless loop. Receives and messages of tag `t` have `8
/// t` bytes.
const CHURN: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    #define N 300\n\
    static char in[N][8 * 64], out[N][8 * 64];\n\
    int main(void) {\n\
    MPI_Init(0, 0); puts(\"churning\"); fflush(stdout);\n\
    MPI_Request r[2 * N]; unsigned seed = 1;\n\
    for (;;) {\n\
    int n = 1 + rand_r(&seed) % N, late = rand_r(&seed) % 2;\n\
    for (int i = 0; i < n; i++) { int tag = i % 64;\n\
    if (!late) MPI_Irecv(in[i], 8 * tag, MPI_CHAR, rand_r(&seed) % 2 ? 0 : MPI_ANY_SOURCE, tag, MPI_COMM_SELF, &r[i]); }\n\
    for (int i = 0; i < n; i++) { int tag = i % 64;\n\
    if (rand_r(&seed) % 4) MPI_Isend(out[i], 8 * tag, MPI_CHAR, 0, tag, MPI_COMM_SELF, &r[N + i]);\n\
    else MPI_Issend(out[i], 8 * tag, MPI_CHAR, 0, tag, MPI_COMM_SELF, &r[N + i]); }\n\
    for (int i = 0; i < n; i++) { int tag = i % 64;\n\
    if (late) MPI_Irecv(in[i], 8 * tag, MPI_CHAR, 0, tag, MPI_COMM_SELF, &r[i]); }\n\
    MPI_Waitall(n, r, MPI_STATUSES_IGNORE); MPI_Waitall(n, r + N, MPI_STATUSES_IGNORE); }\n\
    }\n";

#[test]
fn a_process_stopped_at_any_instruction_has_no_torn_operation() {
    let mut target = Target::start("anchor-churn", CHURN);
    target.expect("churning");
    let (mut seen, mut most) = (HashMap::<u8, u32>::new(), 0);
    for stop in 0..STOPS {
        std::thread::sleep(Duration::from_micros(stop % 7 * 150));
        target.stop();
        let (found, in_transition) = target.operations();
        assert!(in_transition <= 2, "one thread changes few slots at a time");
        most = most.max(found.len());
        for it in &found {
            *seen.entry(it.kind).or_default() += 1;
            it.check_churn();
        }
        let mut order: Vec<_> = found.iter().map(|it| it.sequence).collect();
        order.dedup();
        assert_eq!(order.len(), found.len(), "two operations with one number");
        target.signal(libc::SIGCONT);
    }
    let all = [
        RequestKind::Send,
        RequestKind::Receive,
        RequestKind::Unexpected,
    ];
    assert!(
        all.iter().all(|kind| seen.contains_key(&(*kind as u8))) && most > 100,
        "the stops saw too little: {seen:?}, at most {most} at a time"
    );
}

/// One slot, as read by a debugger.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Operation {
    kind: u8,
    state: u8,
    context: u32,
    peer: u32,
    tag: i32,
    bytes: u64,
    buffer: u64,
    sequence: u64,
}

impl Operation {
    fn check_churn(&self) {
        let kinds = RequestKind::Send as u8..=RequestKind::Unexpected as u8;
        assert!(kinds.contains(&self.kind), "{self:?}");
        assert!(
            self.state > RequestState::Inactive as u8 && self.state <= RequestState::Complete as u8
        );
        assert!((0..64).contains(&self.tag), "{self:?}");
        assert_eq!(self.bytes, 8 * self.tag as u64, "{self:?}");
        let wild = self.kind == RequestKind::Receive as u8 && self.peer == ANY_PEER;
        assert!(self.peer == 0 || wild, "{self:?}");
    }
}

/// The anchor's bytes.
struct AnchorImage(Vec<u8>);

impl AnchorImage {
    fn word(&self, name: &str) -> u32 {
        let at = match name {
            "size" => offset_of!(Anchor, size),
            "state" => offset_of!(Anchor, state),
            "pid" => offset_of!(Anchor, pid),
            "world_rank" => offset_of!(Anchor, world_rank),
            "world_size" => offset_of!(Anchor, world_size),
            "layout_rows" => offset_of!(Anchor, layout_rows),
            "layout_row_bytes" => offset_of!(Anchor, layout_row_bytes),
            "max_chunks" => offset_of!(Anchor, max_chunks),
            "chunk_slots" => offset_of!(Anchor, chunk_slots),
            "slot_bytes" => offset_of!(Anchor, slot_bytes),
            _ => panic!("no field {name}"),
        };
        number(&self.0[at..at + 4]) as u32
    }

    fn long(&self, name: &str) -> u64 {
        let at = match name {
            "self_address" => offset_of!(Anchor, self_address),
            "layout" => offset_of!(Anchor, layout),
            "chunks" => offset_of!(Anchor, chunks),
            _ => panic!("no field {name}"),
        };
        number(&self.0[at..at + 8])
    }
}

/// A running program, inspected from outside.
struct Target {
    child: Child,
    lines: BufReader<ChildStdout>,
    symbol: u64,
}

impl Target {
    fn start(name: &str, text: &str) -> Self {
        let program = build(&scratch(name), text);
        let mut child = Command::new(program);
        let mut child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            lines,
            symbol: 0,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn expect(&mut self, name: &str) {
        assert_eq!(self.line(), name);
        self.symbol = anchor_address(self.child.id());
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: `kill` accesses no memory of this process. The child has not been waited for, so its pid is not
        // reused.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0);
    }

    /// Stops the program and waits until it is stopped.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&stat).unwrap();
            match text.rsplit(") ").next().unwrap_or_default().chars().next() {
                Some('T') => return,
                Some('Z') | None => panic!("the program has ended"),
                _ => assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "it does not stop"
                ),
            }
            std::thread::yield_now();
        }
    }

    fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut local = vec![0u8; bytes];
        let into = libc::iovec {
            iov_base: local.as_mut_ptr().cast(),
            iov_len: bytes,
        };
        let from = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(address as usize),
            iov_len: bytes,
        };
        let pid = self.child.id() as i32;
        // SAFETY: each list has one piece. The local piece is `local`; the kernel checks the address in the other
        // process.
        let got = unsafe { libc::process_vm_readv(pid, &raw const into, 1, &raw const from, 1, 0) };
        assert_eq!(got, bytes as isize, "{}", std::io::Error::last_os_error());
        local
    }

    fn anchor(&self) -> AnchorImage {
        let head = self.read(self.symbol, 16);
        assert_eq!(head[..8], MAGIC);
        assert_eq!(
            number(&head[8..10]),
            queue_layout::QUEUE_LAYOUT_VERSION.into()
        );
        let anchor = AnchorImage(self.read(self.symbol, number(&head[12..16]) as usize));
        assert!(anchor.0.len() >= size_of::<Anchor>());
        if anchor.word("state") == queue_layout::RUNNING {
            assert_eq!(anchor.long("self_address"), self.symbol);
        }
        anchor
    }

    /// Offset and size of each field, from the table in the process.
    fn layout(&self, anchor: &AnchorImage) -> HashMap<(u16, u16), (usize, usize)> {
        let row_bytes = anchor.word("layout_row_bytes") as usize;
        let rows = anchor.word("layout_rows") as usize;
        let table = self.read(anchor.long("layout"), rows * row_bytes);
        let row = |row: &[u8]| {
            let [structure, number_] = [&row[0..2], &row[2..4]].map(|word| number(word) as u16);
            let [offset, size] = [&row[4..8], &row[8..12]].map(|word| number(word) as usize);
            ((structure, number_), (offset, size))
        };
        table.chunks(row_bytes).map(row).collect()
    }

    /// All operations in the order of posting or arrival, and the number of slots that were being changed.
    fn operations(&self) -> (Vec<Operation>, usize) {
        let anchor = self.anchor();
        let layout = self.layout(&anchor);
        let slot_bytes = anchor.word("slot_bytes") as usize;
        let (mut found, mut in_transition) = (Vec::new(), 0);
        for index in 0..u64::from(anchor.word("max_chunks")) {
            let chunk = number(&self.read(anchor.long("chunks") + 8 * index, 8));
            if chunk == 0 {
                break;
            }
            let (slots, bytes) = layout[&(CHUNK, field::CHUNK_SLOTS)];
            let slots = self.read(chunk + slots as u64, bytes);
            for slot in slots.chunks(slot_bytes) {
                let get = |name: u16| {
                    let (offset, size) = layout[&(SLOT, name)];
                    number(&slot[offset..offset + size])
                };
                if get(field::STATE) == 0 && get(field::VERSION) % 2 == 0 {
                    continue;
                }
                if get(field::VERSION) % 2 == 1 {
                    in_transition += 1;
                } else {
                    found.push(operation(get));
                }
            }
        }
        found.sort_by_key(|it: &Operation| it.sequence);
        (found, in_transition)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // An error means that the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn operation(get: impl Fn(u16) -> u64) -> Operation {
    Operation {
        kind: get(field::KIND) as u8,
        state: get(field::STATE) as u8,
        context: get(field::CONTEXT) as u32,
        peer: get(field::PEER) as u32,
        tag: get(field::TAG) as u32 as i32,
        bytes: get(field::BYTES),
        buffer: get(field::BUFFER),
        sequence: get(field::SEQUENCE),
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The address of the anchor in a process: the base of its library plus the symbol's value.
fn anchor_address(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut lines = maps.lines();
    let line = lines.find(|line| line.contains("libmpi_abi.so")).unwrap();
    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let file = line.split_whitespace().last().unwrap();
    let bytes = std::fs::read(Path::new(file)).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let mut symbols = library.dynamic_symbols();
    let symbol = symbols.find(|it| it.name() == Ok("rmpi_debug_anchor"));
    let symbol = symbol.expect("the library exports the anchor");
    assert_eq!(symbol.size(), size_of::<Anchor>() as u64);
    start + symbol.address()
}

fn build(folder: &Path, text: &str) -> PathBuf {
    let program = folder.join("program");
    let file = source(folder, "program.c", text);
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    compile.args(["-Wall", "-Werror", "-O1", "-o"]);
    succeed(compile.arg(&program).arg(file));
    program
}

/// Number of stops of the program.
const STOPS: u64 = 300;
