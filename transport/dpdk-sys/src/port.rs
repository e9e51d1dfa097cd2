// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port: frames in bursts.
//!
//! # Safety
//! - `raw` is a port of the plug-in, open until `drop`; it gives each port to one owner, and no two calls for it meet: all take
//!   `&mut self`.
//! - The frames in `leaving` and `came` are buffers that the plug-in gave and did not take back; each is in one of the two. Their
//!   memory stays until the port is closed, which happens when all are given back; of a frame `room` bytes from `data` on may be
//!   read and written.
//! - A buffer that a driver has taken (`send`) is not touched any more.
//! - Memory that is lent (`lent.rs`) is taken back while the port is open, at the latest by `drop`; the filled frames in `leaving`
//!   are all that lead there and were not sent.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::slice;
use std::ffi::CString;

use crate::lent::{LentMemory, LentPart, Loan, Loans};
use crate::start::{ReasonBuffer, started};
use crate::table::{DpdkPortAttr, Plugin, RawFrame};

/// An open port of a device.
#[derive(Debug)]
pub struct DpdkPort {
    plugin: &'static Plugin,
    raw: *mut c_void,
    facts: DpdkPortAttr,
    /// Those that are filled come first, then empty ones.
    leaving: Vec<RawFrame>,
    filled: usize,
    came: Vec<RawFrame>,
    loans: Loans,
}

/// Whether memory can be lent to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// No: all is copied into frames.
    Never,
    /// If the device can send from anywhere.
    IfPossible,
    /// If that is faster, too: the device itself reads memory.
    IfFaster,
}

// SAFETY: a port of DPDK belongs to no thread, and neither do its buffers, nor memory that is lent to it.
unsafe impl Send for DpdkPort {}

impl DpdkPort {
    /// Opens a device by DPDK's name, with its arguments behind a comma: `net_af_packet0,iface=eth0`, `0000:3b:00.2`. DPDK is started
    /// before. Frames are up to `frame_bytes` long, with `mtu` behind the header of
    /// Ethernet, or as many as the driver says.
    ///
    /// `in_place`: whether memory can be lent to it.
    ///
    /// # Errors
    /// In words: what DPDK says.
    pub fn open(
        device: &str,
        frame_bytes: usize,
        mtu: Option<u16>,
        in_place: InPlace,
    ) -> Result<Self, String> {
        let plugin = started()?;
        let name = CString::new(device).map_err(|error| error.to_string())?;
        let (mut raw, mut facts, mut why) = (
            core::ptr::null_mut(),
            DpdkPortAttr::default(),
            ReasonBuffer::default(),
        );
        // SAFETY: a string of C, places for the answers, and room for the reason.
        let result = unsafe {
            (plugin.open)(
                name.as_ptr(),
                u32::try_from(frame_bytes).unwrap_or(u32::MAX),
                mtu.unwrap_or(0),
                in_place.as_c(),
                &raw mut raw,
                &raw mut facts,
                why.as_mut_ptr(),
                ReasonBuffer::BYTES,
            )
        };
        why.result(result)?;
        Ok(Self {
            plugin,
            raw,
            facts,
            leaving: Vec::with_capacity(2 * BURST as usize),
            filled: 0,
            came: Vec::with_capacity(BURST as usize),
            loans: Loans::default(),
        })
    }

    /// What is known of it.
    #[must_use]
    pub fn facts(&self) -> &DpdkPortAttr {
        &self.facts
    }

    /// Where the next frame is written; `None`: as many as a burst wait already, or there is no buffer.
    pub fn buffer(&mut self) -> Option<&mut [u8]> {
        if self.filled >= BURST as usize {
            return None;
        }
        if self.filled == self.leaving.len() {
            self.take();
        }
        let frame = self.leaving.get(self.filled)?;
        // SAFETY: an empty buffer of this port.
        Some(unsafe { slice::from_raw_parts_mut(frame.data, frame.room as usize) })
    }

    /// The first `bytes` of [`buffer`](Self::buffer) are a frame.
    pub fn push(&mut self, bytes: usize) {
        if let Some(frame) = self.leaving.get_mut(self.filled) {
            frame.bytes = u32::try_from(bytes).unwrap_or(0).min(frame.room);
            self.filled += 1;
        }
    }

    /// Lets the device read memory; `None`: it cannot, and what lies there is copied.
    pub fn lend(&mut self, lent: LentMemory) -> Option<Loan> {
        // SAFETY: an open port.
        unsafe { self.loans.lend(self.plugin, self.raw, lent) }
    }

    /// Takes memory back: no device reads it when this returns. That takes a moment where a device still has frames with it.
    pub fn take_back(&mut self, loan: Loan) {
        let unsent = &mut self.leaving[..self.filled];
        // SAFETY: an open port, which has all that is in its `loans`, and its frames.
        unsafe { (self.loans).take_back(self.plugin, self.raw, loan, unsent) };
    }

    /// The first `bytes` of [`buffer`](Self::buffer), a part of memory that is lent, `pad` zeros and a checksum are a frame. The
    /// checksum is the CRC-32 of Ethernet, low byte first; `crc` is that of what stands before the part, as far as it counts.
    /// `false`: it cannot be done now, and nothing is changed.
    pub fn attach(&mut self, bytes: usize, part: &LentPart, pad: u32, crc: u32) -> bool {
        let frame = self.leaving.get_mut(self.filled);
        let (Some(frame), Some((memory, from))) = (frame, self.loans.find(part)) else {
            return false;
        };
        frame.bytes = u32::try_from(bytes).unwrap_or(0).min(frame.room);
        let frame = core::ptr::from_mut(frame);
        // SAFETY: an open port, an empty frame of it whose first bytes are written, memory that it has, and bytes inside that.
        let result =
            unsafe { (self.plugin.attach)(self.raw, frame, memory, from, part.bytes, pad, crc) };
        self.filled += usize::from(result == 0);
        result == 0
    }

    /// Sends what was pushed, as far as the device takes it now.
    pub fn flush(&mut self) {
        while self.filled != 0 {
            let count = u32::try_from(self.filled).unwrap_or(0);
            // SAFETY: an open port, and so many filled frames.
            let sent = unsafe { (self.plugin.send)(self.raw, self.leaving.as_mut_ptr(), count) };
            if sent == 0 {
                break;
            }
            self.leaving.drain(..sent as usize);
            self.filled -= sent as usize;
        }
    }

    /// Whether something that was pushed waits to be taken.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.filled != 0
    }

    /// Takes a burst of frames that have come; answers how many. Those of the last burst are gone.
    pub fn receive(&mut self) -> usize {
        give_back(self.plugin, &mut self.came);
        self.came.resize(BURST as usize, RawFrame::NONE);
        // SAFETY: an open port, and places for so many frames.
        let count = unsafe { (self.plugin.receive)(self.raw, self.came.as_mut_ptr(), BURST) };
        self.came.truncate(count as usize);
        self.came.len()
    }

    /// One of them.
    #[must_use]
    pub fn received(&self, index: usize) -> Option<&[u8]> {
        let frame = self.came.get(index)?;
        // SAFETY: a buffer of this port whose first bytes a driver has filled; it is given back by `receive` alone, which takes `&mut`.
        Some(unsafe { slice::from_raw_parts(frame.data, frame.bytes as usize) })
    }

    /// Gets empty buffers.
    fn take(&mut self) {
        let old = self.leaving.len();
        self.leaving.resize(old + TAKEN as usize, RawFrame::NONE);
        let places = self.leaving[old..].as_mut_ptr();
        // SAFETY: an open port, and places for so many frames.
        let count = unsafe { (self.plugin.take)(self.raw, places, TAKEN) };
        self.leaving.truncate(old + count as usize);
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        self.flush();
        for loan in self.loans.names() {
            self.take_back(loan);
        }
        give_back(self.plugin, &mut self.came);
        give_back(self.plugin, &mut self.leaving);
        // SAFETY: an open port, which is not used any more.
        unsafe { (self.plugin.close)(self.raw) };
    }
}

impl InPlace {
    fn as_c(self) -> c_int {
        match self {
            Self::Never => 0,
            Self::IfPossible => 1,
            Self::IfFaster => -1,
        }
    }
}

fn give_back(plugin: &Plugin, frames: &mut Vec<RawFrame>) {
    if !frames.is_empty() {
        let count = u32::try_from(frames.len()).unwrap_or(0);
        // SAFETY: so many buffers that the plug-in gave, which are forgotten here.
        unsafe { (plugin.give_back)(frames.as_mut_ptr(), count) };
        frames.clear();
    }
}

/// Frames of one call.
const BURST: u32 = 64;
/// Empty buffers that are taken at once.
const TAKEN: u32 = 16;
