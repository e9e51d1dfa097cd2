// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the value of `--map-by`, which determines where the next rank is placed. Accepts the modifiers of Open MPI:
//! `ppr:2:node`, `node:OVERSUBSCRIBE`.

use crate::affinity::Mapping;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error, ValueEnum};
use std::ffi::OsStr;

/// Value of `--map-by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MapBy {
    pub(crate) mapping: Mapping,
    /// `N` of `ppr:N:node`.
    pub(crate) per_host: Option<u32>,
    /// Whether more ranks than slots are an error (`NOOVERSUBSCRIBE`).
    pub(crate) is_strict: bool,
}

impl MapBy {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let first = parts.next()?;
        let mut read = Self::default();
        if first == "ppr" {
            let number = parts.next()?.parse().ok().filter(|number| *number > 0)?;
            read.per_host = (parts.next()? == "node").then_some(number);
            read.per_host?;
        } else {
            read.mapping = Mapping::from_str(first, false).ok()?;
        }
        for modifier in parts {
            match modifier.to_ascii_lowercase().as_str() {
                "oversubscribe" => read.is_strict = false,
                "nooversubscribe" => read.is_strict = true,
                _ => return None,
            }
        }
        Some(read)
    }
}

/// Parser of the value for clap. Shell completions offer only the values without modifiers.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapByParser;

impl TypedValueParser for MapByParser {
    type Value = MapBy;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<MapBy, Error> {
        let text = value.to_string_lossy();
        MapBy::read(&text).ok_or_else(|| {
            let mut error = Error::new(ErrorKind::InvalidValue).with_cmd(command);
            let option = arg.map(Arg::to_string).unwrap_or_default();
            let simple = Mapping::value_variants().iter();
            let simple = simple
                .filter_map(|mapping| Some(mapping.to_possible_value()?.get_name().to_owned()));
            let more = ["ppr:N:node", "one of these with :NOOVERSUBSCRIBE"].map(str::to_owned);
            let known = simple.chain(more).collect();
            error.insert(ContextKind::InvalidArg, ContextValue::String(option));
            error.insert(
                ContextKind::InvalidValue,
                ContextValue::String(text.into_owned()),
            );
            error.insert(ContextKind::ValidValue, ContextValue::Strings(known));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = Mapping::value_variants().iter();
        Some(Box::new(values.filter_map(Mapping::to_possible_value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_map_by_values_are_understood() {
        let read =
            |text| MapBy::read(text).map(|read| (read.mapping, read.per_host, read.is_strict));
        assert_eq!(read("node"), Some((Mapping::Node, None, false)));
        assert_eq!(
            read("slot:NOOVERSUBSCRIBE"),
            Some((Mapping::Slot, None, true))
        );
        assert_eq!(
            read("socket:OVERSUBSCRIBE"),
            Some((Mapping::Socket, None, false))
        );
        assert_eq!(read("ppr:4:node"), Some((Mapping::Slot, Some(4), false)));
        assert_eq!(
            read("ppr:4:node:nooversubscribe"),
            Some((Mapping::Slot, Some(4), true))
        );
        for text in [
            "",
            "ppr",
            "ppr:0:node",
            "ppr:2:socket",
            "ppr:x:node",
            "node:PE=2",
            "l3cache",
            "node:",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
