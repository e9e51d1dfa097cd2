// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is lent to a port: the device reads payloads there, without a copy.
//!
//! # Safety
//! - **L1**: an [`InPlaceMemory`] is memory that stays mapped until the port has returned it, and whose owner allows a
//!   device to read it. The creator of the [`InPlaceMemory`] guarantees both; the value is passed to one port only.
//! - **L2**: the plug-in may use the memory of each entry of [`Loans`] until `forget` has confirmed that no device
//!   reads it any more. If `forget` fails, the process is aborted: the memory must not be reused.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::table::{Plugin, RawFrame};

/// Memory of the program that a device may read.
#[derive(Debug)]
pub struct InPlaceMemory {
    base: NonNull<u8>,
    bytes: usize,
}

/// A port's handle of lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan(pub usize);

/// A range of lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPart {
    /// The memory.
    pub loan: Loan,
    /// Offset of the range in the memory, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: u32,
}

/// The memory lent to a port.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    all: Vec<Option<LentRegion>>,
}

/// Memory that the plug-in has registered with the device.
#[derive(Debug)]
struct LentRegion {
    lent: InPlaceMemory,
    /// The plug-in's handle.
    raw: *mut c_void,
}

impl InPlaceMemory {
    /// # Safety
    /// The memory stays mapped, and its owner allows devices to read it, until
    /// [`DpdkPort::take_back`](crate::DpdkPort::take_back) of the memory has returned or the port that it was lent to
    /// was dropped. A port that does not accept the memory keeps no reference to it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }
}

impl Loans {
    /// Lends memory to a port of the plug-in; `None`: the device cannot send from this memory.
    ///
    /// # Safety
    /// `port` is open.
    pub(crate) unsafe fn lend(
        &mut self,
        plugin: &Plugin,
        port: *mut c_void,
        lent: InPlaceMemory,
    ) -> Option<Loan> {
        // SAFETY: an open port, and memory that fulfils L1; `take_back` ends the loan.
        let raw = unsafe { (plugin.lend)(port, lent.base.as_ptr().cast(), lent.bytes) };
        if raw.is_null() {
            return None;
        }
        let free = self.all.iter().position(Option::is_none);
        let place = free.unwrap_or(self.all.len());
        if place == self.all.len() {
            self.all.push(None);
        }
        self.all[place] = Some(LentRegion { lent, raw });
        Some(Loan(place))
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// `port` is open, and is the port to which the memory was lent; `unsent` are all frames with attached memory that
    /// were not sent.
    pub(crate) unsafe fn take_back(
        &mut self,
        plugin: &Plugin,
        port: *mut c_void,
        loan: Loan,
        unsent: &mut [RawFrame],
    ) {
        let Some(held) = self.all.get_mut(loan.0).and_then(Option::take) else {
            return;
        };
        let count = u32::try_from(unsent.len()).unwrap_or(0);
        // SAFETY: an open port, memory that was lent to it (L2) and has just been removed from `all`, and `count`
        // frames.
        let result = unsafe { (plugin.forget)(port, held.raw, unsent.as_mut_ptr(), count) };
        if result != 0 {
            // L2: the memory must not be reused, so the process ends.
            eprintln!(
                "rmpi: a device of DPDK does not give memory back that it was lent, or does not start again; in-place=no avoids that"
            );
            std::process::abort();
        }
    }

    /// The handles of all lent memory.
    pub(crate) fn names(&self) -> impl Iterator<Item = Loan> + use<> {
        (0..self.all.len()).map(Loan)
    }

    /// The plug-in's handle of the memory, and the address of a part; `None`: the memory is not lent, or the part is
    /// not inside it.
    pub(crate) fn find(&self, part: &LentPart) -> Option<(*mut c_void, *const u8)> {
        let held = self.all.get(part.loan.0)?.as_ref()?;
        let end = part.offset.checked_add(usize::try_from(part.bytes).ok()?)?;
        let base = held.lent.base.as_ptr().cast_const();
        (end <= held.lent.bytes).then(|| (held.raw, base.wrapping_add(part.offset)))
    }
}
