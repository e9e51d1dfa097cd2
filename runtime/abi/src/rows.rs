// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows by which a debugger knows the objects that the program has made: each object has one as long as it lives.

use std::collections::HashMap;

/// A row of one of the debugger's tables.
pub trait DebuggerRow: Default + 'static {
    /// Rows of the first chunk; each further chunk has twice as many.
    const FIRST: usize;
    /// Chunks that its table can have.
    const CHUNKS: usize;

    /// Makes a chunk known to debuggers.
    fn publish(number: usize, rows: &'static [Self]);

    /// The object is gone.
    fn close(&self);
}

/// Which row an object has, by its handle's bits.
pub struct Rows<R: DebuggerRow> {
    chunks: usize,
    free: Vec<&'static R>,
    used: HashMap<usize, &'static R>,
}

impl<R: DebuggerRow> Default for Rows<R> {
    fn default() -> Self {
        Self {
            chunks: 0,
            free: Vec::new(),
            used: HashMap::new(),
        }
    }
}

impl<R: DebuggerRow> Rows<R> {
    /// The row of an object; a new one gets one. There are more rows than handles.
    pub fn row(&mut self, bits: usize) -> Option<&'static R> {
        if let Some(row) = self.used.get(&bits) {
            return Some(row);
        }
        if self.free.is_empty() {
            self.add_chunk();
        }
        let row = self.free.pop()?;
        self.used.insert(bits, row);
        Some(row)
    }

    /// The object is gone; its row is another's from now on.
    pub fn close(&mut self, bits: usize) {
        if let Some(row) = self.used.remove(&bits) {
            row.close();
            self.free.push(row);
        }
    }

    fn add_chunk(&mut self) {
        if self.chunks == R::CHUNKS {
            return;
        }
        let rows = (0..R::FIRST << self.chunks).map(|_| R::default());
        let rows: &'static [R] = Vec::leak(rows.collect());
        R::publish(self.chunks, rows);
        self.chunks += 1;
        self.free.extend(rows.iter().rev());
    }
}
