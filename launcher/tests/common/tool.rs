// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates a debugger of the MPIR interface, which finds the starter's symbols, writes its memory, and sets a
//! breakpoint in it.
#![allow(unsafe_code)]

use super::{Job, Running};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use object::read::elf::ElfFile64;
use object::{Object, ObjectKind, ObjectSymbol};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;

const TRAP: [u8; 1] = [0xcc];

/// A debugger and the starter that it traces. It must be used by one thread only, since for the kernel a tracer is a
/// thread.
pub struct Tool {
    pid: Pid,
    memory: File,
    symbols: HashMap<String, u64>,
    /// The byte that the breakpoint replaces.
    below_trap: Option<[u8; 1]>,
}

/// A row of the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub host: String,
    pub executable: String,
    pub pid: u32,
}

/// Starts a job under a debugger that has set `MPIR_being_debugged`, and runs the job to the breakpoint.
pub fn launch(mut job: Job) -> (Tool, Running) {
    trace(&mut job);
    let (mut tool, running) = start(job);
    tool.write("MPIR_being_debugged", 1);
    tool.go();
    (tool, running)
}

/// Makes the thread that starts the job the tracer of the job's command.
pub fn trace(job: &mut Job) {
    // SAFETY: the closure runs between fork and execve, and makes only one system call.
    unsafe {
        job.command.pre_exec(|| Ok(ptrace::traceme()?));
    }
}

/// Starts a traced job. The debugger has set a breakpoint, but not `MPIR_being_debugged`.
pub fn start(job: Job) -> (Tool, Running) {
    let running = job.start();
    let pid = Pid::from_raw(running.pid().cast_signed());
    let status = waitpid(pid, None).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    let mut tool = Tool::over(pid);
    let mut below = [0];
    let at = tool.address("MPIR_Breakpoint");
    tool.memory.read_exact_at(&mut below, at).unwrap();
    tool.below_trap = Some(below);
    tool.memory.write_all_at(&TRAP, at).unwrap();
    (tool, running)
}

/// Attaches to a running job.
pub fn attach(running: &Running) -> Tool {
    let pid = Pid::from_raw(running.pid().cast_signed());
    ptrace::attach(pid).expect("it can be traced");
    // Other stops may come before the requested stop, for example the stop after an exec. If the debugger detached at
    // such a stop, the process would stop later and remain stopped.
    loop {
        let signal = match waitpid(pid, None).unwrap() {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Tool::over(pid),
            WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
            WaitStatus::Stopped(_, other) => Some(other),
            other => panic!("the starter has not stopped: {other:?}"),
        };
        ptrace::cont(pid, signal).unwrap();
    }
}

impl Tool {
    /// A debugger for a process that has stopped.
    fn over(pid: Pid) -> Self {
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .unwrap();
        Self {
            pid,
            memory,
            symbols: symbols(pid),
            below_trap: None,
        }
    }

    fn address(&self, symbol: &str) -> u64 {
        *self
            .symbols
            .get(symbol)
            .unwrap_or_else(|| panic!("there is no {symbol}"))
    }

    /// Runs the starter to its breakpoint.
    pub fn go(&mut self) {
        let mut signal = None;
        loop {
            ptrace::cont(self.pid, signal).unwrap();
            match waitpid(self.pid, None).unwrap() {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => break,
                WaitStatus::Stopped(_, other) => signal = Some(other),
                other => panic!("the starter did not come to its breakpoint: {other:?}"),
            }
        }
        let at = self.address("MPIR_Breakpoint");
        let mut registers = ptrace::getregs(self.pid).unwrap();
        assert_eq!(registers.rip, at + 1);
        registers.rip = at;
        ptrace::setregs(self.pid, registers).unwrap();
    }

    /// Continues from the breakpoint to its next hit.
    pub fn go_again(&mut self) {
        self.remove_trap();
        ptrace::step(self.pid, None).unwrap();
        waitpid(self.pid, None).unwrap();
        let at = self.address("MPIR_Breakpoint");
        self.memory.write_all_at(&TRAP, at).unwrap();
        self.go();
    }

    /// Detaches from the starter, after clearing `MPIR_being_debugged`.
    pub fn leave(mut self) {
        self.remove_trap();
        self.write("MPIR_being_debugged", 0);
        ptrace::detach(self.pid, None).unwrap();
    }

    /// Continues the starter, sends it a signal, and waits until it stops for the signal.
    pub fn go_to_signal(&self, running: &Running, signal: Signal) {
        ptrace::cont(self.pid, None).unwrap();
        running.signal(signal);
        let status = waitpid(self.pid, None).unwrap();
        assert_eq!(status, WaitStatus::Stopped(self.pid, signal));
    }

    /// Detaches from the starter and delivers this signal to it. Does not clear `MPIR_being_debugged`.
    pub fn leave_with(self, signal: Signal) {
        self.remove_trap();
        ptrace::detach(self.pid, signal).unwrap();
    }

    fn remove_trap(&self) {
        if let Some(below) = self.below_trap {
            let at = self.address("MPIR_Breakpoint");
            self.memory.write_all_at(&below, at).unwrap();
        }
    }

    /// Value of an `int` variable of the starter.
    pub fn int(&self, symbol: &str) -> i32 {
        i32::from_ne_bytes(self.bytes(self.address(symbol)))
    }

    /// The text to which a `char *` variable of the starter points.
    pub fn text_behind(&self, symbol: &str) -> String {
        self.text_at(u64::from_ne_bytes(self.bytes(self.address(symbol))))
    }

    /// The text in a `char[]` variable of the starter.
    pub fn text(&self, symbol: &str) -> String {
        self.text_at(self.address(symbol))
    }

    /// Sets an `int` variable of the starter.
    pub fn write(&mut self, symbol: &str, value: i32) {
        self.write_bytes(symbol, &value.to_ne_bytes());
    }

    /// Sets the beginning of an array variable of the starter.
    pub fn write_bytes(&mut self, symbol: &str, bytes: &[u8]) {
        self.memory
            .write_all_at(bytes, self.address(symbol))
            .unwrap();
    }

    /// The process table.
    pub fn table(&self) -> Vec<Row> {
        let table = u64::from_ne_bytes(self.bytes(self.address("MPIR_proctable")));
        let count = u64::try_from(self.int("MPIR_proctable_size")).unwrap();
        let pointer = |at| self.text_at(u64::from_ne_bytes(self.bytes(at)));
        let row = |at: u64| Row {
            host: pointer(at),
            executable: pointer(at + 8),
            pid: u32::from_ne_bytes(self.bytes(at + 16)),
        };
        (0..count).map(|index| row(table + 24 * index)).collect()
    }

    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn text_at(&self, at: u64) -> String {
        assert_ne!(at, 0, "a text is missing");
        let bytes = (at..).map(|at| self.bytes::<1>(at)[0]);
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8(text).unwrap()
    }
}

/// Addresses of the symbols of a process's program.
fn symbols(pid: Pid) -> HashMap<String, u64> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps
        .lines()
        .find(|line| line.ends_with(program.to_str().unwrap()))
        .unwrap();
    let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let data = std::fs::read(&program).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    // Symbols of a program at a fixed address are absolute; symbols of other programs are relative to the load address.
    let base = if file.kind() == ObjectKind::Dynamic {
        base
    } else {
        0
    };
    let named = file
        .dynamic_symbols()
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), base + symbol.address())));
    named
        .filter(|(name, _)| name.starts_with("MPIR_"))
        .collect()
}
