// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting DPDK inside another program.
//!
//! # Safety
//! Strings and lengths are valid for the function; it is called once.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::sync::OnceLock;

use crate::table::Plugin;

/// The kind of memory that frames are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMemory {
    /// Ordinary pages, which need no reservation.
    Ordinary,
    /// Huge pages, which the administrator has reserved; PCI devices need them.
    Huge,
}

/// Whether the plug-in is installed and can be loaded.
///
/// # Errors
/// Returns the reason.
pub fn available() -> Result<(), String> {
    Plugin::load("").map(|_| ())
}

/// Starts DPDK in this process, once: later calls return the result of the first one, whatever their arguments.
/// `device` is the device of a port to be opened, with its arguments: PCI devices are probed at the start; others are
/// created when a port is opened. It takes about 150 ms, 100 of which DPDK uses to measure the processor's clock.
///
/// # Errors
/// The plug-in is missing, or DPDK's message.
pub fn start(memory: FrameMemory, device: &str) -> Result<(), String> {
    let start = || {
        let plugin = Plugin::load(device)?;
        let words = words(memory, is_on_bus(device).then_some(device), &allowed_cpus());
        // DPDK sets the affinity of the calling thread, which threads created by it inherit.
        let started = std::thread::Builder::new().spawn(move || call(plugin, &words));
        let started = started.map_err(|error| format!("no thread: {error}"))?;
        started
            .join()
            .unwrap_or_else(|_| Err("no reason given".to_owned()))?;
        Ok(plugin)
    };
    STARTED.get_or_init(start).clone().map(|_| ())
}

/// The plug-in with which DPDK was started.
///
/// # Errors
/// Returns why it was not started.
pub(crate) fn started() -> Result<&'static Plugin, String> {
    let never = || Err("DPDK was not started".to_owned());
    STARTED.get().cloned().unwrap_or_else(never)
}

/// Whether a device is a PCI device, as `0000:3b:00.2`, not a virtual one.
#[must_use]
pub fn is_on_bus(device: &str) -> bool {
    let name = device.split(',').next().unwrap_or_default();
    let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
    name.contains(':') && name.bytes().all(is_of_address)
}

static STARTED: OnceLock<Result<&'static Plugin, String>> = OnceLock::new();

fn call(plugin: &Plugin, words: &[String]) -> Result<(), String> {
    let words = words.iter().map(|word| CString::new(word.as_str()));
    let words = words.collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|error| error.to_string())?;
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    let mut why = ReasonBuffer::default();
    // SAFETY: as many C strings, and room for the message.
    let result = unsafe {
        (plugin.start)(
            c_int::try_from(pointers.len()).unwrap_or(0),
            pointers.as_ptr(),
            why.as_mut_ptr(),
            ReasonBuffer::BYTES,
        )
    };
    why.result(result)
}

/// The command-line arguments of DPDK (EAL).
fn words(memory: FrameMemory, bus_device: Option<&str>, cpus: &str) -> Vec<String> {
    let mut words: Vec<String> = match memory {
        // Only address space is reserved, until it is used.
        FrameMemory::Ordinary => vec![
            "--no-huge".into(),
            "-m".into(),
            "128".into(),
            "--no-shconf".into(),
        ],
        FrameMemory::Huge => vec!["--in-memory".into()],
    };
    words.extend(["--no-telemetry", "--log-level=*:error"].map(Into::into));
    // One lcore, which stands for the caller's threads on any allowed CPU: no thread is bound, and no worker is
    // created.
    words.push(format!("--lcores=0@({cpus})"));
    match bus_device {
        Some(device) => words.extend(["-a".to_owned(), device.to_owned()]),
        None => words.push("--no-pci".into()),
    }
    words
}

/// CPUs that this process may use, as `0-3,7`.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or("0", str::trim).to_owned()
}

/// A buffer for an error message of the plug-in.
pub(crate) struct ReasonBuffer([u8; Self::BYTES]);

impl Default for ReasonBuffer {
    fn default() -> Self {
        Self([0; Self::BYTES])
    }
}

impl ReasonBuffer {
    pub(crate) const BYTES: usize = 256;

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    pub(crate) fn result(&self, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        let words = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        Err(String::from_utf8_lossy(words).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_on_a_bus_is_looked_for_and_others_need_no_bus() {
        let ordinary = words(FrameMemory::Ordinary, None, "0-1");
        assert!(
            ordinary.contains(&"--no-pci".to_owned())
                && ordinary.contains(&"--lcores=0@(0-1)".to_owned())
        );
        let huge = words(FrameMemory::Huge, Some("0000:3b:00.2"), "4");
        assert!(huge.ends_with(&["-a".to_owned(), "0000:3b:00.2".to_owned()]));
        assert!(
            !huge
                .iter()
                .any(|word| word == "--no-huge" || word == "--no-pci")
        );
    }

    #[test]
    fn the_cpus_of_this_process_are_a_list() {
        let cpus = allowed_cpus();
        assert!(
            !cpus.is_empty()
                && cpus
                    .chars()
                    .all(|it| it.is_ascii_digit() || ",-".contains(it)),
            "{cpus}"
        );
    }
}
