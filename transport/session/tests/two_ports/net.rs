// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates byte streams between two ends in a bad network. Streams transfer any number of bytes at a time, are slow,
//! and break within a frame; each end detects that later, or never. A seed determines the run.

use std::collections::VecDeque;

/// Random numbers that a seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A random number of 64 bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// `true` on average once in `times` calls.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.word().to_le_bytes()[0]).collect()
    }
}

/// The stream has ended.
#[derive(Debug)]
pub(crate) struct StreamClosed;

/// All streams between end 0 and end 1.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) random: Random,
    streams: Vec<Stream>,
    /// For each end, the streams opened to it, and when it sees them.
    incoming: [VecDeque<(u64, usize)>; 2],
    /// Until this time all written bytes are silently dropped. A stream that is opened or written before this time
    /// never delivers anything later.
    pub(crate) down_until_ns: u64,
}

#[derive(Debug, Default)]
struct Stream {
    /// The bytes from each end.
    directions: [Direction; 2],
    /// When each end detects that the stream has ended; `None`: it does not.
    ended: [Option<u64>; 2],
    /// Whether the stream accepts all bytes and delivers none.
    is_blackhole: bool,
}

#[derive(Debug, Default)]
struct Direction {
    /// Pieces of bytes, and when each arrives.
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Direction {
    /// Loses all bytes except the first `keep`.
    fn cut(&mut self, keep: usize) {
        let mut left = keep;
        for (_, piece) in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.pieces.retain(|(_, piece)| !piece.is_empty());
        self.bytes = keep - left;
    }
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            streams: Vec::new(),
            incoming: Default::default(),
            down_until_ns: 0,
        }
    }

    /// A random delay.
    fn delay_ns(&mut self) -> u64 {
        let most = if self.random.once_in(50) { 30_000 } else { 300 };
        1000 * (1 + self.random.below(most) as u64)
    }

    /// End `side` opens a stream to the other end.
    pub(crate) fn dial(&mut self, now_ns: u64, side: usize) -> usize {
        let stream = self.streams.len();
        self.streams.push(Stream {
            is_blackhole: now_ns < self.down_until_ns,
            ..Stream::default()
        });
        if now_ns >= self.down_until_ns {
            let seen_ns = now_ns + self.delay_ns();
            self.incoming[1 - side].push_back((seen_ns, stream));
        }
        stream
    }

    /// Takes a stream that the other end, or a foreign process, has opened to end `side`.
    pub(crate) fn accepted(&mut self, now_ns: u64, side: usize) -> Option<usize> {
        let (seen_ns, stream) = *self.incoming[side].front()?;
        (seen_ns <= now_ns).then(|| self.incoming[side].pop_front())?;
        Some(stream)
    }

    /// End `side` reads some of the bytes that have arrived.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        stream: usize,
        side: usize,
        place: &mut [u8],
    ) -> Result<usize, StreamClosed> {
        let most = 1 + self.random.below(place.len());
        let it = &mut self.streams[stream];
        let direction = &mut it.directions[1 - side];
        let mut read = 0;
        while read < most
            && let Some((there_ns, piece)) = direction.pieces.front_mut()
            && *there_ns <= now_ns
        {
            let count = piece.len().min(most - read);
            place[read..read + count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            read += count;
            if piece.is_empty() {
                direction.pieces.pop_front();
            }
        }
        direction.bytes -= read;
        let is_over = it.ended[side].is_some_and(|ended_ns| ended_ns <= now_ns);
        if read == 0 && is_over {
            Err(StreamClosed)
        } else {
            Ok(read)
        }
    }

    /// End `side` writes some of the bytes; returns their number.
    pub(crate) fn write(
        &mut self,
        now_ns: u64,
        stream: usize,
        side: usize,
        bytes: &[u8],
    ) -> Result<usize, StreamClosed> {
        let (ready_ns, part) = (now_ns + self.delay_ns(), self.random.below(bytes.len() + 1));
        let it = &mut self.streams[stream];
        if it.ended[side].is_some_and(|ended_ns| ended_ns <= now_ns) {
            return Err(StreamClosed);
        }
        let direction = &mut it.directions[side];
        let count = part.min(MOST_UNDER_WAY.saturating_sub(direction.bytes));
        if it.is_blackhole || it.ended[side].is_some() || now_ns < self.down_until_ns {
            it.is_blackhole = true;
            return Ok(count);
        }
        if count != 0 {
            // A piece does not arrive before the piece in front of it.
            let last_ns = direction.pieces.back().map_or(0, |(there_ns, _)| *there_ns);
            let piece = bytes[..count].to_vec();
            direction.pieces.push_back((ready_ns.max(last_ns), piece));
            direction.bytes += count;
        }
        Ok(count)
    }

    /// End `side` closes a stream.
    pub(crate) fn close(&mut self, now_ns: u64, stream: usize, side: usize) {
        let found_ns = now_ns + self.delay_ns();
        self.streams[stream].ended[side] = Some(0);
        self.end_for(stream, 1 - side, found_ns);
    }

    /// Breaks one of the three latest streams.
    pub(crate) fn reset_some(&mut self, now_ns: u64) {
        if self.streams.is_empty() {
            return;
        }
        // One of the latest streams is most likely in use.
        let back = 1 + self.random.below(self.streams.len().min(3));
        let stream = self.streams.len() - back;
        for side in [0, 1] {
            let found_ns = now_ns + self.delay_ns();
            self.end_for(stream, side, found_ns);
        }
    }

    /// Loses some of the bytes on their way to end `side`; the end detects at `found_ns` that the stream has ended.
    fn end_for(&mut self, stream: usize, side: usize, found_ns: u64) {
        let it = &mut self.streams[stream];
        let direction = &mut it.directions[1 - side];
        let keep = self.random.below(direction.bytes + 1);
        direction.cut(keep);
        it.ended[side].get_or_insert(found_ns);
    }

    /// Makes the latest stream silently deliver nothing any more.
    pub(crate) fn make_blackhole(&mut self) {
        if let Some(stream) = self.streams.last_mut() {
            stream.is_blackhole = true;
            stream
                .directions
                .iter_mut()
                .for_each(|direction| direction.cut(0));
        }
    }

    /// A foreign process opens a stream to end `side`, and sends these bytes.
    pub(crate) fn open_foreign_stream(&mut self, now_ns: u64, side: usize, bytes: Vec<u8>) {
        let mut stream = Stream::default();
        let direction = &mut stream.directions[1 - side];
        direction.bytes = bytes.len();
        direction.pieces.push_back((now_ns, bytes));
        self.incoming[side].push_back((now_ns, self.streams.len()));
        self.streams.push(stream);
    }
}

/// Limit of unread bytes of a stream.
const MOST_UNDER_WAY: usize = 3000;
