// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the ranks' output. A write to standard output or standard error may block for any time, so each of these
//! streams has a thread of its own, which is started for the first piece at the latest. If both streams are the same
//! file, one thread writes both; otherwise their lines would mix.

use super::files::Files;
use crate::link::OutputStream;
use crate::spawn;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum size of a write that joins several pieces, in bytes. A single piece may be larger.
const JOIN_BYTES: usize = 64 << 10;

/// Writer of all output.
pub(crate) struct OutputWriter {
    /// The lanes of standard output and standard error; a lane is a queue of pieces with one writer thread. With
    /// `--output`, the first lane writes the files of the ranks, and the second writes the launcher's own messages.
    lanes: [Arc<Lane>; 2],
    has_files: bool,
    started: [bool; 2],
    tag: bool,
    /// With `-l`: the streams whose last piece did not end with a newline.
    broken_lines: HashSet<(u32, OutputStream)>,
    error_line_open: bool,
    wake: Arc<EventFd>,
}

/// Result of the writers since the last call of [`OutputWriter::progress`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteProgress {
    /// By node: bytes of the node's ranks that were written or discarded.
    pub(crate) written: BTreeMap<usize, u64>,
    /// A destination that cannot be written any more.
    pub(crate) broken: Option<BrokenOutput>,
}

/// A destination that cannot be written any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokenOutput {
    /// Name of the destination, for the user.
    pub(crate) place: String,
    /// Why the write failed.
    pub(crate) error: Errno,
}

impl OutputWriter {
    pub(crate) fn new(tag: bool, files: Option<Files>) -> Result<Self, Errno> {
        let has_files = files.is_some();
        let out = Arc::new(Lane {
            files: files.map(Mutex::new),
            ..Lane::default()
        });
        let err = if same_file() && !has_files {
            Arc::clone(&out)
        } else {
            Arc::new(Lane::default())
        };
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self {
            lanes: [out, err],
            has_files,
            started: [false; 2],
            tag,
            broken_lines: HashSet::new(),
            error_line_open: false,
            wake: Arc::new(wake),
        })
    }

    /// Readable when there is progress.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Queues output of a rank of a node.
    pub(crate) fn write(&mut self, node: usize, rank: u32, stream: OutputStream, bytes: Vec<u8>) {
        let credit = bytes.len() as u64;
        let bytes = if self.tag {
            self.tagged(rank, stream, &bytes)
        } else {
            bytes
        };
        if stream == OutputStream::Err && !self.has_files {
            self.error_line_open = bytes.last().is_some_and(|last| *last != b'\n');
        }
        self.put(OutputPiece {
            stream,
            file_of: self.has_files.then_some(rank),
            bytes,
            node,
            credit,
        });
    }

    /// Queues a message of the launcher for standard error.
    pub(crate) fn print(&mut self, message: &str) {
        let end = if std::mem::take(&mut self.error_line_open) {
            "\n"
        } else {
            ""
        };
        let bytes = format!("{end}rmpiexec: {message}\n").into_bytes();
        self.put(OutputPiece {
            stream: OutputStream::Err,
            file_of: None,
            bytes,
            node: 0,
            credit: 0,
        });
    }

    /// Removes and returns the progress of the writers.
    pub(crate) fn progress(&mut self) -> WriteProgress {
        let _ = self.wake.read();
        let mut progress = WriteProgress::default();
        for lane in &self.lanes {
            let mut queue = lane.lock();
            for (node, bytes) in std::mem::take(&mut queue.written) {
                *progress.written.entry(node).or_default() += bytes;
            }
            progress.broken = progress.broken.or_else(|| queue.progress.take());
        }
        progress
    }

    /// Whether everything was written.
    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| {
            let queue = lane.lock();
            queue.pieces.is_empty() && !queue.busy
        })
    }

    fn tagged(&mut self, rank: u32, stream: OutputStream, bytes: &[u8]) -> Vec<u8> {
        let tag = format!("[{rank}] ");
        let mut continues = self.broken_lines.remove(&(rank, stream));
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8 + tag.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !std::mem::take(&mut continues) {
                out.extend_from_slice(tag.as_bytes());
            }
            out.extend_from_slice(line);
        }
        if out.last().is_some_and(|last| *last != b'\n') {
            self.broken_lines.insert((rank, stream));
        }
        out
    }

    fn put(&mut self, piece: OutputPiece) {
        let to_files = piece.file_of.is_some();
        let index = usize::from(piece.stream == OutputStream::Err && !to_files);
        {
            let lane = &self.lanes[index];
            let mut queue = lane.lock();
            queue.pieces.push_back(piece);
            lane.ready.notify_one();
        }
        // If no thread can be started, this thread writes.
        if !self.start(index) {
            self.lanes[index].write_all_now();
        }
    }

    /// Starts the writer threads early; otherwise they start with the first output. The kernel starts a traced thread
    /// with SIGSTOP, so a debugger that detaches while a thread starts would leave this process stopped.
    pub(crate) fn begin(&mut self) {
        for index in 0..self.lanes.len() {
            self.start(index);
        }
    }

    /// Starts the thread of a lane if it is not running. Returns `false` if it cannot be started.
    fn start(&mut self, index: usize) -> bool {
        let shared = Arc::ptr_eq(&self.lanes[0], &self.lanes[1]);
        let started = &mut self.started[if shared { 0 } else { index }];
        if !*started {
            let (lane, wake) = (Arc::clone(&self.lanes[index]), Arc::clone(&self.wake));
            let made = std::thread::Builder::new().spawn(move || lane.serve(&wake));
            *started = made.is_ok();
        }
        *started
    }
}

/// Output of one rank that is to be written to one stream or file.
struct OutputPiece {
    stream: OutputStream,
    /// The rank to whose file the piece is written; `None` for standard output or error.
    file_of: Option<u32>,
    bytes: Vec<u8>,
    /// The node to which the credit is returned.
    node: usize,
    credit: u64,
}

impl OutputPiece {
    /// Whether `next` can be written together with this piece.
    fn joins(&self, next: &Self) -> bool {
        next.stream == self.stream
            && next.file_of == self.file_of
            && next.node == self.node
            && self.bytes.len() + next.bytes.len() <= JOIN_BYTES
    }
}

/// Pieces that are to be written, and the results of those that were written.
#[derive(Default)]
struct WriteQueue {
    pieces: VecDeque<OutputPiece>,
    busy: bool,
    written: BTreeMap<usize, u64>,
    /// By stream: why the stream cannot be written any more (`dead`), and whether that was reported (`reported`).
    dead: [Option<Errno>; 2],
    reported: [bool; 2],
    progress: Option<BrokenOutput>,
}

/// A writer thread's queue; the thread waits on `ready`.
#[derive(Default)]
struct Lane {
    files: Option<Mutex<Files>>,
    queue: Mutex<WriteQueue>,
    ready: Condvar,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        // Poisoning is ignored: a panic ends the process.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, wake: &EventFd) {
        loop {
            let mut queue = self.lock();
            while queue.pieces.is_empty() {
                queue = self
                    .ready
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            self.write_all_now();
            let _ = wake.write(1);
        }
    }

    /// Writes all queued pieces.
    fn write_all_now(&self) {
        while let Some((piece, dead)) = self.next() {
            let error = dead.or_else(|| self.write(&piece).err());
            let index = usize::from(piece.stream == OutputStream::Err);
            let mut queue = self.lock();
            queue.busy = false;
            if piece.credit > 0 {
                *queue.written.entry(piece.node).or_default() += piece.credit;
            }
            queue.dead[index] = error;
            // Only lost output of ranks is reported, not lost messages of the launcher, which have no credit.
            if let (Some(error), 1.., false) = (error, piece.credit, queue.reported[index]) {
                queue.reported[index] = true;
                let place = self.name(&piece);
                queue.progress = Some(BrokenOutput { place, error });
            }
        }
    }

    fn write(&self, piece: &OutputPiece) -> Result<(), Errno> {
        match (&self.files, piece.file_of) {
            (Some(files), Some(rank)) => files
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(rank, piece.stream, &piece.bytes),
            _ => write_all(piece.stream, &piece.bytes),
        }
    }

    fn name(&self, piece: &OutputPiece) -> String {
        match (&self.files, piece.file_of, piece.stream) {
            (Some(files), Some(rank), stream) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                files.path(rank, stream).display().to_string()
            }
            (_, _, OutputStream::Out) => "standard output".to_owned(),
            (_, _, OutputStream::Err) => "standard error".to_owned(),
        }
    }

    /// Removes and returns the next piece, joined with the following pieces of the same destination, and the error of
    /// its stream, if there is one.
    fn next(&self) -> Option<(OutputPiece, Option<Errno>)> {
        let mut queue = self.lock();
        let mut piece = queue.pieces.pop_front()?;
        while let Some(next) = queue.pieces.pop_front_if(|next| piece.joins(next)) {
            piece.bytes.extend_from_slice(&next.bytes);
            piece.credit += next.credit;
        }
        queue.busy = true;
        let dead = queue.dead[usize::from(piece.stream == OutputStream::Err)];
        Some((piece, dead))
    }
}

fn write_all(stream: OutputStream, mut bytes: &[u8]) -> Result<(), Errno> {
    if spawn::was_closed(if stream == OutputStream::Out { 1 } else { 2 }) {
        return Err(Errno::EBADF);
    }
    let (out, err) = (stdout(), stderr());
    let target = match stream {
        OutputStream::Out => out.as_fd(),
        OutputStream::Err => err.as_fd(),
    };
    while !bytes.is_empty() {
        match nix::unistd::write(target, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => (),
            // Another process has made the shared file description non-blocking.
            Err(Errno::EAGAIN) => {
                let mut wait = [PollFd::new(target, PollFlags::POLLOUT)];
                let _ = poll(&mut wait, PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether standard output and standard error are the same file.
fn same_file() -> bool {
    let (out, err) = (stdout(), stderr());
    match (
        nix::sys::stat::fstat(out.as_fd()),
        nix::sys::stat::fstat(err.as_fd()),
    ) {
        (Ok(one), Ok(other)) => one.st_dev == other.st_dev && one.st_ino == other.st_ino,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_tagged_once_in_any_pieces() {
        let mut output = OutputWriter::new(true, None).unwrap();
        assert_eq!(
            output.tagged(3, OutputStream::Out, b"a\nb\n"),
            b"[3] a\n[3] b\n"
        );
        assert_eq!(output.tagged(3, OutputStream::Out, b"begin"), b"[3] begin");
        assert_eq!(
            output.tagged(3, OutputStream::Err, b"else\n"),
            b"[3] else\n"
        );
        assert_eq!(
            output.tagged(3, OutputStream::Out, b" end\nnext\n"),
            b" end\n[3] next\n"
        );
    }

    #[test]
    fn small_pieces_of_one_stream_are_joined_in_order() {
        let lane = Lane::default();
        let piece = |node, stream, text: &str| OutputPiece {
            stream,
            file_of: None,
            bytes: text.into(),
            node,
            credit: 1,
        };
        lane.lock().pieces.extend([
            piece(0, OutputStream::Out, "a"),
            piece(0, OutputStream::Out, "b"),
            piece(0, OutputStream::Err, "c"),
            piece(1, OutputStream::Err, "d"),
        ]);
        let (first, _) = lane.next().unwrap();
        assert_eq!((first.bytes.as_slice(), first.credit), (&b"ab"[..], 2));
        let (second, _) = lane.next().unwrap();
        assert_eq!(second.bytes, b"c");
        let (third, _) = lane.next().unwrap();
        assert_eq!((third.bytes.as_slice(), third.node), (&b"d"[..], 1));
        assert!(lane.next().is_none());
    }
}
