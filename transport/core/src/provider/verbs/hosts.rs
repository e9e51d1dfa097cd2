// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host names of this process and its peers, for messages.

use std::collections::HashMap;

/// The names of hosts, each stored once.
#[derive(Debug)]
pub(super) struct HostNames {
    here: String,
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl HostNames {
    /// A table with only the host of this process.
    pub(super) fn new(here: String) -> Self {
        Self {
            here,
            names: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// The host of this process.
    pub(super) fn here(&self) -> &str {
        &self.here
    }

    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.names.push(name.into());
        // Number 0 means no host.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_name_has_one_number() {
        let mut hosts = HostNames::new("here".to_owned());
        let (one, other) = (hosts.number("one"), hosts.number("other"));
        assert_eq!((one, other, hosts.number("one")), (1, 2, 1));
        let nameless = hosts.number("");
        assert_eq!(hosts.name(nameless), None, "it has no name");
        assert_eq!((hosts.name(0), hosts.name(2)), (None, Some("other")));
    }
}
