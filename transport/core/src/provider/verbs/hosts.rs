// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which host a peer is, for messages.

use std::collections::HashMap;

/// The names of hosts, each once: many peers are on the same.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Hosts {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.names.push(name.into());
        // Number 0 is nobody's.
        let number = u32::try_from(self.names.len()).unwrap_or(0);
        self.numbers.insert(name.into(), number);
        number
    }

    pub(super) fn name(&self, number: u32) -> Option<&str> {
        let index = (number as usize).checked_sub(1)?;
        let name = self.names.get(index)?;
        Some(name)
            .map(|name| &**name)
            .filter(|name| !name.is_empty())
    }
}
