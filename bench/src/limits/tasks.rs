// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of a team. Each task is a loop over `count` messages that all members run.
//!
//! Of two members, 0 sends (in a ping-pong: first) and 1 receives. Flags hold message numbers that go on from batch to
//! batch, so a task starts from `before`, the number of messages of all earlier batches.

use nix::libc;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use std::time::{Duration, Instant, SystemTime};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::frames::MESSAGES;
use super::raw::{CacheLine, futex_wake};
use super::team::{BUFFERS, Halt, Member, post_round};

/// What is measured. Times are per message, one way, unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitTask {
    /// Ping-pong of one cache line that holds flag and payload.
    Line,
    /// Ping-pong of a block: copied into shared memory, flag set, copied out.
    Block,
    /// One-way messages in a ring of 64 slots of one cache line each; the receiver returns credits every 32 slots.
    Slots,
    /// One process copies from private into shared memory; the others are idle.
    Memcpy,
    /// Two processes copy from private into shared memory at the same time; each copies every other message.
    Both,
    /// One message at a time: the receiver reads one half of it from the sender's memory, and the sender writes the
    /// other half into the receiver's memory.
    Split,
    /// One message at a time: the receiver reads all of it from the sender's memory.
    Read,
    /// Ping-pong of a line between two processes on one CPU that yield to each other.
    Yield,
    /// Ping-pong of futex wake-ups between two processes on one CPU; the waiting process sleeps.
    Futex,
    /// The latency of waking a process that has slept for a while: from just before the wake-up call until the process
    /// runs. Both processes read the same system clock.
    Wake,
    /// A token round all members by futex wake-ups; a message is one hop.
    Ring,
    /// A barrier of all members on one counter. Waiting members yield their CPU; a message is one barrier.
    Barrier,
    /// Ping-pong of an Ethernet frame, by DPDK.
    FrameTrips,
    /// Windows of frames one way, by DPDK.
    FrameRate,
    /// Messages one way in frames with checksums, by DPDK.
    FrameStream,
}

impl LimitTask {
    const ALL: [Self; 15] = [
        Self::Line,
        Self::Block,
        Self::Slots,
        Self::Memcpy,
        Self::Both,
        Self::Split,
        Self::Read,
        Self::Yield,
        Self::Futex,
        Self::Wake,
        Self::Ring,
        Self::Barrier,
        Self::FrameTrips,
        Self::FrameRate,
        Self::FrameStream,
    ];

    /// Whether members need private buffers.
    pub(super) const fn copies(self) -> bool {
        matches!(
            self,
            Self::Block | Self::Memcpy | Self::Both | Self::Split | Self::Read
        )
    }

    /// Number of messages in the shortest batch; longer batches have this number times a power of two.
    pub(super) const fn least_count(self, members: usize) -> u64 {
        match self {
            Self::FrameRate => MESSAGES,
            _ => members as u64,
        }
    }

    /// Whether members communicate over a DPDK link.
    pub(super) const fn uses_link(self) -> bool {
        matches!(self, Self::FrameTrips | Self::FrameRate | Self::FrameStream)
    }

    /// Whether the measured time of each message includes waiting in [`Member::spin`]. `false` for tasks over DPDK,
    /// although they wait there too. If `true`, the task is measured with and without a pause instruction between
    /// polls.
    pub(super) const fn spins(self) -> bool {
        matches!(
            self,
            Self::Line | Self::Block | Self::Slots | Self::Split | Self::Read
        )
    }
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitBatch {
    pub(super) task: LimitTask,
    pub(super) size: usize,
    pub(super) count: u64,
    pub(super) before: u64,
    pub(super) pauses: bool,
}

impl LimitBatch {
    /// Posts the batch to the other members as round `round`.
    pub(super) fn post(&self, command: &CacheLine, round: u64) {
        let index = LimitTask::ALL
            .iter()
            .position(|task| *task == self.task)
            .unwrap_or(usize::MAX);
        let values = [
            index as u64,
            self.size as u64,
            self.count,
            self.before,
            u64::from(self.pauses),
        ];
        for (word, value) in command.words.iter().zip(values) {
            word.store(value, Relaxed);
        }
        post_round(command, round);
    }

    /// Posts the command to end to the other members, as round `round`.
    pub(super) fn post_quit(command: &CacheLine, round: u64) {
        command.words[0].store(u64::MAX, Relaxed);
        post_round(command, round);
    }

    /// Reads the posted batch; `None` if the command to end was posted.
    pub(super) fn read(command: &CacheLine) -> Option<Self> {
        let word = |index: usize| command.words[index].load(Relaxed);
        let task = *LimitTask::ALL.get(usize::try_from(word(0)).ok()?)?;
        let size = usize::try_from(word(1)).ok()?;
        Some(Self {
            task,
            size,
            count: word(2),
            before: word(3),
            pauses: word(4) != 0,
        })
    }

    /// Runs this member's part of the batch.
    pub(super) fn run(&self, member: &Member) -> Result<(), Halt> {
        member.pauses.set(self.pauses);
        match self.task {
            LimitTask::Line => self.line(member),
            LimitTask::Block => self.block(member),
            LimitTask::Slots => self.slots(member),
            LimitTask::Memcpy => self.memcpy(member, |_| member.index == 0),
            LimitTask::Both => self.both(member),
            LimitTask::Split | LimitTask::Read => self.direct(member),
            LimitTask::Yield => self.yields(member),
            LimitTask::Futex | LimitTask::Ring => self.ring(member),
            LimitTask::Wake => self.wake(member),
            LimitTask::Barrier => self.barrier(member),
            LimitTask::FrameTrips => {
                let trips = (self.count / 2).max(1);
                member.with_end(|end| end.trips(member, self.size, trips))
            }
            LimitTask::FrameRate => member.with_end(|end| end.rate(member, self.size, self.count)),
            LimitTask::FrameStream => {
                member.with_end(|end| end.stream(member, self.size, self.count))
            }
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        self.before + 1..=self.before + self.count
    }

    /// The numbers of the batch's round trips. A message is half a round trip, so there are `count / 2` round trips,
    /// but at least one.
    fn trips(&self) -> impl Iterator<Item = u64> + use<> {
        self.before + 1..=self.before + (self.count / 2).max(1)
    }

    fn line(&self, member: &Member) -> Result<(), Halt> {
        let (own, peer) = ping_lines(member);
        for trip in self.trips() {
            if member.index == 0 {
                send_line(own, trip);
            }
            member.spin(|| peer.seq.load(Acquire) == trip)?;
            let payload = peer.words[0].load(Relaxed);
            if member.index == 1 {
                send_line(own, payload);
            }
        }
        Ok(())
    }

    fn yields(&self, member: &Member) -> Result<(), Halt> {
        let (own, peer) = ping_lines(member);
        for trip in self.trips() {
            if member.index == 0 {
                send_line(own, trip);
            }
            member.yield_until(|| peer.seq.load(Acquire) == trip)?;
            if member.index == 1 {
                send_line(own, trip);
            }
        }
        Ok(())
    }

    fn block(&self, member: &Member) -> Result<(), Halt> {
        let (own, peer) = ping_lines(member);
        let mut buffers = member.buffers.borrow_mut();
        let (out, rest) = buffers.split_at_mut(self.size);
        let incoming = &mut rest[..self.size];
        let place = |index: usize| index * self.size.next_multiple_of(4096);
        let send = |trip: u64| {
            for (piece, bytes) in out.chunks(PIECE_BYTES).enumerate() {
                let start = place(member.index) + piece * PIECE_BYTES;
                member.arena.write_bulk(start, bytes);
            }
            own.seq.store(trip, Release);
        };
        for trip in self.trips() {
            if member.index == 0 {
                send(trip);
            }
            member.spin(|| peer.seq.load(Acquire) == trip)?;
            for (piece, bytes) in incoming.chunks_mut(PIECE_BYTES).enumerate() {
                let start = place(1 - member.index) + piece * PIECE_BYTES;
                member.arena.read_bulk(start, bytes);
            }
            if member.index == 1 {
                send(trip);
            }
        }
        Ok(())
    }

    fn slots(&self, member: &Member) -> Result<(), Halt> {
        let credit = member.work(CREDIT);
        let slot =
            |number: u64| member.work(SLOTS + usize::try_from(number % SLOT_COUNT).unwrap_or(0));
        let last = self.before + self.count;
        let mut freed = self.before;
        for number in self.numbers() {
            if member.index == 1 {
                member.spin(|| slot(number).seq.load(Acquire) == number)?;
                std::hint::black_box(slot(number).words[0].load(Relaxed));
                if number % (SLOT_COUNT / 2) == 0 || number == last {
                    credit.seq.store(number, Release);
                }
                continue;
            }
            if number - freed > SLOT_COUNT {
                member.spin(|| number - credit.seq.load(Acquire).max(self.before) <= SLOT_COUNT)?;
                freed = credit.seq.load(Acquire);
            }
            send_line(slot(number), number);
        }
        if member.index == 0 {
            member.spin(|| credit.seq.load(Acquire) == last)
        } else {
            Ok(())
        }
    }

    /// Copies the messages for which `is_mine` returns `true` into shared memory, rotating over [`BUFFERS`] places.
    fn memcpy(&self, member: &Member, is_mine: impl Fn(u64) -> bool) -> Result<(), Halt> {
        let buffers = member.buffers.borrow();
        for number in self.numbers().filter(|number| is_mine(*number)) {
            let start = buffer_of(number) * self.size;
            member
                .arena
                .write_bulk(start, &buffers[start..start + self.size]);
        }
        Ok(())
    }

    /// Both members copy at the same time; member 0 returns when both have finished.
    fn both(&self, member: &Member) -> Result<(), Halt> {
        let done = member.work(DIRECT);
        let last = self.before + self.count;
        self.memcpy(member, |number| number % 2 == member.index as u64)?;
        if member.index == 1 {
            done.seq.store(last, Release);
            return Ok(());
        }
        member.spin(|| done.seq.load(Acquire) == last)
    }

    /// Direct copies, each with a handshake of four flags: offered, granted, written (the sender's half, if any), done.
    /// Each flag has its own cache line.
    fn direct(&self, member: &Member) -> Result<(), Halt> {
        let [offer, grant, written, done] = [0, 2, 4, 6].map(|index| member.work(DIRECT + index));
        let half = if self.task == LimitTask::Split {
            self.size / 2
        } else {
            self.size
        };
        let remote = Remote::of(member, 1 - member.index);
        let mut buffers = member.buffers.borrow_mut();
        for number in self.numbers() {
            let start = buffer_of(number) * self.size;
            if member.index == 0 {
                offer.seq.store(number, Release);
                member.spin(|| grant.seq.load(Acquire) == number)?;
                remote.write(start + half, &buffers[start + half..start + self.size])?;
                written.seq.store(number, Release);
                member.spin(|| done.seq.load(Acquire) == number)?;
            } else {
                member.spin(|| offer.seq.load(Acquire) == number)?;
                grant.seq.store(number, Release);
                remote.read(start, &mut buffers[start..start + half])?;
                member.spin(|| written.seq.load(Acquire) == number)?;
                done.seq.store(number, Release);
            }
        }
        if member.index == 1 {
            self.check(&buffers)
        } else {
            Ok(())
        }
    }

    /// Zeroes the bytes that [`Self::check`] examines.
    pub(super) fn clear(&self, buffers: &mut [u8]) {
        for at in self.checked() {
            buffers[at] = 0;
        }
    }

    /// Checks that the last buffer holds the bytes of member 0's last buffer, so that a missing copy is not measured as
    /// a fast one.
    fn check(&self, buffers: &[u8]) -> Result<(), Halt> {
        let expected = u8::try_from(buffer_of(self.before + self.count) + 1).unwrap_or(0);
        let arrived = std::hint::black_box(buffers);
        if self.checked().iter().all(|at| arrived[*at] == expected) {
            Ok(())
        } else {
            Err(Halt::WRONG_BYTES)
        }
    }

    /// The indices of the first and the last byte of each half of the batch's last buffer.
    fn checked(&self) -> [usize; 4] {
        let start = buffer_of(self.before + self.count) * self.size;
        [0, self.size / 2 - 1, self.size / 2, self.size - 1].map(|at| start + at)
    }

    /// Each member sleeps until the one before it wakes it. With two members that is a ping-pong of wake-ups.
    fn ring(&self, member: &Member) -> Result<(), Halt> {
        let own = member.line_of(member.index);
        let next = member.line_of((member.index + 1) % member.members);
        let rounds = (self.count / member.members as u64).max(1);
        let pass = || {
            next.sleep.fetch_add(1, Release);
            futex_wake(&next.sleep, 1);
        };
        // Each pass adds 1 to the sleeper's futex word, so the value to wait for is the number of rounds in all batches
        // so far.
        let mut seen = own.words[3].load(Relaxed);
        for _ in 0..rounds {
            if member.index == 0 {
                pass();
            }
            seen += 1;
            member.sleep_until(own, seen)?;
            if member.index != 0 {
                pass();
            }
        }
        own.words[3].store(seen, Relaxed);
        Ok(())
    }

    /// Member 0 wakes member 1, which adds up how long each wake-up took and stores the sum (ns) in word 4 of its line.
    fn wake(&self, member: &Member) -> Result<(), Halt> {
        let (stamp, sleeper) = (member.work(PING), member.line_of(1));
        let mut spent = 0;
        let mut seen = sleeper.words[3].load(Relaxed);
        for number in self.numbers() {
            seen += 1;
            if member.index == 1 {
                member.sleep_until(sleeper, seen)?;
                spent += nanoseconds().saturating_sub(stamp.words[0].load(Acquire));
                stamp.seq.store(number, Release);
                continue;
            }
            let since = Instant::now();
            member.spin(|| since.elapsed() >= ASLEEP_AFTER)?;
            stamp.words[0].store(nanoseconds(), Release);
            sleeper.sleep.fetch_add(1, Release);
            futex_wake(&sleeper.sleep, 1);
            member.spin(|| stamp.seq.load(Acquire) == number)?;
        }
        if member.index == 1 {
            sleeper.words[3].store(seen, Relaxed);
            sleeper.words[4].store(spent, Relaxed);
        }
        Ok(())
    }

    /// The time of a batch, if the task measures it itself; `None` if member 0's time counts.
    pub(super) fn measured_time(&self, member: &Member) -> Option<Duration> {
        let spent = || Duration::from_nanos(member.line_of(1).words[4].load(Relaxed));
        (self.task == LimitTask::Wake).then(spent)
    }

    fn barrier(&self, member: &Member) -> Result<(), Halt> {
        let (arrived, gone) = (member.work(BARRIER), member.work(BARRIER + 2));
        for number in self.numbers() {
            if arrived.seq.fetch_add(1, AcqRel) + 1 == member.members as u64 {
                arrived.seq.store(0, Relaxed);
                gone.seq.store(number, Release);
            } else {
                member.yield_until(|| gone.seq.load(Acquire) >= number)?;
            }
        }
        Ok(())
    }
}

/// Blocks are copied in pieces of this size. For copies of more than twice this size the C library uses an instruction
/// that, on some processors, is slow on memory that another core wrote.
const PIECE_BYTES: usize = 1024;
/// Member 0 waits this long before each wake-up, so that the waiting process is asleep and its CPU is idle.
const ASLEEP_AFTER: Duration = Duration::from_micros(100);

/// The system clock in nanoseconds, which all processes share.
fn nanoseconds() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}

/// For each use of work lines, the index of the first line that it has: ping-pongs, credits, the handshake of direct
/// copies, the barrier, and the ring's slots.
const PING: usize = 0;
const CREDIT: usize = 8;
const DIRECT: usize = 16;
const BARRIER: usize = 32;
const SLOTS: usize = 64;
const SLOT_COUNT: u64 = 64;

/// The ping-pong lines of this member and of the other one. They are not adjacent, because processors fetch lines in
/// pairs.
fn ping_lines(member: &Member) -> (&CacheLine, &CacheLine) {
    (
        member.work(PING + 2 * member.index),
        member.work(PING + 2 * (1 - member.index)),
    )
}

fn send_line(line: &CacheLine, number: u64) {
    line.words[0].store(number, Relaxed);
    line.seq.store(number, Release);
}

fn buffer_of(number: u64) -> usize {
    usize::try_from(number % BUFFERS as u64).unwrap_or(0)
}

/// Another member's private memory.
struct Remote {
    process: Pid,
    base: usize,
}

impl Remote {
    fn of(member: &Member, other: usize) -> Self {
        let line = member.line_of(other);
        let number = |index: usize| line.words[index].load(Acquire);
        Self {
            process: Pid::from_raw(i32::try_from(number(1)).unwrap_or(0)),
            base: usize::try_from(number(2)).unwrap_or(0),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Halt> {
        let (base, len) = (self.base + offset, into.len());
        let got = process_vm_readv(
            self.process,
            &mut [IoSliceMut::new(into)],
            &[RemoteIoVec { base, len }],
        );
        complete(got, len)
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), Halt> {
        let (base, len) = (self.base + offset, from.len());
        if len == 0 {
            return Ok(());
        }
        let put = process_vm_writev(
            self.process,
            &[IoSlice::new(from)],
            &[RemoteIoVec { base, len }],
        );
        complete(put, len)
    }
}

fn complete(moved: nix::Result<usize>, expected: usize) -> Result<(), Halt> {
    match moved {
        Ok(count) if count == expected => Ok(()),
        Ok(_) => Err(Halt::Refused(libc::EIO)),
        Err(errno) => Err(Halt::Refused(errno as i32)),
    }
}
