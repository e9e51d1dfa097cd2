// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a rank's process: its memory, and the symbols and types of its mapped files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::symbols::{SymbolFiles, Symbols};
use crate::types::Type;
use crate::{Error, ancestor};

/// A process with the object files that it maps.
#[derive(Debug)]
pub struct RankProcess {
    pid: u32,
    objects: Vec<(u64, Arc<Symbols>)>,
    /// Files with debug information that are not mapped.
    types: Vec<Arc<Symbols>>,
    /// The memory of the process as a file, opened after `process_vm_readv` was refused. The inner `None`: it cannot be
    /// opened.
    memory: OnceLock<Option<File>>,
}

impl RankProcess {
    /// Reads the mappings of a process.
    ///
    /// # Errors
    /// When the mappings cannot be read.
    pub fn open(pid: u32, files: &mut SymbolFiles) -> Result<Self, Error> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        let maps = maps.map_err(|why| Error::unreadable(pid, why))?;
        let mut seen = Vec::new();
        let mut objects = Vec::new();
        for (start, path) in maps.lines().filter_map(first_mapping) {
            if !seen.contains(&path) {
                objects.push((start, files.symbols(Path::new(path))));
                seen.push(path);
            }
        }
        Ok(Self {
            pid,
            objects,
            types: Vec::new(),
            memory: OnceLock::new(),
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The address of a symbol, in the program or any library.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<u64> {
        let mut all = self.objects.iter();
        all.find_map(|(start, symbols)| symbols.address(name, *start))
    }

    /// A type from the files of [`add_types`](Self::add_types), or else from the debug information of the program or
    /// any library.
    #[must_use]
    pub fn find_type(&self, name: &[u8]) -> Option<Type> {
        let mapped = self.objects.iter().map(|(_, symbols)| symbols);
        let mut all = self.types.iter().chain(mapped);
        all.find_map(|symbols| symbols.find_type(name))
    }

    /// Adds a file with types, which is searched before the mapped files.
    pub fn add_types(&mut self, file: Arc<Symbols>) {
        self.types.push(file);
    }

    /// Copies memory of the process into `into`. Returns whether all bytes were read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let (Ok(base), Ok(pid)) = (usize::try_from(address), i32::try_from(self.pid)) else {
            return false;
        };
        if let Some(memory) = self.memory.get() {
            return read_file(memory.as_ref(), address, into);
        }
        let len = into.len();
        let from = [RemoteIoVec { base, len }];
        let read = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(into)], &from);
        // Seccomp filters of containers may refuse this system call for every user.
        if !matches!(read, Err(Errno::EPERM | Errno::ENOSYS)) {
            return read == Ok(len);
        }
        let open = || {
            let opened = File::open(format!("/proc/{pid}/mem")).ok();
            opened.or_else(|| ancestor::memory(self.pid).ok())
        };
        read_file(self.memory.get_or_init(open).as_ref(), address, into)
    }

    /// From now on, the memory of the process is read through the descriptor from the launcher, never directly.
    pub fn read_through_launcher(&mut self) {
        self.memory = OnceLock::from(ancestor::memory(self.pid).ok());
    }

    /// Whether its memory can be read at all.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let first = self.objects.first().map_or(0, |(start, _)| *start);
        self.read(first, &mut [0; 4])
    }

    /// The path of the debugger library in `MPIR_dll_name`. If there is no such file, perhaps the installation was
    /// moved: the path is then looked up below each folder that contains the MPI library.
    #[must_use]
    pub fn dll_path(&self) -> Option<PathBuf> {
        let name = b"MPIR_dll_name";
        let mut all = self.objects.iter();
        let holder = all.find(|(start, symbols)| symbols.address(name, *start).is_some())?;
        let path = PathBuf::from(OsStr::from_bytes(&self.text(self.find(name)?)?));
        let below = path.strip_prefix("/").unwrap_or(&path);
        let moved = holder.1.path().ancestors().map(|root| root.join(below));
        let there = std::iter::once(path.clone()).chain(moved);
        Some(there.into_iter().find(|path| path.exists()).unwrap_or(path))
    }

    /// The non-empty string of less than 4 KiB at an address.
    fn text(&self, address: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut piece = [0; 64];
        while text.len() < 4096 && self.read(address + text.len() as u64, &mut piece) {
            text.extend(piece.iter().take_while(|byte| **byte != 0));
            if piece.contains(&0) {
                return (!text.is_empty()).then_some(text);
            }
        }
        None
    }
}

fn read_file(memory: Option<&File>, address: u64, into: &mut [u8]) -> bool {
    memory.is_some_and(|file| file.read_exact_at(into, address).is_ok())
}

/// Start address and path of a line of `/proc/PID/maps` that maps a file from offset 0.
fn first_mapping(line: &str) -> Option<(u64, &str)> {
    let mut columns = line.split_ascii_whitespace();
    let start = columns.next()?.split('-').next()?;
    let offset = columns.nth(1)?;
    let path = line.find('/').and_then(|at| line.get(at..))?;
    let is_first = offset.bytes().all(|digit| digit == b'0');
    is_first.then_some((u64::from_str_radix(start, 16).ok()?, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_mapping_of_a_file_is_its_base() {
        let line = "7f12a000-7f12b000 r--p 00000000 fe:01 1234   /opt/my mpi/libmpi_abi.so.1";
        let expected = Some((0x7f12_a000, "/opt/my mpi/libmpi_abi.so.1"));
        assert_eq!(first_mapping(line), expected);
        assert_eq!(first_mapping(&line.replace("00000000", "00001000")), None);
        assert_eq!(
            first_mapping("7f00-7f01 rw-p 00000000 00:00 0 [heap]"),
            None
        );
    }

    #[test]
    fn memory_is_read_from_proc_if_the_system_call_is_refused() {
        let mut target =
            RankProcess::open(std::process::id(), &mut SymbolFiles::default()).unwrap();
        let value = Box::new(0x1234_5678_u32);
        let address = core::ptr::from_ref(&*value).addr() as u64;
        for memory in [
            OnceLock::new(),
            OnceLock::from(File::open("/proc/self/mem").ok()),
        ] {
            target.memory = memory;
            let mut copy = [0; 4];
            assert!(target.read(address, &mut copy) && target.is_readable());
            assert_eq!(u32::from_ne_bytes(copy), *value);
            assert!(!target.read(8, &mut copy));
        }
    }
}
