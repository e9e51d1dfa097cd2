// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits a stream at line ends. Bytes are pushed in pieces of any size and are returned in pieces that end with a
//! newline. The exceptions are the last piece of a stream, and lines longer than [`LONGEST_LINE_BYTES`], which are
//! returned in parts.

/// Limit in bytes: shorter lines are returned whole. A longer line may be split, but no byte is lost.
pub(crate) const LONGEST_LINE_BYTES: usize = 1 << 20;

/// The unfinished line of a stream.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    pending: Vec<u8>,
}

impl LineBuffer {
    /// Appends bytes; returns the bytes that may be written now, if there are any.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let (lines, rest) = bytes.split_at(whole);
        if whole == 0 {
            self.pending.extend_from_slice(rest);
            let too_long = self.pending.len() >= LONGEST_LINE_BYTES;
            return too_long.then(|| std::mem::take(&mut self.pending));
        }
        let mut ready = std::mem::take(&mut self.pending);
        ready.extend_from_slice(lines);
        self.pending.extend_from_slice(rest);
        Some(ready)
    }

    /// Removes and returns the unfinished line; called at the end of the stream, and for a prompt.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let left = std::mem::take(&mut self.pending);
        (!left.is_empty()).then_some(left)
    }

    /// Whether the buffer has an unfinished line.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_written() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push(b"one"), None);
        assert_eq!(
            lines.push(b" line\ntwo\nthr").as_deref(),
            Some(&b"one line\ntwo\n"[..])
        );
        assert_eq!(lines.push(b"ee\n").as_deref(), Some(&b"three\n"[..]));
        assert_eq!(lines.take(), None);
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push(b"a\nb").as_deref(), Some(&b"a\n"[..]));
        assert!(lines.is_pending());
        assert_eq!(lines.take().as_deref(), Some(&b"b"[..]));
        assert!(!lines.is_pending());
    }

    #[test]
    fn an_overlong_line_is_split_without_loss() {
        let mut lines = LineBuffer::default();
        let piece = vec![0xff_u8; 65536];
        let out: Vec<Vec<u8>> = (0..40).filter_map(|_| lines.push(&piece)).collect();
        let kept = lines.take().map_or(0, |left| left.len());
        assert_eq!(out.len(), 2);
        assert_eq!(out.iter().map(Vec::len).sum::<usize>() + kept, 40 * 65536);
    }

    #[test]
    fn pieces_of_any_size_add_up_to_the_same_bytes() {
        let text: Vec<u8> = (0..5000_u32)
            .map(|i| if i % 37 == 0 { b'\n' } else { b'x' })
            .collect();
        for size in [1, 2, 36, 37, 38, 1000] {
            let mut lines = LineBuffer::default();
            let mut seen: Vec<u8> = text
                .chunks(size)
                .filter_map(|piece| lines.push(piece))
                .flatten()
                .collect();
            assert!(seen.is_empty() || seen.ends_with(b"\n"));
            seen.extend(lines.take().unwrap_or_default());
            assert_eq!(seen, text);
        }
    }
}
