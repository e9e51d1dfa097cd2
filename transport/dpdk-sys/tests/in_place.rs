// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of lent memory, on devices that pass frames on by reference: two ports of this process, connected by two
//! software rings. The plug-in must be beside the program: `cargo xtask test hosts` puts it there.
//!
//! # Safety
//! Lent memory is a leaked block, which is never freed and is accessed through its address only.
#![allow(unsafe_code)]

use std::process::Command;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dpdk_sys::{DpdkPort, FrameMemory, InPlace, InPlaceMemory, LentPart, Loan, start};

/// The bytes in front of the lent part.
const HEAD: [u8; 60] = [0x5a; 60];
const FRAME_BYTES: usize = 4400;

/// All tests run in one process, in which DPDK can be started only once and a device opened only once. So the tests
/// take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A block of memory, and its address.
struct Block {
    base: NonNull<u8>,
    bytes: usize,
}

impl Block {
    fn new(bytes: usize) -> Self {
        let block = Box::leak(vec![0u8; bytes].into_boxed_slice());
        let base = NonNull::from(block).cast();
        Self { base, bytes }
    }

    fn fill(&self, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.bytes)
            .map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap_or(0) ^ seed)
            .collect();
        // SAFETY: a leaked block of this length, without references to it.
        unsafe { self.base.as_ptr().copy_from(bytes.as_ptr(), self.bytes) };
        bytes
    }

    fn lend(&self, port: &mut DpdkPort) -> Loan {
        // SAFETY: the block stays mapped for ever, and may be read.
        let lent = unsafe { InPlaceMemory::new(self.base, self.bytes) };
        port.lend(lent).expect("a software ring takes memory")
    }
}

/// Starts DPDK, with huge pages if `RMPI_TEST_MEMORY` is `huge`.
fn begin() {
    let memory = match std::env::var("RMPI_TEST_MEMORY").as_deref() {
        Ok("huge") => FrameMemory::Huge,
        _ => FrameMemory::Ordinary,
    };
    start(memory, "net_ring0").expect("DPDK starts");
}

/// Two ports that are connected by rings of this name.
fn ports(name: &str) -> [DpdkPort; 2] {
    begin();
    let open = |end| {
        let device = format!("net_ring_pair_{name}_{end}");
        DpdkPort::open(&device, FRAME_BYTES, None, InPlace::IfPossible).expect("a ring opens")
    };
    [open(0), open(1)]
}

/// Queues a frame with [`HEAD`] and that part; returns whether that was possible.
fn push(port: &mut DpdkPort, part: LentPart, pad: u32) -> bool {
    let frame = port.buffer().expect("a buffer");
    frame[..HEAD.len()].copy_from_slice(&HEAD);
    port.attach(HEAD.len(), &part, pad, crc(0, &HEAD))
}

/// The next received frame, without [`HEAD`].
fn pull(port: &mut DpdkPort) -> Option<Vec<u8>> {
    (port.receive() != 0).then(|| {
        let frame = port.received(0).expect("a frame");
        let (head, rest) = frame.split_at(HEAD.len());
        assert_eq!(head, HEAD);
        rest.to_vec()
    })
}

/// CRC-32 by its definition, bit by bit, continued from `before`.
fn crc(before: u32, bytes: &[u8]) -> u32 {
    let with_bit = |crc: u32, _| crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 };
    let with_byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), with_bit);
    !bytes.iter().fold(!before, with_byte)
}

/// What is expected behind [`HEAD`] in a frame with these bytes: the bytes, the padding and the checksum.
fn sealed(bytes: &[u8], pad: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(bytes.len() + pad, 0);
    let sum = crc(crc(0, &HEAD), &all);
    all.extend(sum.to_le_bytes());
    all
}

#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn lent_frames_carry_the_bytes_and_their_checksum() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("sums");
    assert!(one.facts().sends_in_place());
    let block = Block::new(4200);
    let bytes = block.fill(1);
    let loan = block.lend(&mut one);
    for (offset, length) in [
        (0, 1024),
        (7, 4096),
        (3, 63),
        (100, 64),
        (1, 65),
        (9, 1039),
        (4199, 1u32),
    ] {
        let pad = length.wrapping_neg() % 4;
        let part = LentPart {
            loan,
            offset,
            bytes: length,
        };
        assert!(push(&mut one, part, pad));
        one.flush();
        let expected = sealed(&bytes[offset..offset + length as usize], pad as usize);
        assert!(pull(&mut other) == Some(expected), "{length} at {offset}");
    }
    one.take_back(loan);
    let part = LentPart {
        loan,
        offset: 0,
        bytes: 64,
    };
    assert!(!push(&mut one, part, 0), "it was taken back");
}

#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn out_of_bounds_parts_of_a_loan_are_rejected() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("bounds");
    let block = Block::new(2000);
    let loan = block.lend(&mut one);
    for (offset, bytes) in [
        (0, 2001),
        (1000, 1001),
        (2000, 1),
        (usize::MAX, 2),
        (0, u32::MAX),
    ] {
        assert!(
            !push(
                &mut one,
                LentPart {
                    loan,
                    offset,
                    bytes
                },
                0
            ),
            "{bytes} at {offset}"
        );
    }
    one.flush();
    assert_eq!(pull(&mut other), None);
}

#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn in_place_send_does_not_copy_lent_memory() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("change");
    let block = Block::new(1024);
    let before = block.fill(1);
    let loan = block.lend(&mut one);
    assert!(push(
        &mut one,
        LentPart {
            loan,
            offset: 0,
            bytes: 1024
        },
        0
    ));
    one.flush();
    let after = block.fill(2);
    let received = pull(&mut other).expect("a frame");
    assert!(received[..1024] == after);
    assert!(received[1024..] == sealed(&before, 0)[1024..]);
    assert!(received != sealed(&after, 0));
}

#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn take_back_copies_unsent_frames() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("unsent");
    let (block, kept) = (Block::new(1500), Block::new(1024));
    let (before, theirs) = (block.fill(1), kept.fill(7));
    let (loan, theirs_loan) = (block.lend(&mut one), kept.lend(&mut one));
    let all = |loan, bytes| LentPart {
        loan,
        offset: 0,
        bytes,
    };
    assert!(push(&mut one, all(loan, 1500), 0));
    assert!(push(&mut one, all(theirs_loan, 1024), 0));
    let begun = Instant::now();
    one.take_back(loan);
    assert!(
        begun.elapsed() < Duration::from_millis(20),
        "no frame is outstanding"
    );
    block.fill(2);
    one.flush();
    assert!(other.receive() == 2);
    let rest = |index| {
        other
            .received(index)
            .map(|frame| frame[HEAD.len()..].to_vec())
    };
    assert!(rest(0) == Some(sealed(&before, 0)));
    assert!(rest(1) == Some(sealed(&theirs, 0)));
}

#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn take_back_waits_until_no_frame_refers_to_the_memory() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("late");
    let block = Block::new(1024);
    let bytes = block.fill(1);
    let loan = block.lend(&mut one);
    assert!(push(
        &mut one,
        LentPart {
            loan,
            offset: 0,
            bytes: 1024
        },
        0
    ));
    one.flush();
    let begun = Instant::now();
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let received = pull(&mut other);
        (received, other)
    });
    one.take_back(loan);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    let (received, _other) = late.join().expect("it ends");
    assert!(received == Some(sealed(&bytes, 0)));
}

/// A device that does not return frames is restarted, and then works again.
#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn device_that_keeps_memory_is_restarted() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("stuck");
    let block = Block::new(1024);
    let loan = block.lend(&mut one);
    let part = |loan| LentPart {
        loan,
        offset: 0,
        bytes: 1024,
    };
    assert!(push(&mut one, part(loan), 0));
    one.flush();
    one.take_back(loan);
    assert_eq!(pull(&mut other), None, "it was lost");
    let (bytes, loan) = (block.fill(3), block.lend(&mut one));
    assert!(push(&mut one, part(loan), 0));
    one.flush();
    assert!(pull(&mut other) == Some(sealed(&bytes, 0)));
}

/// The process is aborted if a device does not return lent memory even when it is restarted.
#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn memory_not_returned_after_restart_aborts_the_process() {
    const NAME: &str = "memory_not_returned_after_restart_aborts_the_process";
    let _turn = TURN.lock();
    if std::env::var_os(NAME).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("a program"));
        again
            .args(["--ignored", "--exact", "--nocapture", NAME])
            .env(NAME, "1");
        let done = again.output().expect("it starts");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(
            !done.status.success() && stderr.contains("does not give memory back"),
            "{stderr}"
        );
        return;
    }
    begin();
    // This device sends to itself, and stopping it does not release the frames in its ring.
    let opened = DpdkPort::open("net_ring0", FRAME_BYTES, None, InPlace::IfPossible);
    let mut one = opened.expect("a ring opens");
    let loan = Block::new(1024).lend(&mut one);
    assert!(push(
        &mut one,
        LentPart {
            loan,
            offset: 0,
            bytes: 1024
        },
        0
    ));
    one.flush();
    one.take_back(loan);
}

/// A closed port returns all lent memory.
#[test]
#[ignore = "needs DPDK: cargo xtask test hosts"]
fn closing_a_port_returns_all_lent_memory() {
    let _turn = TURN.lock();
    let [mut one, mut other] = ports("closed");
    let block = Block::new(1024);
    let bytes = block.fill(1);
    let loan = block.lend(&mut one);
    assert!(push(
        &mut one,
        LentPart {
            loan,
            offset: 0,
            bytes: 1024
        },
        0
    ));
    let closed = std::thread::spawn(move || drop(one));
    let begun = Instant::now();
    let received = loop {
        match pull(&mut other) {
            Some(received) => break received,
            None => assert!(begun.elapsed() < Duration::from_secs(5)),
        }
    };
    assert!(received == sealed(&bytes, 0));
    closed.join().expect("it ends");
}
