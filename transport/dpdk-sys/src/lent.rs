// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is lent to a port.
//!
//! # Safety
//! - **L1**: a [`LentMemory`] is memory that stays mapped until the port that has it has given it back, and whoever holds the memory
//!   expects that a device reads it. Whoever makes one promises that; it is handed on as a value, once.
//! - **L2**: what is in [`Loans`] is memory that the plug-in has, with the name it has there, until `forget` of it has said that no device
//!   reads it any more. If it cannot say so the process ends: nobody may have the memory back.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::table::{Plugin, RawFrame};

/// Memory of the program that a device may read.
#[derive(Debug)]
pub struct LentMemory {
    base: NonNull<u8>,
    bytes: usize,
}

/// A port's name for memory that was lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan(pub usize);

/// A part of lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentPart {
    /// Of which memory.
    pub loan: Loan,
    /// Where it begins there.
    pub offset: usize,
    /// Its length.
    pub bytes: u32,
}

/// What a port has.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    all: Vec<Option<LentRegion>>,
}

#[derive(Debug)]
struct LentRegion {
    lent: LentMemory,
    /// The plug-in's name for it.
    raw: *mut c_void,
}

impl LentMemory {
    /// # Safety
    /// The memory stays mapped until [`DpdkPort::take_back`](crate::DpdkPort::take_back) of it has returned or the port that it was
    /// lent to was dropped, and until then whoever holds it expects that it is read. A port that does not take it keeps nothing of
    /// it.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }
}

impl Loans {
    /// Lends memory to a port of the plug-in; `None`: the device cannot send from there.
    ///
    /// # Safety
    /// `port` is open.
    pub(crate) unsafe fn lend(
        &mut self,
        plugin: &Plugin,
        port: *mut c_void,
        lent: LentMemory,
    ) -> Option<Loan> {
        // SAFETY: an open port, and memory as L1 has it, which `take_back` asks for.
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

    /// Takes it back.
    ///
    /// # Safety
    /// `port` is the one that has it, and open; `unsent` are all frames that were attached to and not sent.
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
        // SAFETY: an open port, memory that it has (L2) and does not get again, and so many frames.
        let result = unsafe { (plugin.forget)(port, held.raw, unsent.as_mut_ptr(), count) };
        if result != 0 {
            // L2.
            eprintln!(
                "rmpi: a device of DPDK does not give memory back that it was lent, or does not start again; in-place=no avoids that"
            );
            std::process::abort();
        }
    }

    /// What is lent now.
    pub(crate) fn names(&self) -> impl Iterator<Item = Loan> + use<> {
        (0..self.all.len()).map(Loan)
    }

    /// Where a part is, and the plug-in's name of the whole; `None`: it is not inside.
    pub(crate) fn find(&self, part: &LentPart) -> Option<(*mut c_void, *const u8)> {
        let held = self.all.get(part.loan.0)?.as_ref()?;
        let end = part.offset.checked_add(usize::try_from(part.bytes).ok()?)?;
        let base = held.lent.base.as_ptr().cast_const();
        (end <= held.lent.bytes).then(|| (held.raw, base.wrapping_add(part.offset)))
    }
}
