// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows in the debugger's tables: each datatype and each group that the program makes has a row until it is freed.

use std::collections::HashMap;

/// A row of one of the debugger's tables.
pub trait DebuggerRow: Default + 'static {
    /// Number of rows of the first chunk; each further chunk has twice as many rows as the one before.
    const FIRST: usize;
    /// Maximum number of chunks of the table.
    const CHUNKS: usize;

    /// Adds a chunk to the debugger's table.
    fn publish(number: usize, rows: &'static [Self]);

    /// Marks the row as free.
    fn close(&self);
}

/// The rows of one kind of object, by the bits of the object's handle.
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
    /// The row of an object; a new object gets one. The result is always `Some`: the table has room for more rows than
    /// there are handles.
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

    /// Frees the row of an object.
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
