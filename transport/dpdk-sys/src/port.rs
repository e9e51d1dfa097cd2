// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port: sends and receives frames in bursts.
//!
//! # Safety
//! - `raw` is a port of the plug-in, open until `drop`. The plug-in gives each port to one owner, and calls for a port
//!   are never concurrent: all take `&mut self`.
//! - The frames in `leaving` and `received` are buffers that the plug-in gave and has not taken back; each buffer is in
//!   only one of the two lists. All are given back before the port is closed, and their memory stays mapped until then;
//!   `room` bytes of a frame from `data` on may be read and written.
//! - A buffer that a driver has taken (`send`) is not accessed any more.
//! - Lent memory (`lent.rs`) is taken back while the port is open, at the latest by `drop`. Every unsent frame that
//!   refers to lent memory is among the filled frames in `leaving`.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::slice;
use std::ffi::CString;

use crate::lent::{InPlaceMemory, LentPart, Loan, Loans};
use crate::start::{ReasonBuffer, started};
use crate::table::{DpdkPortAttr, Plugin, RawFrame};

/// An open port of a device.
#[derive(Debug)]
pub struct DpdkPort {
    plugin: &'static Plugin,
    raw: *mut c_void,
    facts: DpdkPortAttr,
    /// Outgoing frames: the filled ones first, then empty ones.
    leaving: Vec<RawFrame>,
    filled: usize,
    received: Vec<RawFrame>,
    loans: Loans,
}

/// When memory can be lent to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Never: all payloads are copied into frames.
    Never,
    /// Memory can be lent if the device can send from any memory.
    IfPossible,
    /// As [`IfPossible`](Self::IfPossible), but only if it is also faster than a copy: that is, if the device itself
    /// reads the memory (DMA).
    IfFaster,
}

// SAFETY: any thread may use a DPDK port, its buffers and lent memory, one thread at a time.
unsafe impl Send for DpdkPort {}

impl DpdkPort {
    /// Opens a device by its name in DPDK, with its arguments after a comma: `net_af_packet0,iface=eth0`,
    /// `0000:3b:00.2`. DPDK must have been started. Frames are up to `frame_bytes` long. The MTU is `mtu`; `None`: the
    /// driver's default.
    ///
    /// `in_place`: when memory can be lent to the port.
    ///
    /// # Errors
    /// DPDK was not started, or cannot open the device: the error is DPDK's message.
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
        // SAFETY: `name` is a C string; the other pointers are valid for the results and for a message of that length.
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
            received: Vec::with_capacity(BURST as usize),
            loans: Loans::default(),
        })
    }

    /// The attributes of the port.
    #[must_use]
    pub fn facts(&self) -> &DpdkPortAttr {
        &self.facts
    }

    /// The buffer for the next frame; `None`: a full burst is queued already, or no buffer is free.
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

    /// Queues the frame in the first `bytes` of [`buffer`](Self::buffer).
    pub fn push(&mut self, bytes: usize) {
        if let Some(frame) = self.leaving.get_mut(self.filled) {
            frame.bytes = u32::try_from(bytes).unwrap_or(0).min(frame.room);
            self.filled += 1;
        }
    }

    /// Lends memory to the device; `None`: the device cannot send from this memory, so payloads are copied.
    pub fn lend(&mut self, lent: InPlaceMemory) -> Option<Loan> {
        // SAFETY: an open port.
        unsafe { self.loans.lend(self.plugin, self.raw, lent) }
    }

    /// Takes memory back: when this returns, no device reads the memory any more. The call blocks while a device still
    /// has frames that refer to it.
    pub fn take_back(&mut self, loan: Loan) {
        let unsent = &mut self.leaving[..self.filled];
        // SAFETY: an open port, to which all memory in `loans` is lent, and its frames.
        unsafe { (self.loans).take_back(self.plugin, self.raw, loan, unsent) };
    }

    /// Queues a frame that consists of the first `bytes` of [`buffer`](Self::buffer), a part of lent memory, `pad` zero
    /// bytes and a checksum. The checksum is the CRC-32 of Ethernet, little-endian; `crc` is the CRC-32 of the covered
    /// bytes before the part. `false`: this is impossible now, and nothing was changed.
    pub fn attach(&mut self, bytes: usize, part: &LentPart, pad: u32, crc: u32) -> bool {
        let frame = self.leaving.get_mut(self.filled);
        let (Some(frame), Some((memory, from))) = (frame, self.loans.find(part)) else {
            return false;
        };
        frame.bytes = u32::try_from(bytes).unwrap_or(0).min(frame.room);
        let frame = core::ptr::from_mut(frame);
        // SAFETY: an open port; a frame of this port that is not queued yet, whose first `frame.bytes` bytes are
        // written; lent memory, and a range inside that memory.
        let result =
            unsafe { (self.plugin.attach)(self.raw, frame, memory, from, part.bytes, pad, crc) };
        self.filled += usize::from(result == 0);
        result == 0
    }

    /// Sends queued frames, as many as the device accepts now.
    pub fn flush(&mut self) {
        while self.filled != 0 {
            let count = u32::try_from(self.filled).unwrap_or(0);
            // SAFETY: an open port, and `count` filled frames.
            let sent = unsafe { (self.plugin.send)(self.raw, self.leaving.as_mut_ptr(), count) };
            if sent == 0 {
                break;
            }
            self.leaving.drain(..sent as usize);
            self.filled -= sent as usize;
        }
    }

    /// Whether frames are still queued.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.filled != 0
    }

    /// Receives a burst of frames and returns their number. The frames of the last burst are given back first.
    pub fn receive(&mut self) -> usize {
        give_back(self.plugin, &mut self.received);
        self.received.resize(BURST as usize, RawFrame::NONE);
        // SAFETY: an open port, and room for the frames.
        let count = unsafe { (self.plugin.receive)(self.raw, self.received.as_mut_ptr(), BURST) };
        self.received.truncate(count as usize);
        self.received.len()
    }

    /// A frame of the last burst.
    #[must_use]
    pub fn received(&self, index: usize) -> Option<&[u8]> {
        let frame = self.received.get(index)?;
        // SAFETY: a buffer of this port whose first `bytes` bytes a driver has filled. Only `receive` and `drop` give
        // it back, and both need `&mut self`.
        Some(unsafe { slice::from_raw_parts(frame.data, frame.bytes as usize) })
    }

    /// Gets empty buffers from the plug-in, up to [`TAKEN`].
    fn take(&mut self) {
        let old = self.leaving.len();
        self.leaving.resize(old + TAKEN as usize, RawFrame::NONE);
        let places = self.leaving[old..].as_mut_ptr();
        // SAFETY: an open port, and room for the frames.
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
        give_back(self.plugin, &mut self.received);
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
        // SAFETY: `count` buffers that the plug-in gave; the vector is cleared after the call.
        unsafe { (plugin.give_back)(frames.as_mut_ptr(), count) };
        frames.clear();
    }
}

/// Maximum number of frames in one call that sends or receives.
const BURST: u32 = 64;
/// Maximum number of empty buffers that one call gets from the plug-in.
const TAKEN: u32 = 16;
