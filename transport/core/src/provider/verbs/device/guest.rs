// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the behaviour of real devices, in the virtual machine with two Soft-RoCE devices (`cargo xtask test
//! softroce` runs them).
//!
//! # Safety
//! Memory that the devices access is never freed ([`GuestMemory`]), and is accessed here only by copies.
#![allow(unsafe_code)]

mod changes;
mod errors;

use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::address::PortAddress;
use super::super::port::{GRH_BYTES, WorkOpcode, WorkStatus};
use super::*;

/// The destination of datagrams to queue pair `number`, with the Q_Key of most tests.
fn mailbox(handle: AddressHandle, number: u32) -> DatagramDestination {
    let key = Q_KEY;
    DatagramDestination {
        handle,
        number,
        key,
    }
}

/// An open port, and memory that its peers may access.
struct GuestPort {
    device: VerbsDevice,
    block: GuestMemory,
}

/// Registered memory.
struct GuestMemory {
    base: NonNull<u8>,
    region: Region,
}

impl GuestMemory {
    fn address(&self, at: usize) -> u64 {
        self.base.addr().get() as u64 + at as u64
    }

    fn piece(&self, at: usize, bytes: usize) -> Sge {
        Sge {
            address: self.address(at),
            bytes: bytes.try_into().unwrap(),
            local_key: self.region.local_key,
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BLOCK_BYTES);
        // SAFETY: inside the block, by the assertion.
        let place = unsafe { self.base.add(at) };
        // SAFETY: as above; the block is not borrowed.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= BLOCK_BYTES);
        let mut copy = vec![0; bytes];
        // SAFETY: inside the block, by the assertion.
        let place = unsafe { self.base.add(at) };
        // SAFETY: as above; the copy has as many bytes.
        unsafe { place.copy_to_nonoverlapping(NonNull::from(&mut copy[..]).cast(), bytes) };
        copy
    }
}

fn memory() -> NonNull<u8> {
    // The memory is aligned, and never freed.
    NonNull::from(Box::leak(vec![0u64; BLOCK_BYTES / 8].into_boxed_slice())).cast()
}

impl GuestPort {
    fn open(name: &str, q_key: u32) -> Self {
        let device = VerbsDevice::open(name, 1, &DEPTHS, &NetTerms::DEFAULT, q_key, None);
        let mut device = device.unwrap_or_else(|error| panic!("{error}"));
        let base = memory();
        // SAFETY: the memory is never freed.
        let region = unsafe { device.register(base, BLOCK_BYTES, RegionAccess::Full) }.unwrap();
        Self {
            device,
            block: GuestMemory { base, region },
        }
    }

    fn address(&self) -> PortAddress {
        let facts = self.device.facts();
        PortAddress {
            link: facts.link,
            lid: facts.lid,
            number: self.device.datagram_number(),
            packet_bytes: facts.packet_bytes,
            gid: facts.gid,
        }
    }

    /// Posts `count` buffers of 512 bytes, from the second half of the block on, with the `wr_id`s 100, 101…
    fn post_buffers(&mut self, queue: Receives, count: usize) {
        let buffer = |at: usize| {
            (
                100 + at as u64,
                self.block.piece(buffer_at(at), BUFFER_BYTES),
            )
        };
        let buffers: Vec<_> = (0..count).map(buffer).collect();
        assert_eq!(self.device.post_receives(queue, &buffers), count);
    }

    /// Waits for the next `count` completions.
    fn wait(&mut self, which: CqKind, count: usize) -> Vec<PortCompletion> {
        let mut all = Vec::new();
        let start = Instant::now();
        while all.len() < count {
            let mut done = [PortCompletion::default(); 4];
            let most = done.len().min(count - all.len());
            let got = self.device.poll(which, &mut done[..most]);
            all.extend_from_slice(&done[..got]);
            assert!(
                start.elapsed() < LIMIT,
                "{} of {count} completions came: {all:?}",
                all.len()
            );
            if got == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        all
    }

    fn wait_event(&mut self, wanted: PortEvent) -> Vec<PortEvent> {
        let mut all = Vec::new();
        let start = Instant::now();
        while !all.contains(&wanted) {
            all.extend(self.device.next_event());
            assert!(
                start.elapsed() < LIMIT,
                "{wanted:?} has not come, {all:?} have"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
        all
    }

    fn send(&mut self, pair: QueuePairHandle, work: u64, body: WorkBody<'_>) {
        let request = request(work, WorkOpcode::Send, body);
        assert_eq!(self.device.post(pair, &[request]), 1);
    }
}

fn request(work: u64, operation: WorkOpcode, body: WorkBody<'_>) -> WorkRequest<'_> {
    WorkRequest {
        work,
        operation,
        body,
        signaled: true,
    }
}

fn buffer_at(at: usize) -> usize {
    BLOCK_BYTES / 2 + at * BUFFER_BYTES
}

fn two_ports() -> (GuestPort, GuestPort) {
    (
        GuestPort::open("rxe0", Q_KEY),
        GuestPort::open("rxe1", Q_KEY),
    )
}

/// Makes a reliable queue pair on each port, and connects the two.
fn joined(a: &mut GuestPort, b: &mut GuestPort) -> (QueuePairHandle, QueuePairHandle) {
    let (left, right) = (a.device.create().unwrap(), b.device.create().unwrap());
    let to = |side: &GuestPort, pair: QueuePairHandle, rq_psn, sq_psn| RemotePair {
        address: side.address(),
        number: pair.number,
        rq_psn,
        sq_psn,
        timeout_exp: 14,
    };
    let (to_b, to_a) = (to(b, right, 0x1234, 77), to(a, left, 77, 0x1234));
    b.device.connect(right, &to_a).unwrap();
    a.device.connect(left, &to_b).unwrap();
    (left, right)
}

fn statuses(done: &[PortCompletion]) -> Vec<(u64, WorkStatus)> {
    done.iter().map(|done| (done.work, done.status)).collect()
}

fn shell(line: &str) {
    let done = Command::new("sh").args(["-ec", line]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{line}: {stderr}");
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn both_devices_are_listed_with_their_chosen_gid() {
    let devices = list(HostRoute::Anywhere, &NetTerms::DEFAULT).unwrap();
    for (name, ip) in [("rxe0", "::ffff:10.77.0.1"), ("rxe1", "::ffff:10.77.0.2")] {
        let device = devices.iter().find(|device| device.name == name).unwrap();
        let port = &device.ports.as_ref().unwrap()[0];
        assert_eq!((port.unfit, port.link), (None, Some(LinkLayer::Ethernet)));
        let best = port.gids.best().unwrap();
        assert_eq!(gid::to_text(best.entry.gid), ip);
        let why: Vec<_> = (0..port.gids.all.len())
            .map(|at| port.gids.why(at))
            .collect();
        assert!(why.iter().any(|why| why.contains("link-local")), "{why:?}");
        assert!(why.iter().any(|why| why.starts_with("chosen: ")), "{why:?}");
        assert!(
            GuestPort::open(name, Q_KEY)
                .device
                .facts()
                .has_unreliable_reads
        );
    }
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn errors_for_missing_devices_list_the_present_ones() {
    let error = |name, port| {
        let opened = VerbsDevice::open(name, port, &DEPTHS, &NetTerms::DEFAULT, Q_KEY, None);
        opened.map(drop).unwrap_err().to_string()
    };
    assert!(error("rxe7", 1).contains("this host has rxe0, rxe1"));
    assert!(error("rxe0", 2).contains("its ports are 1 to 1"));
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn datagrams_carry_their_sender_and_need_the_q_key() {
    let (mut a, mut b) = two_ports();
    let mut other_job = GuestPort::open("rxe1", Q_KEY + 1);
    b.post_buffers(Receives::Datagrams, 4);
    other_job.post_buffers(Receives::Datagrams, 4);
    let number = a.device.datagram_number();
    let handle = a.device.create_address_handle(&b.address()).unwrap();
    let to = b.device.datagram_number();
    a.block.write(0, b"from memory");
    let wrong = other_job.device.datagram_number();
    let body = WorkBody::Inline(b"wrong key");
    a.device
        .post_datagram(mailbox(handle, wrong), 0, body, false)
        .unwrap();
    let body = WorkBody::Inline(b"inside");
    a.device
        .post_datagram(mailbox(handle, to), 1, body, false)
        .unwrap();
    let body = WorkBody::Piece(a.block.piece(0, 11));
    a.device
        .post_datagram(mailbox(handle, to), 2, body, true)
        .unwrap();
    let sent = a.wait(CqKind::Sends, 1);
    assert_eq!(statuses(&sent), [(2, WorkStatus::Success)]);
    assert_eq!(sent[0].number, number);
    let done = b.wait(CqKind::Receives, 2);
    for (done, (at, wanted)) in done.iter().zip([(0, &b"inside"[..]), (1, b"from memory")]) {
        assert_eq!(
            (done.work, done.status),
            (100 + at as u64, WorkStatus::Success)
        );
        assert_eq!(done.bytes as usize, GRH_BYTES + wanted.len());
        assert_eq!((done.number, done.source), (to, number));
        let body = b.block.read(buffer_at(at) + GRH_BYTES, wanted.len());
        assert_eq!(body, wanted);
    }
    assert_eq!(
        other_job
            .device
            .poll(CqKind::Receives, &mut [PortCompletion::default()]),
        0
    );
    a.device.destroy_address_handle(handle);
    let closed = a
        .device
        .post_datagram(mailbox(handle, to), 3, WorkBody::Inline(b""), false);
    assert_eq!(closed, Err(QueueFull));
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn messages_arrive_in_order_and_only_signaled_sends_complete() {
    let (mut a, mut b) = two_ports();
    let (left, right) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 40);
    let texts: Vec<String> = (0..40).map(|at| format!("message {at:2}")).collect();
    let requests: Vec<_> = (0..40)
        .map(|at| WorkRequest {
            work: at as u64,
            operation: WorkOpcode::Send,
            body: WorkBody::Inline(texts[at].as_bytes()),
            signaled: at == 39,
        })
        .collect();
    assert_eq!(a.device.post(left, &requests), 40);
    assert_eq!(
        statuses(&a.wait(CqKind::Sends, 1)),
        [(39, WorkStatus::Success)]
    );
    let done = b.wait(CqKind::Receives, 40);
    for (at, done) in done.iter().enumerate() {
        assert_eq!(
            (done.work, done.status),
            (100 + at as u64, WorkStatus::Success)
        );
        assert_eq!((done.number, done.bytes), (right.number, 10));
        assert_eq!(b.block.read(buffer_at(at), 10), texts[at].as_bytes());
    }
    assert_eq!(
        a.device
            .poll(CqKind::Sends, &mut [PortCompletion::default()]),
        0
    );
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn posts_beyond_the_queue_depth_are_refused() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    // There are no receive buffers, so nothing completes for a while.
    let body = WorkBody::Inline(b"x");
    let requests: Vec<_> = (0..600)
        .map(|work| request(work, WorkOpcode::Send, body))
        .collect();
    let taken = a.device.post(left, &requests);
    assert!((DEPTHS.sends as usize..600).contains(&taken), "{taken}");
    assert_eq!(a.device.post(left, &requests), 0);
    a.device.fail(left);
    let done = a.wait(CqKind::Sends, taken);
    assert!(done.iter().all(|done| done.status != WorkStatus::Success));
    assert!(done.iter().map(|done| done.work).eq(0..taken as u64));
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn writes_and_reads_access_remote_memory() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    let key = b.block.region.remote_key;
    let address = b.block.address(0);
    let behind = b.block.address(3000);
    a.block.write(0, &[7; 3000]);
    let memory = |at, bytes| WorkBody::Piece(a.block.piece(at, bytes));
    let write = |address| WorkOpcode::Write { address, key };
    let requests = [
        request(1, write(address), memory(0, 3000)),
        request(2, write(behind), WorkBody::Inline(b"inside")),
        request(3, WorkOpcode::Read { address, key }, memory(8192, 3006)),
    ];
    assert_eq!(a.device.post(left, &requests), 3);
    let done = a.wait(CqKind::Sends, 3);
    assert_eq!(
        statuses(&done),
        [1, 2, 3].map(|work| (work, WorkStatus::Success))
    );
    let mut wanted = vec![7; 3000];
    wanted.extend(b"inside");
    assert_eq!(b.block.read(0, 3006), wanted);
    assert_eq!(a.block.read(8192, 3006), wanted);
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn atomics_change_remote_memory_and_return_the_old_value() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    b.block.write(64, &42u64.to_ne_bytes());
    let (address, key) = (b.block.address(64), b.block.region.remote_key);
    let add = WorkOpcode::FetchAdd {
        address,
        key,
        add: 8,
    };
    let exchange = |compare, swap| WorkOpcode::CompareSwap {
        address,
        key,
        compare,
        swap,
    };
    let operations = [add, exchange(50, 9), exchange(50, 3)];
    let requests: Vec<_> = (0..)
        .zip(operations)
        .map(|(at, operation)| {
            let body = WorkBody::Piece(a.block.piece(8 * at, 8));
            request(at as u64, operation, body)
        })
        .collect();
    assert_eq!(a.device.post(left, &requests), 3);
    let done = a.wait(CqKind::Sends, 3);
    assert_eq!(
        statuses(&done),
        [0, 1, 2].map(|work| (work, WorkStatus::Success))
    );
    let old = [42u64, 50, 9].map(u64::to_ne_bytes).concat();
    assert_eq!(a.block.read(0, 24), old);
    assert_eq!(b.block.read(64, 8), 9u64.to_ne_bytes());
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn read_only_memory_can_be_sent_and_remotely_read() {
    static CONSTANT: [u8; 8192] = [9; 8192];
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    let base = NonNull::from(&CONSTANT).cast();
    // SAFETY: the memory is static, and is only read.
    let refused = unsafe { b.device.register(base, 8192, RegionAccess::Own) };
    assert_eq!(refused.unwrap_err().errno, libc::EFAULT);
    // SAFETY: as above.
    let own = unsafe { a.device.register(base, 8192, RegionAccess::OwnRead) }.unwrap();
    // SAFETY: as above.
    let region = unsafe { b.device.register(base, 8192, RegionAccess::Read) }.unwrap();
    b.post_buffers(Receives::Shared, 1);
    let address = base.addr().get() as u64;
    let body = WorkBody::Piece(Sge {
        address,
        bytes: 100,
        local_key: own.local_key,
    });
    a.send(left, 1, body);
    let read = WorkOpcode::Read {
        address,
        key: region.remote_key,
    };
    let body = WorkBody::Piece(a.block.piece(0, 8192));
    assert_eq!(a.device.post(left, &[request(2, read, body)]), 1);
    let wanted = [(1, WorkStatus::Success), (2, WorkStatus::Success)];
    assert_eq!(statuses(&a.wait(CqKind::Sends, 2)), wanted);
    assert_eq!(a.block.read(0, 8192), CONSTANT);
    assert_eq!(b.wait(CqKind::Receives, 1)[0].bytes, 100);
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn a_destroyed_pair_returns_only_its_receive_buffers() {
    let (mut a, mut b) = two_ports();
    let (left, right) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 4);
    a.send(left, 1, WorkBody::Inline(b"one"));
    a.send(left, 2, WorkBody::Inline(b"two"));
    assert_eq!(b.wait(CqKind::Receives, 1).len(), 1);
    // Waits until the second message has arrived too.
    let start = Instant::now();
    while b.block.read(buffer_at(1), 3) != b"two" {
        assert!(start.elapsed() < LIMIT);
    }
    std::thread::sleep(Duration::from_millis(50));
    a.device.destroy(left);
    b.device.destroy(right);
    assert_eq!(
        a.device
            .poll(CqKind::Sends, &mut [PortCompletion::default()]),
        0
    );
    let done = b.wait(CqKind::Receives, 1);
    assert_eq!((done[0].work, done[0].bytes), (101, 3));
    assert_eq!(
        b.device
            .poll(CqKind::Receives, &mut [PortCompletion::default()]),
        0
    );
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn the_first_completion_after_arming_raises_an_event() {
    let (mut a, mut b) = two_ports();
    let (left, _) = joined(&mut a, &mut b);
    b.post_buffers(Receives::Shared, 3);
    let event_fd = b.device.event_fd().unwrap().as_raw_fd();
    b.device.arm().unwrap();
    assert!(!is_readable(event_fd, 0));
    a.send(left, 1, WorkBody::Inline(b"one"));
    assert!(is_readable(event_fd, 10_000));
    b.device.ack_events();
    assert!(!is_readable(event_fd, 0));
    assert_eq!(b.wait(CqKind::Receives, 1)[0].work, 100);
    // Without arming there is no event.
    a.send(left, 2, WorkBody::Inline(b"two"));
    assert_eq!(b.wait(CqKind::Receives, 1)[0].work, 101);
    assert!(!is_readable(event_fd, 0));
    // Completions of sends raise an event too.
    a.device.arm().unwrap();
    a.send(left, 3, WorkBody::Inline(b"three"));
    assert!(is_readable(
        a.device.event_fd().unwrap().as_raw_fd(),
        10_000
    ));
    a.device.ack_events();
}

/// Waits up to `timeout_ms` until a descriptor is readable; returns whether it is.
fn is_readable(descriptor: RawFd, timeout_ms: i32) -> bool {
    let mut request = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, and its count.
    unsafe { libc::poll(&raw mut request, 1, timeout_ms) == 1 }
}

#[test]
#[ignore = "needs two Soft-RoCE devices: cargo xtask test softroce"]
fn closing_a_port_leaks_no_objects() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let objects = || {
        let message = Command::new("rdma").args(["resource"]).output().unwrap();
        String::from_utf8(message.stdout).unwrap()
    };
    drop(GuestPort::open("rxe0", Q_KEY));
    let before = (descriptors(), objects());
    for _ in 0..10 {
        let (mut a, mut b) = two_ports();
        joined(&mut a, &mut b);
        b.post_buffers(Receives::Shared, 4);
        b.post_buffers(Receives::Datagrams, 4);
        a.device.create_address_handle(&b.address()).unwrap();
        a.device.arm().unwrap();
    }
    assert_eq!((descriptors(), objects()), before);
}

const Q_KEY: u32 = 0x1234_5678;
const LIMIT: Duration = Duration::from_secs(60);
const BLOCK_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 512;
const DEPTHS: Depths = Depths {
    completions: 1024,
    sends: 64,
    datagrams: 64,
    shared: 64,
    datagram_buffers: 64,
    inline_bytes: 128,
};
