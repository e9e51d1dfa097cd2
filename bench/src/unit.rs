// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of figures: conversion from a time, whether less or more is better, and how they are printed.

pub use plot::three_digits;
use serde::{Deserialize, Serialize};

/// What a figure counts. A megabyte is 10^6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FigureUnit {
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Megabytes per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Messages per second.
    #[serde(rename = "messages/s")]
    MessagesPerSecond,
    /// KiB of memory.
    #[serde(rename = "KiB")]
    Kib,
    /// Machine instructions.
    #[serde(rename = "instructions")]
    Instructions,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
}

impl FigureUnit {
    /// Whether a smaller figure is the better one.
    #[must_use]
    pub const fn smaller_is_better(self) -> bool {
        !matches!(
            self,
            Self::MegabytesPerSecond | Self::MessagesPerSecond | Self::Percent
        )
    }

    /// The better of two figures.
    #[must_use]
    pub fn better(self, one: f64, other: f64) -> f64 {
        if self.smaller_is_better() {
            one.min(other)
        } else {
            one.max(other)
        }
    }

    /// The figure for one message of `bytes` bytes in `seconds`. For memory, instructions and percentages, which do not
    /// depend on a time, returns `seconds` unchanged.
    #[must_use]
    pub fn from_seconds(self, seconds: f64, bytes: usize) -> f64 {
        match self {
            Self::Us => seconds * 1e6,
            Self::Ns => seconds * 1e9,
            Self::Ms => seconds * 1e3,
            Self::MegabytesPerSecond => bytes as f64 / seconds * 1e-6,
            Self::MessagesPerSecond => 1.0 / seconds,
            Self::Kib | Self::Instructions | Self::Percent => seconds,
        }
    }

    /// The unit in tables and plots: its name, and its size in the unit `self`.
    const fn shown_as(self) -> (&'static str, f64) {
        match self {
            Self::Us => ("µs", 1.0),
            Self::Ns => ("ns", 1.0),
            Self::Ms => ("ms", 1.0),
            Self::MegabytesPerSecond => ("GB/s", 1e3),
            Self::MessagesPerSecond => ("Mmsg/s", 1e6),
            Self::Kib => ("KiB", 1.0),
            Self::Instructions => ("instr", 1.0),
            Self::Percent => ("%", 1.0),
        }
    }

    /// The unit's name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.shown_as().0
    }

    /// Converts a figure to the unit that tables and plots show.
    #[must_use]
    pub fn shown(self, value: f64) -> f64 {
        value / self.shown_as().1
    }

    /// The figure as tables show it, without the unit: as [`three_digits`] writes it.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        three_digits(self.shown(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_becomes_the_figure_of_its_unit() {
        assert_eq!(FigureUnit::Us.from_seconds(2e-6, 8), 2.0);
        assert_eq!(
            FigureUnit::MegabytesPerSecond
                .from_seconds(1e-3, 1_000_000)
                .round(),
            1000.0
        );
        assert_eq!(FigureUnit::MessagesPerSecond.from_seconds(0.5, 8), 2.0);
    }

    #[test]
    fn better_depends_on_the_unit() {
        assert_eq!(FigureUnit::Us.better(1.0, 2.0), 1.0);
        assert_eq!(FigureUnit::MegabytesPerSecond.better(1.0, 2.0), 2.0);
    }

    #[test]
    fn three_significant_digits() {
        assert_eq!(FigureUnit::MegabytesPerSecond.show(22_540.0), "22.5");
        assert_eq!(FigureUnit::Us.show(0.1345), "0.135");
        assert_eq!(FigureUnit::Ms.show(1514.2), "1514");
    }
}
