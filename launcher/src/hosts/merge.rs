// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges all mentions of hosts into a list in which each host occurs once.

use super::{JobHost, Slots};
use remote_shell::word::Count;
use std::collections::HashMap;

/// One mention of a host, in an option or a host file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) count: Count,
    /// `max_slots`.
    pub(crate) most: Option<u32>,
}

impl Mention {
    /// Whether the number of slots is not given.
    pub(crate) fn is_bare(&self) -> bool {
        self.count == Count::Bare && self.most.is_none()
    }
}

/// Meaning of a name without a number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    /// One slot.
    OneSlot,
    /// One slot per core, or `max_slots` slots if that option is given. But if another mention of the same name has a
    /// number of slots, the name without a number adds one slot to that number.
    Cores,
}

/// The hosts in the order of their first mention; further mentions add slots. Mentions with the same name and port are
/// the same host.
pub(crate) fn merge(mentions: Vec<Mention>, bare: Bare) -> Result<Vec<JobHost>, String> {
    let mut sums: Vec<MergedHost> = Vec::new();
    let mut known: HashMap<(String, Option<u16>), usize> = HashMap::new();
    for mention in mentions {
        let key = (mention.name.clone(), mention.port);
        let at = *known.entry(key).or_insert(sums.len());
        if at == sums.len() {
            sums.push(MergedHost::of(&mention));
        }
        sums[at].add(mention)?;
    }
    sums.into_iter().map(|sum| sum.host(bare)).collect()
}

/// Sum of a host's mentions so far.
struct MergedHost {
    name: String,
    user: Option<String>,
    port: Option<u16>,
    number: u32,
    bare: u32,
    all: bool,
    most: Option<u32>,
}

impl MergedHost {
    fn of(mention: &Mention) -> Self {
        Self {
            name: mention.name.clone(),
            user: None,
            port: mention.port,
            number: 0,
            bare: 0,
            all: false,
            most: None,
        }
    }

    fn add(&mut self, mention: Mention) -> Result<(), String> {
        match (&self.user, mention.user) {
            (Some(one), Some(other)) if *one != other => {
                let name = &self.name;
                return Err(format!(
                    "{name} is named with two users, {one} and {other}; expected one"
                ));
            }
            (None, user) => self.user = user,
            (Some(_), _) => {}
        }
        match mention.count {
            Count::Bare => self.bare += 1,
            Count::Number(number) => self.number = self.number.saturating_add(number),
            Count::All => self.all = true,
        }
        if let Some(most) = mention.most {
            self.most = Some(self.most.map_or(most, |before| before.max(most)));
        }
        Ok(())
    }

    fn host(self, bare: Bare) -> Result<JobHost, String> {
        let number = self.number.saturating_add(self.bare);
        let only_bare = self.number == 0 && bare == Bare::Cores;
        let slots = match self.most {
            _ if self.all => Slots::Cores,
            Some(most) if only_bare => Slots::Number(most),
            None if only_bare => Slots::Cores,
            _ => Slots::Number(number),
        };
        if let (Slots::Number(number), Some(most)) = (slots, self.most)
            && number > most
        {
            let name = self.name;
            return Err(format!(
                "{name} has {number} slots and max_slots={most}; expected at most as many slots"
            ));
        }
        Ok(JobHost {
            name: self.name,
            user: self.user,
            port: self.port,
            slots,
            most: self.most,
            is_own: false,
        })
    }
}
