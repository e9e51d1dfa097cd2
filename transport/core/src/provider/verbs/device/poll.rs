// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls completions, arms completion queues, and takes completion events and asynchronous events.
//!
//! # Safety
//! The library writes only to memory of the port, and at most as many entries as it is given room for. An event names a
//! live object: the kernel discards events of destroyed objects, and each event is acknowledged before anything else is
//! done.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::ptr;

use verbs_sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE,
    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, ibv_async_event, ibv_async_event_element, ibv_wc, inline,
};

use super::super::port::{
    CallError, CqKind, PortCompletion, PortEvent, QueuePairHandle, WorkStatus,
};
use super::VerbsDevice;
use super::object::{check, last_error};
use super::post::BATCH;

impl VerbsDevice {
    #[inline]
    pub(super) fn take_done(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize {
        if self.repair.is_none() && self.kept[which as usize].is_empty() {
            // This is the usual case, and most of these polls return no completion.
            let wanted = BATCH.min(done.len());
            let got = self.poll_into(which, wanted);
            if got == 0 {
                return 0;
            }
            return self.take_polled(which, got, done);
        }
        self.take_rest(which, done)
    }

    #[inline(always)]
    pub(super) fn take_first_done(&mut self, which: CqKind) -> Option<PortCompletion> {
        if self.repair.is_some() || !self.kept[which as usize].is_empty() {
            return self.take_first_kept(which);
        }
        if self.poll_into(which, 1) == 0 {
            return None;
        }
        self.polled_at(which, 0)
    }

    #[cold]
    fn take_first_kept(&mut self, which: CqKind) -> Option<PortCompletion> {
        let mut done = [PortCompletion::default()];
        (self.take_rest(which, &mut done) != 0).then(|| done[0])
    }

    /// Hands over `got` polled completions. If they filled the buffer and `done` has room for more, polls again.
    #[inline(never)]
    fn take_polled(&mut self, which: CqKind, got: usize, done: &mut [PortCompletion]) -> usize {
        let count = self.hand_over(which, got, done);
        if got < BATCH || done.len() <= BATCH {
            return count;
        }
        count + self.take_rest(which, &mut done[count..])
    }

    /// Copies those of the first `got` polled completions that are for the caller to `done`; returns how many these
    /// are.
    #[inline(always)]
    fn hand_over(&mut self, which: CqKind, got: usize, done: &mut [PortCompletion]) -> usize {
        let mut count = 0;
        for at in 0..got {
            if let Some(one) = self.polled_at(which, at) {
                done[count] = one;
                count += 1;
            }
        }
        count
    }

    #[inline(never)]
    fn take_rest(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize {
        if self.repair.is_some() {
            // A repair of the datagram queue pair waits for its marks in both queues, so both are drained.
            self.keep_completions();
        }
        let mut count = 0;
        while count < done.len()
            && let Some(first) = self.kept[which as usize].pop_front()
        {
            done[count] = first;
            count += 1;
        }
        while count < done.len() {
            let wanted = BATCH.min(done.len() - count);
            let got = self.poll_into(which, wanted);
            count += self.hand_over(which, got, &mut done[count..]);
            if got < wanted {
                break;
            }
        }
        count
    }

    /// Polls up to `wanted` completions, at most [`BATCH`], into the buffer; returns how many.
    #[inline]
    fn poll_into(&mut self, which: CqKind, wanted: usize) -> usize {
        let queue = match which {
            CqKind::Sends => &self.sends,
            CqKind::Receives => &self.receives,
        };
        let places = &mut self.polled[..wanted];
        let count = c_int::try_from(places.len()).unwrap_or(0);
        // SAFETY: a live queue, and room for `count` completions.
        let got = unsafe { inline::poll_cq(queue.as_ptr(), count, places.as_mut_ptr()) };
        if got < 0 && self.events.is_empty() {
            self.events.push_back(PortEvent::CompletionsLost);
        }
        usize::try_from(got).unwrap_or(0).min(wanted)
    }

    /// The polled completion at an index; `None`: it belongs to a repair, not to the caller.
    #[inline(always)]
    fn polled_at(&mut self, which: CqKind, at: usize) -> Option<PortCompletion> {
        let one = to_port_completion(&self.polled[at]);
        if one.status != WorkStatus::Success && self.take_failure(which, &one) {
            return None;
        }
        Some(one)
    }

    /// Polls all completions and keeps them for later.
    pub(super) fn keep_completions(&mut self) {
        for which in [CqKind::Sends, CqKind::Receives] {
            loop {
                let got = self.poll_into(which, BATCH);
                for at in 0..got {
                    let one = self.polled_at(which, at);
                    self.kept[which as usize].extend(one);
                }
                if got < BATCH {
                    break;
                }
            }
        }
    }

    /// Destroys a queue pair in the error state. Its send completions are discarded; those of receives are kept, since
    /// each returns a buffer.
    pub(super) fn destroy_pair(&mut self, pair: QueuePairHandle) {
        // Some devices discard pending completions of a destroyed queue pair; the buffers named in them would be lost.
        self.keep_completions();
        drop(self.pairs.remove(pair.id));
        self.keep_completions();
        self.kept[CqKind::Sends as usize].retain(|done| done.number != pair.number);
    }

    pub(super) fn arm_queues(&mut self) -> Result<(), CallError> {
        for queue in [&self.sends, &self.receives] {
            // SAFETY: a live queue.
            let answer = unsafe { inline::req_notify_cq(queue.as_ptr(), false) };
            check("ibv_req_notify_cq", answer)?;
        }
        Ok(())
    }

    pub(super) fn ack_all_events(&mut self) {
        loop {
            let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: a live channel in non-blocking mode, and two places for the result.
            let answer = unsafe {
                (self.verbs.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context)
            };
            if answer != 0 {
                return;
            }
            // SAFETY: the queue that was returned, and one event. Destroying a queue waits for the acknowledgement.
            unsafe { (self.verbs.ack_cq_events)(queue, 1) };
        }
    }

    pub(super) fn take_event(&mut self) -> Option<PortEvent> {
        while self.events.is_empty() && !self.is_lost {
            let mut event = ibv_async_event {
                element: ibv_async_event_element {
                    qp: ptr::null_mut(),
                },
                event_type: 0,
            };
            // SAFETY: a live context in non-blocking mode, and a place for the result.
            let answer =
                unsafe { (self.verbs.get_async_event)(self.context.as_ptr(), &raw mut event) };
            if answer != 0 {
                return self.no_event(last_error("ibv_get_async_event"));
            }
            let meaning = self.meaning(&event);
            // SAFETY: the event that was just returned, once.
            unsafe { (self.verbs.ack_async_event)(&raw mut event) };
            match meaning {
                Some(PortEvent::QueuePairLost(number)) if number == self.datagram_number => {
                    self.repair_datagrams();
                    self.go_on_repairing();
                }
                Some(event) => return Some(event),
                None => {}
            }
        }
        self.events.pop_front()
    }

    fn no_event(&mut self, error: CallError) -> Option<PortEvent> {
        if [libc::EAGAIN, libc::EINTR].contains(&error.errno) {
            return None;
        }
        // The device is gone: no further events will come.
        self.is_lost = true;
        Some(PortEvent::DeviceLost)
    }

    /// Marks the device as lost.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.events.push_back(PortEvent::DeviceLost);
    }

    /// The event as the provider's type; `None`: it concerns another port.
    fn meaning(&self, event: &ibv_async_event) -> Option<PortEvent> {
        let kind = event.event_type;
        if is_of_queue_pair(kind) {
            // SAFETY: an event of these kinds names a queue pair.
            let pair = unsafe { event.element.qp };
            // SAFETY: the queue pair is live (head of this file), and its number does not change.
            return Some(PortEvent::QueuePairLost(unsafe { (*pair).qp_num }));
        }
        // SAFETY: any bytes are a valid integer, and the whole union was initialised before the call.
        let port = unsafe { event.element.port_num };
        let other = is_of_port(kind) && port != c_int::from(self.facts.port);
        (!other).then(|| event_of(kind))
    }
}

fn is_of_queue_pair(kind: c_uint) -> bool {
    [
        IBV_EVENT_QP_FATAL,
        IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR,
    ]
    .contains(&kind)
}

fn is_of_port(kind: c_uint) -> bool {
    [
        IBV_EVENT_PORT_ACTIVE,
        IBV_EVENT_PORT_ERR,
        IBV_EVENT_LID_CHANGE,
        IBV_EVENT_GID_CHANGE,
    ]
    .contains(&kind)
}

fn event_of(kind: c_uint) -> PortEvent {
    match kind {
        IBV_EVENT_PORT_ERR => PortEvent::PortDown,
        IBV_EVENT_PORT_ACTIVE => PortEvent::PortUp,
        IBV_EVENT_LID_CHANGE | IBV_EVENT_GID_CHANGE => PortEvent::AddressChanged,
        IBV_EVENT_DEVICE_FATAL => PortEvent::DeviceLost,
        IBV_EVENT_SRQ_ERR => PortEvent::SharedQueueLost,
        IBV_EVENT_CQ_ERR => PortEvent::CompletionsLost,
        kind => PortEvent::Other(kind),
    }
}

#[inline(always)]
fn to_port_completion(wc: &ibv_wc) -> PortCompletion {
    if wc.status == IBV_WC_SUCCESS {
        return PortCompletion {
            work: wc.wr_id,
            status: WorkStatus::Success,
            bytes: wc.byte_len,
            number: wc.qp_num,
            source: wc.src_qp,
            vendor: 0,
        };
    }
    // For a failed request, devices set only the four fields that are copied here.
    PortCompletion {
        work: wc.wr_id,
        status: status_of(wc.status),
        bytes: 0,
        number: wc.qp_num,
        source: 0,
        vendor: wc.vendor_err,
    }
}

#[cold]
pub(in super::super) fn status_of(status: c_uint) -> WorkStatus {
    match status {
        IBV_WC_SUCCESS => WorkStatus::Success,
        IBV_WC_WR_FLUSH_ERR => WorkStatus::Flushed,
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => WorkStatus::RetryExceeded,
        IBV_WC_RNR_RETRY_EXC_ERR => WorkStatus::NotReady,
        IBV_WC_REM_ACCESS_ERR => WorkStatus::RemoteAccess,
        IBV_WC_REM_INV_REQ_ERR => WorkStatus::RemoteInvalid,
        IBV_WC_REM_OP_ERR => WorkStatus::RemoteOperation,
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR => WorkStatus::LocalProtection,
        IBV_WC_LOC_LEN_ERR => WorkStatus::LocalLength,
        status => WorkStatus::Other(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs_sys::{IBV_EVENT_SRQ_LIMIT_REACHED, IBV_WC_GENERAL_ERR};

    fn wc(status: c_uint) -> ibv_wc {
        ibv_wc {
            wr_id: 7,
            status,
            vendor_err: 0x81,
            byte_len: 100,
            qp_num: 17,
            src_qp: 18,
            ..ibv_wc::default()
        }
    }

    #[test]
    fn completions_carry_bytes_and_source_or_the_error() {
        let good = to_port_completion(&wc(IBV_WC_SUCCESS));
        assert_eq!((good.work, good.number), (7, 17));
        assert_eq!((good.bytes, good.source, good.vendor), (100, 18, 0));
        let bad = to_port_completion(&wc(IBV_WC_RETRY_EXC_ERR));
        assert_eq!((bad.work, bad.number), (7, 17));
        assert_eq!((bad.bytes, bad.source, bad.vendor), (0, 0, 0x81));
        assert_eq!(bad.status, WorkStatus::RetryExceeded);
    }

    #[test]
    fn completion_error_codes_map_to_statuses() {
        for (number, status) in [
            (IBV_WC_WR_FLUSH_ERR, WorkStatus::Flushed),
            (IBV_WC_RNR_RETRY_EXC_ERR, WorkStatus::NotReady),
            (IBV_WC_REM_ACCESS_ERR, WorkStatus::RemoteAccess),
            (IBV_WC_REM_INV_REQ_ERR, WorkStatus::RemoteInvalid),
            (IBV_WC_REM_OP_ERR, WorkStatus::RemoteOperation),
            (IBV_WC_LOC_PROT_ERR, WorkStatus::LocalProtection),
            (IBV_WC_LOC_LEN_ERR, WorkStatus::LocalLength),
            (IBV_WC_GENERAL_ERR, WorkStatus::Other(IBV_WC_GENERAL_ERR)),
        ] {
            assert_eq!(to_port_completion(&wc(number)).status, status);
        }
    }

    #[test]
    fn async_event_codes_map_to_port_events() {
        for (number, event) in [
            (IBV_EVENT_PORT_ERR, PortEvent::PortDown),
            (IBV_EVENT_PORT_ACTIVE, PortEvent::PortUp),
            (IBV_EVENT_GID_CHANGE, PortEvent::AddressChanged),
            (IBV_EVENT_LID_CHANGE, PortEvent::AddressChanged),
            (IBV_EVENT_DEVICE_FATAL, PortEvent::DeviceLost),
            (IBV_EVENT_SRQ_ERR, PortEvent::SharedQueueLost),
            (IBV_EVENT_CQ_ERR, PortEvent::CompletionsLost),
            (IBV_EVENT_SRQ_LIMIT_REACHED, PortEvent::Other(15)),
        ] {
            assert_eq!(event_of(number), event);
        }
        assert!(is_of_port(IBV_EVENT_GID_CHANGE) && !is_of_port(IBV_EVENT_SRQ_ERR));
    }
}
