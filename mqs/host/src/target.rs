// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank: stopped and let go, its memory, its symbols.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use object::{Object, ObjectKind, ObjectSymbol};

use crate::Error;

/// The symbols of files that were read already: the ranks of a host share them.
#[derive(Debug, Default)]
pub struct Files(HashMap<PathBuf, Rc<Symbols>>);

#[derive(Debug, Default)]
struct Symbols {
    /// Addresses count from where the file is mapped.
    relative: bool,
    by_name: HashMap<Box<[u8]>, u64>,
}

/// A process with what is mapped in it.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    objects: Vec<(u64, Rc<Symbols>)>,
}

impl Target {
    /// Looks at what a process has mapped.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn open(pid: u32, files: &mut Files) -> Result<Self, Error> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.map_err(|why| Error::Unreadable { pid, why })?;
        let mut seen = Vec::new();
        let mut objects = Vec::new();
        for (start, path) in maps.lines().filter_map(first_mapping) {
            if !seen.contains(&path) {
                objects.push((start, files.symbols(path)));
                seen.push(path);
            }
        }
        Ok(Self { pid, objects })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The address of a symbol, in the program or any library.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<u64> {
        let mut found = self.objects.iter().filter_map(|(start, symbols)| {
            let value = symbols.by_name.get(name)?;
            Some(if symbols.relative {
                start.wrapping_add(*value)
            } else {
                *value
            })
        });
        found.next()
    }

    /// Copies memory; all of it or nothing.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let (Ok(base), Ok(pid)) = (usize::try_from(address), i32::try_from(self.pid)) else {
            return false;
        };
        let len = into.len();
        let from = [RemoteIoVec { base, len }];
        let read = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(into)], &from);
        read == Ok(len)
    }

    /// Where its MPI says that the library for debuggers lies.
    #[must_use]
    pub fn dll_path(&self) -> Option<PathBuf> {
        let address = self.find(b"MPIR_dll_name")?;
        let mut text = Vec::new();
        let mut piece = [0; 64];
        while text.len() < 4096 && self.read(address + text.len() as u64, &mut piece) {
            text.extend(piece.iter().take_while(|byte| **byte != 0));
            if piece.contains(&0) {
                break;
            }
        }
        (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&text)))
    }
}

impl Files {
    /// A file that is not readable, or none of ours to read, has no symbols.
    fn symbols(&mut self, path: &str) -> Rc<Symbols> {
        let symbols = self
            .0
            .entry(PathBuf::from(path))
            .or_insert_with_key(|path| Rc::new(Symbols::of(path).unwrap_or_default()));
        Rc::clone(symbols)
    }
}

impl Symbols {
    fn of(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let all = file.dynamic_symbols().chain(file.symbols());
        let defined = all.filter(|symbol| symbol.is_definition());
        let pairs = defined.filter_map(|it| Some((it.name_bytes().ok()?.into(), it.address())));
        Some(Self {
            relative: file.kind() == ObjectKind::Dynamic,
            by_name: pairs.collect(),
        })
    }
}

/// Start and file of a mapping of a file's beginning.
fn first_mapping(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let start = words.next()?.split('-').next()?;
    let offset = words.nth(1)?;
    let path = line.find('/').and_then(|at| line.get(at..))?;
    let is_first = offset.bytes().all(|digit| digit == b'0');
    is_first.then_some((u64::from_str_radix(start, 16).ok()?, path))
}

/// Signals that would end or stop this process wait until this is dropped: ranks that stand still would stay so.
#[derive(Debug)]
pub struct Undisturbed {
    before: SigSet,
}

impl Undisturbed {
    /// From now on, for this thread.
    ///
    /// # Errors
    /// The system's, which has none for this.
    pub fn begin() -> std::io::Result<Self> {
        let mut waiting = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
        ] {
            waiting.add(signal);
        }
        let before = waiting.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { before })
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // A mask that was there before is none that could be refused.
        let _ = self.before.thread_set_mask();
    }
}

/// A process that stands still until this is dropped.
#[derive(Debug)]
pub struct Stopped {
    pid: Pid,
    /// It stood still before, and is to stay so.
    before: bool,
}

impl Stopped {
    /// Stops a process, all its threads.
    ///
    /// # Errors
    /// When it cannot be stopped, or does not within a while.
    pub fn stop(pid: u32) -> Result<Self, Error> {
        let number = i32::try_from(pid).unwrap_or(i32::MAX);
        let unreadable = |why| Error::Unreadable { pid, why };
        let before = stands(pid).map_err(unreadable)?;
        let stopped = Self {
            pid: Pid::from_raw(number),
            before,
        };
        if before {
            return Ok(stopped);
        }
        kill(stopped.pid, Signal::SIGSTOP).map_err(|why| unreadable(why.into()))?;
        let since = Instant::now();
        while !stands(pid).map_err(unreadable)? {
            if since.elapsed() > PATIENCE {
                return Err(unreadable(std::io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.before {
            // It may have been killed meanwhile.
            let _ = kill(self.pid, Signal::SIGCONT);
        }
    }
}

/// Whether all threads of a process are stopped.
fn stands(pid: u32) -> std::io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("stat"))?;
        let state = text
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if !matches!(state, Some('T' | 't')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A process that does not stop in this time waits for a disk that is gone.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_while_ranks_stand_still_and_no_longer() {
        let is_held = || SigSet::thread_get_mask().unwrap().contains(Signal::SIGINT);
        let guard = Undisturbed::begin().unwrap();
        assert!(is_held());
        drop(guard);
        assert!(!is_held());
    }

    #[test]
    fn a_mapping_counts_where_a_file_begins() {
        let line = "7f12a000-7f12b000 r--p 00000000 fe:01 1234   /opt/my mpi/libmpi_abi.so.1";
        let expected = Some((0x7f12_a000, "/opt/my mpi/libmpi_abi.so.1"));
        assert_eq!(first_mapping(line), expected);
        assert_eq!(first_mapping(&line.replace("00000000", "00001000")), None);
        assert_eq!(
            first_mapping("7f00-7f01 rw-p 00000000 00:00 0 [heap]"),
            None
        );
    }
}
