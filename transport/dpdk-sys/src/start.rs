// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts DPDK inside another program.
//!
//! # Safety
//! The plug-in's `start` function gets valid strings and lengths, and is called once.
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

/// Checks that the plug-in is installed and can be loaded.
///
/// # Errors
/// Returns the reason why it cannot be loaded.
pub fn available() -> Result<(), String> {
    Plugin::load("").map(|_| ())
}

/// Starts DPDK in this process, once: later calls return the result of the first one, whatever their arguments.
/// `device` is the device of a port to be opened, with its arguments: PCI devices are probed at the start; others are
/// created when a port is opened. The start takes about 150 ms, 100 ms of which DPDK uses to measure the processor's
/// clock.
///
/// # Errors
/// The plug-in is missing, or DPDK does not start: the error has the reason.
pub fn start(memory: FrameMemory, device: &str) -> Result<(), String> {
    let start = || {
        let plugin = Plugin::load(device)?;
        let arguments = arguments(memory, is_on_bus(device).then_some(device), &allowed_cpus());
        // DPDK changes the affinity of the thread that starts it, and that thread's children inherit the affinity. So
        // DPDK is started in a thread of its own.
        let started = std::thread::Builder::new().spawn(move || call(plugin, &arguments));
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

/// Whether a device is a PCI device, for example `0000:3b:00.2`, and not a virtual device.
#[must_use]
pub fn is_on_bus(device: &str) -> bool {
    let name = device.split(',').next().unwrap_or_default();
    let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
    name.contains(':') && name.bytes().all(is_of_address)
}

static STARTED: OnceLock<Result<&'static Plugin, String>> = OnceLock::new();

fn call(plugin: &Plugin, arguments: &[String]) -> Result<(), String> {
    let arguments = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()));
    let arguments = arguments.collect::<Result<Vec<_>, _>>();
    let arguments = arguments.map_err(|error| error.to_string())?;
    let pointers: Vec<*const c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    let mut why = ReasonBuffer::default();
    // SAFETY: pointers to that many C strings, and a buffer of that length for the message.
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
fn arguments(memory: FrameMemory, bus_device: Option<&str>, cpus: &str) -> Vec<String> {
    let mut arguments: Vec<String> = match memory {
        // This reserves only address space; a page of memory is allocated when it is first used.
        FrameMemory::Ordinary => vec![
            "--no-huge".into(),
            "-m".into(),
            "128".into(),
            "--no-shconf".into(),
        ],
        FrameMemory::Huge => vec!["--in-memory".into()],
    };
    arguments.extend(["--no-telemetry", "--log-level=*:error"].map(Into::into));
    // One lcore for all allowed CPUs: no thread is bound to one CPU, and no worker is created.
    arguments.push(format!("--lcores=0@({cpus})"));
    match bus_device {
        Some(device) => arguments.extend(["-a".to_owned(), device.to_owned()]),
        None => arguments.push("--no-pci".into()),
    }
    arguments
}

/// The CPUs that this process may use, for example `0-3,7`.
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
        let message = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        Err(String::from_utf8_lossy(message).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eal_args_probe_pci_only_for_pci_devices() {
        let ordinary = arguments(FrameMemory::Ordinary, None, "0-1");
        assert!(
            ordinary.contains(&"--no-pci".to_owned())
                && ordinary.contains(&"--lcores=0@(0-1)".to_owned())
        );
        let huge = arguments(FrameMemory::Huge, Some("0000:3b:00.2"), "4");
        assert!(huge.ends_with(&["-a".to_owned(), "0000:3b:00.2".to_owned()]));
        assert!(
            !huge
                .iter()
                .any(|argument| argument == "--no-huge" || argument == "--no-pci")
        );
    }

    #[test]
    fn allowed_cpus_are_a_cpu_list() {
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
