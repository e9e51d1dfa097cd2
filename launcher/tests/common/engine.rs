// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates the engine of LaunchMON in the state before its pull request 69 (July 2026): starts a launcher, or
//! attaches to one, and reads the process table in the same way as LaunchMON. The properties that matter:
//!
//! - Addresses in the launcher's symbol table are used without a load address. For symbols of the dynamic linker,
//!   `AT_BASE` of the auxiliary vector is the load address.
//! - Memory is read and written in words (`PTRACE_PEEKDATA`). A breakpoint replaces the first byte of a word.
//! - The engine also has a breakpoint in `_dl_debug_state`, where it walks the list of libraries (`_r_debug`).
//! - New threads stay traced. The engine removes its breakpoints from a new process, and detaches from that process.
//! - In `MPIR_Breakpoint` the engine steps one instruction. It detects this breakpoint by the position after the step:
//!   behind the instruction, or at the return address.
//! - A launcher that the engine has started stays in `MPIR_Breakpoint` until the tool's own programs are running.
#![allow(unsafe_code)]

use super::{Job, Running};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why the engine cannot continue; the real engine would hang.
pub type Stuck = String;

/// How the resource manager starts the tool's programs on its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Programs {
    /// The tool starts them itself (`RM_MPIR=STD`).
    OfTool,
    /// The launcher starts them, from their name and arguments (`RM_MPIR=STD_COLOC_FIFO`).
    OfLauncher(String, String),
}

/// The engine, and the launcher that it traces. It must be used by one thread only, since for the kernel a tracer is a
/// thread.
pub struct Engine {
    pid: Pid,
    programs: Programs,
    /// Addresses of the launcher's symbols, as in its file.
    symbols: HashMap<String, u64>,
    /// Addresses of the dynamic linker's symbols, as in the process.
    linker: HashMap<String, u64>,
    launch: Point,
    library: Point,
    threads: BTreeSet<Pid>,
    /// Names of the libraries found in the list of the dynamic linker.
    pub libraries: BTreeSet<String>,
    wants_to_leave: bool,
}

/// A breakpoint.
#[derive(Debug, Default)]
struct Point {
    at: u64,
    below: i64,
    is_set: bool,
    returns_to: u64,
}

/// An event of the launcher.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The launcher is stopped in `MPIR_Breakpoint`, with this value of `MPIR_debug_state`.
    Launched(i32),
    /// The launcher has terminated. Its status is left to its parent.
    Ended,
    /// The engine has detached from the launcher.
    Left,
}

/// By host: rank, process and program.
pub type Table = BTreeMap<String, Vec<(usize, i32, String)>>;

/// Runs `work` in a new thread, which is the engine. When the thread ends, the kernel detaches all processes that it
/// still traces.
pub fn as_engine<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Starts a launcher and runs it to its breakpoint.
pub fn launch(mut job: Job, programs: Programs) -> (Result<Engine, Stuck>, Running) {
    super::tool::trace(&mut job);
    let running = job.start();
    let engine = begin(&running, programs, false);
    (engine, running)
}

/// Attaches to a running launcher.
pub fn attach(running: &Running, programs: Programs) -> Result<Engine, Stuck> {
    ptrace::attach(pid_of(running)).expect("it can be traced");
    begin(running, programs, true)
}

fn pid_of(running: &Running) -> Pid {
    Pid::from_raw(running.pid().cast_signed())
}

fn begin(running: &Running, programs: Programs, comes_late: bool) -> Result<Engine, Stuck> {
    let pid = pid_of(running);
    let status = waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let base = base_of_linker(pid).ok_or("there is no dynamic linker (AT_BASE)")?;
    let linker = symbols(&interpreter(pid, base))
        .into_iter()
        .map(|(name, address)| (name, address + base))
        .collect();
    let mut engine = Engine {
        pid,
        programs,
        symbols: symbols(&program),
        linker,
        launch: Point::default(),
        library: Point::default(),
        threads: BTreeSet::from([pid]),
        libraries: BTreeSet::new(),
        wants_to_leave: false,
    };
    engine.set_up(comes_late)?;
    Ok(engine)
}

impl Engine {
    fn set_up(&mut self, comes_late: bool) -> Result<(), Stuck> {
        self.launch.at = self.address("MPIR_Breakpoint")?;
        set(self.pid, &mut self.launch)?;
        self.write("MPIR_being_debugged", &1i32.to_ne_bytes())?;
        if let Programs::OfLauncher(path, argument) = &self.programs {
            let mut text = [0; 256];
            text[..path.len()].copy_from_slice(path.as_bytes());
            self.write("MPIR_executable_path", &text)?;
            let mut text = [0; 1024];
            text[..argument.len()].copy_from_slice(argument.as_bytes());
            self.write("MPIR_server_arguments", &text)?;
        }
        self.library.at = self.in_linker("_dl_debug_state")?;
        set(self.pid, &mut self.library)?;
        if comes_late {
            self.check_libraries()?;
        } else {
            ptrace::setoptions(self.pid, options()).unwrap();
        }
        let fifo = match (comes_late, &self.programs) {
            (true, Programs::OfLauncher(..)) => Some(self.text(self.address("MPIR_attach_fifo")?)?),
            _ => None,
        };
        if comes_late && fifo.is_none() {
            return Ok(());
        }
        ptrace::cont(self.pid, None).unwrap();
        if let Some(fifo) = fifo {
            fs::write(&fifo, [1]).map_err(|error| format!("{fifo}: {error}"))?;
        }
        Ok(())
    }

    /// Continues the launcher after the table was read.
    pub fn go_on(&self) {
        ptrace::cont(self.pid, None).unwrap();
    }

    /// Handles stops of the launcher until there is an event for the tool.
    pub fn wait(&mut self) -> Result<Event, Stuck> {
        let event = self.wait_until(|| false)?;
        Ok(event.expect("something has happened"))
    }

    /// Handles stops of the launcher until there is an event for the tool, or until `is_so` returns `true`.
    pub fn wait_until(&mut self, is_so: impl Fn() -> bool) -> Result<Option<Event>, Stuck> {
        let start = Instant::now();
        while !is_so() {
            if start.elapsed() > PATIENCE {
                return Err(format!("nothing in {PATIENCE:?}: the tool waits for ever"));
            }
            let event = self.turn()?;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Handles a pending stop, if there is one.
    fn turn(&mut self) -> Result<Option<Event>, Stuck> {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        // Waits only for processes that this thread traces. The status of a terminated launcher is left to its parent.
        let peek = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let all = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | flags | peek;
        let status = waitid(Id::All, all).map_err(|error| error.to_string())?;
        let Some(pid) = status.pid() else {
            std::thread::sleep(Duration::from_millis(1));
            return Ok(None);
        };
        let over = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
        if over && pid == self.pid {
            return Ok(Some(Event::Ended));
        }
        let status = waitpid(pid, Some(flags)).unwrap();
        if over {
            self.threads.remove(&pid);
            return Ok(None);
        }
        self.stopped(pid, status)
    }

    /// Detaches from the launcher, whether it is stopped or running.
    pub fn leave(mut self) -> Result<(), Stuck> {
        self.settle()?;
        if is_held(self.pid, self.pid) {
            return self.let_go();
        }
        self.wants_to_leave = true;
        kill(self.pid, Signal::SIGSTOP).unwrap();
        match self.wait()? {
            Event::Left => Ok(()),
            other => Err(format!("it was not let go: {other:?}")),
        }
    }

    /// Handles the stops of all other threads that are stopped or about to stop. A thread that is detached in such a
    /// state would stay stopped. The real engine has handled these stops long before it detaches.
    fn settle(&mut self) -> Result<(), Stuck> {
        let start = Instant::now();
        let other = |thread: &Pid, process: Pid| *thread != process;
        while start.elapsed() < PATIENCE {
            let mut threads = threads_of(self.pid).into_iter();
            if !threads.any(|it| other(&it, self.pid) && is_held(self.pid, it)) {
                return Ok(());
            }
            if let Some(event) = self.turn()? {
                return Err(format!("{event:?} meanwhile"));
            }
        }
        Err("a thread stays stopped".to_owned())
    }

    fn let_go(&mut self) -> Result<(), Stuck> {
        remove(self.pid, &mut self.launch)?;
        remove(self.pid, &mut self.library)?;
        self.write("MPIR_being_debugged", &0i32.to_ne_bytes())?;
        for thread in self.threads.iter().rev() {
            // The calls fail for a running thread, which then stays traced until the engine ends.
            let _ = ptrace::setoptions(*thread, Options::empty());
            let _ = ptrace::detach(*thread, None);
        }
        Ok(())
    }

    fn stopped(&mut self, pid: Pid, status: WaitStatus) -> Result<Option<Event>, Stuck> {
        if let WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_CLONE) = status {
            let thread = i32::try_from(ptrace::getevent(pid).unwrap()).unwrap();
            self.threads.insert(Pid::from_raw(thread));
            ptrace::cont(pid, None).unwrap();
            return Ok(None);
        }
        if !self.threads.contains(&pid) && !is_thread_of(self.pid, pid) {
            // The launcher has forked this process: remove the breakpoints from it, and detach from it.
            for point in [&self.launch, &self.library] {
                write_word(pid, point.at, point.below)?;
            }
            ptrace::detach(pid, None).unwrap();
            return Ok(None);
        }
        self.threads.insert(pid);
        let requested = WaitStatus::Stopped(self.pid, Signal::SIGSTOP);
        if self.wants_to_leave && status == requested {
            self.let_go()?;
            return Ok(Some(Event::Left));
        }
        let at = ptrace::getregs(pid).unwrap().rip;
        if self.launch.is_hit(at) {
            return self.at_launch(pid);
        }
        if self.library.is_hit(at) {
            if over(pid, &mut self.library)? {
                self.check_libraries()?;
                ptrace::cont(pid, None).unwrap();
            }
            return Ok(None);
        }
        let relayed = match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) | WaitStatus::PtraceEvent(..) => None,
            // This is also the stop with which a new thread starts.
            WaitStatus::Stopped(_, Signal::SIGSTOP) => Some(Signal::SIGCONT),
            WaitStatus::Stopped(_, other) => Some(other),
            other => return Err(format!("{other:?}")),
        };
        ptrace::cont(pid, relayed).unwrap();
        Ok(None)
    }

    fn at_launch(&mut self, pid: Pid) -> Result<Option<Event>, Stuck> {
        if !over(pid, &mut self.launch)? {
            return Ok(None);
        }
        let state = self.int("MPIR_debug_state")?;
        if state == ABORTING {
            self.settle()?;
            self.let_go()?;
        }
        Ok(Some(Event::Launched(state)))
    }

    /// Reads the process table; returns it by host.
    pub fn table(&self) -> Result<Table, Stuck> {
        let count = self.int("MPIR_proctable_size")?;
        if count <= 0 {
            return Err(format!("MPIR_proctable_size is {count}"));
        }
        let table = self.word(self.address("MPIR_proctable")?)?.cast_unsigned();
        let mut found = Table::new();
        for rank in 0..usize::try_from(count).unwrap() {
            let row = table + 24 * rank as u64;
            let host = self.text(self.word(row)?.cast_unsigned())?;
            let program = self.text(self.word(row + 8)?.cast_unsigned())?;
            let pid = low(self.word(row + 16)?);
            found.entry(host).or_default().push((rank, pid, program));
        }
        Ok(found)
    }

    fn check_libraries(&mut self) -> Result<(), Stuck> {
        // `struct r_debug` has a version and the address of the first `struct link_map`, which has address, name,
        // section and next.
        let mut map = self.word(self.in_linker("_r_debug")? + 8)?.cast_unsigned();
        while map != 0 {
            let name = self.word(map + 8)?.cast_unsigned();
            if name != 0 {
                self.libraries.insert(self.text(name)?);
            }
            map = self.word(map + 24)?.cast_unsigned();
        }
        Ok(())
    }

    /// Address of a symbol of the launcher, as in its file.
    fn address(&self, name: &str) -> Result<u64, Stuck> {
        let found = self.symbols.get(name).copied();
        found.ok_or_else(|| format!("the launcher has no symbol {name}"))
    }

    fn in_linker(&self, name: &str) -> Result<u64, Stuck> {
        let found = self.linker.get(name).copied();
        found.ok_or_else(|| format!("the dynamic linker has no symbol {name}"))
    }

    fn int(&self, name: &str) -> Result<i32, Stuck> {
        Ok(low(self.word(self.address(name)?)?))
    }

    fn text(&self, mut at: u64) -> Result<String, Stuck> {
        let mut bytes = Vec::new();
        while !bytes.contains(&0) {
            bytes.extend(self.word(at)?.to_ne_bytes());
            at += 8;
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    fn word(&self, at: u64) -> Result<i64, Stuck> {
        read_word(self.pid, at)
    }

    /// Writes to a variable in words, and preserves the bytes after the end.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Stuck> {
        let start = self.address(name)?;
        for (at, part) in (start..).step_by(8).zip(bytes.chunks(8)) {
            let mut word = read_word(self.pid, at)?.to_ne_bytes();
            word[..part.len()].copy_from_slice(part);
            write_word(self.pid, at, i64::from_ne_bytes(word))?;
        }
        Ok(())
    }
}

impl Point {
    /// Whether a stop at address `at` belongs to this breakpoint.
    fn is_hit(&self, at: u64) -> bool {
        (self.at + 1..=self.at + 3).contains(&at) || at == self.returns_to
    }
}

fn set(pid: Pid, point: &mut Point) -> Result<(), Stuck> {
    point.below = read_word(pid, point.at)?;
    let mut word = point.below.to_ne_bytes();
    word[0] = 0xcc;
    write_word(pid, point.at, i64::from_ne_bytes(word))?;
    point.is_set = true;
    Ok(())
}

fn remove(pid: Pid, point: &mut Point) -> Result<(), Stuck> {
    if std::mem::take(&mut point.is_set) {
        write_word(pid, point.at, point.below)?;
    }
    Ok(())
}

/// Steps over a breakpoint in two calls. The first call starts the step and returns `false`; the second call, after the
/// step, sets the breakpoint again and returns `true`.
fn over(pid: Pid, point: &mut Point) -> Result<bool, Stuck> {
    if !point.is_set {
        set(pid, point)?;
        return Ok(true);
    }
    let mut registers = ptrace::getregs(pid).unwrap();
    point.returns_to = read_word(pid, registers.rsp)?.cast_unsigned();
    remove(pid, point)?;
    registers.rip = point.at;
    ptrace::setregs(pid, registers).unwrap();
    ptrace::step(pid, None).unwrap();
    Ok(false)
}

fn read_word(pid: Pid, at: u64) -> Result<i64, Stuck> {
    let address = at as ptrace::AddressType;
    ptrace::read(pid, address).map_err(|error| format!("cannot read {at:#x}: {error}"))
}

fn write_word(pid: Pid, at: u64, word: i64) -> Result<(), Stuck> {
    let address = at as ptrace::AddressType;
    ptrace::write(pid, address, word).map_err(|error| format!("cannot write {at:#x}: {error}"))
}

fn low(word: i64) -> i32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    i32::from_ne_bytes([a, b, c, d])
}

fn options() -> Options {
    Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK
}

fn is_thread_of(process: Pid, thread: Pid) -> bool {
    Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

fn threads_of(process: Pid) -> Vec<Pid> {
    let all = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.map(Pid::from_raw).collect()
}

/// Whether a thread is stopped for its tracer, or about to stop.
fn is_held(process: Pid, thread: Pid) -> bool {
    let path = format!("/proc/{process}/task/{thread}/status");
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)).map(str::trim)
    };
    let pending = value("SigPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let stop = 1 << (libc::SIGSTOP - 1);
    value("State:").is_some_and(|state| state.starts_with('t')) || pending.unwrap_or(0) & stop != 0
}

/// The symbols of a file: those of its symbol table, or of its dynamic symbol table if it has no other.
pub fn symbols(file: &Path) -> HashMap<String, u64> {
    let data = fs::read(file).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let named = |symbol: object::read::elf::ElfSymbol64<'_, '_>| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        (symbol.address() != 0).then(|| (name.to_owned(), symbol.address()))
    };
    let found: HashMap<_, _> = file.symbols().filter_map(named).collect();
    if found.is_empty() {
        return file.dynamic_symbols().filter_map(named).collect();
    }
    found
}

/// `AT_BASE` of the auxiliary vector: the load address of the dynamic linker.
fn base_of_linker(pid: Pid) -> Option<u64> {
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let words: Vec<u64> = words.collect();
    let pair = words
        .chunks_exact(2)
        .find(|pair| pair[0] == libc::AT_BASE)?;
    Some(pair[1])
}

/// The file that is mapped at address `base`.
fn interpreter(pid: Pid, base: u64) -> std::path::PathBuf {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let start = format!("{base:x}-");
    let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
    line.split_whitespace().last().unwrap().into()
}

/// `MPIR_DEBUG_SPAWNED`.
pub const SPAWNED: i32 = 1;
/// `MPIR_DEBUG_ABORTING`.
pub const ABORTING: i32 = 2;

/// Time after which a test fails; the real tool would wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);
