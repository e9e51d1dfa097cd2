// SPDX-License-Identifier: MIT OR Apache-2.0
//! Axes: the positions of values, ticks, and numbers as text.

/// How values are distributed over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with ticks at powers of ten.
    Log,
    /// Logarithmic for numbers of bytes, with ticks at powers of two. Zero has its own position before all other
    /// values.
    Bytes,
}

/// The range of values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisRange {
    scale: Scale,
    low: f64,
    high: f64,
    /// The smallest value that is not zero; only [`Scale::Bytes`] uses it.
    least: f64,
}

/// Maximum number of ticks of an axis of bytes, besides the tick at zero.
const TICKS: usize = 12;

impl AxisRange {
    /// The range that contains all of `values` that are in the scale's domain.
    pub(crate) fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let good = values.filter(move |value| can_show(scale, *value));
        let low = good.clone().fold(f64::INFINITY, f64::min);
        let high = good.clone().fold(0.0, f64::max);
        let least = good
            .filter(|value| *value > 0.0)
            .fold(f64::INFINITY, f64::min);
        let least = if least.is_finite() { least } else { 1.0 };
        let low = if low.is_finite() { low } else { 1.0 };
        let (low, high) = match scale {
            Scale::Linear => (0.0, nice_above(if high > 0.0 { high } else { 1.0 })),
            Scale::Log => log_range(low, high),
            Scale::Bytes => (low, if high > low { high } else { low.max(1.0) * 2.0 }),
        };
        Self {
            scale,
            low,
            high,
            least,
        }
    }

    /// The position of a value, from 0 at the beginning of the axis to 1 at its end; `None` if the value is outside the
    /// scale's domain.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        if !can_show(self.scale, value) {
            return None;
        }
        let (low, high) = (self.steps(self.low), self.steps(self.high));
        Some((self.steps(value) - low) / (high - low))
    }

    /// The value in a measure in which the axis is linear: the value itself, or its logarithm.
    fn steps(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Bytes if value == 0.0 => self.least.log2() - 1.5,
            Scale::Bytes => value.log2(),
        }
    }

    /// Values and labels of the ticks.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
            Scale::Bytes => self.byte_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_above(self.high / 5.0);
        let count = (self.high / step).round();
        let ticks = (0..=20).map(f64::from).take_while(|index| *index <= count);
        ticks
            .map(|index| (index * step, plain(index * step)))
            .collect()
    }

    /// Powers of ten; if there are few, also their multiples by 2 and 5.
    fn log_ticks(&self) -> Vec<(f64, String)> {
        let (first, last) = (decade(self.low), decade(self.high));
        let factors: &[f64] = if last - first <= 2 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let all = (first..=last)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        let inside = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        all.filter(inside)
            .map(|value| (value, plain(value)))
            .collect()
    }

    /// Every power of two, or every second, third and so on, so that there are at most [`TICKS`].
    fn byte_ticks(&self) -> Vec<(f64, String)> {
        let zero = (self.low == 0.0).then(|| (0.0, "0".to_owned()));
        let powers: Vec<f64> = (0..=40)
            .map(|power| 2f64.powi(power))
            .filter(|value| *value >= self.least * 0.999 && *value <= self.high * 1.001)
            .collect();
        let each = powers.len().div_ceil(TICKS).max(1) as f64;
        // The ticks are the powers of two whose exponents are multiples of `each`: 1K, 4K, 16K instead of 2K, 8K, 32K.
        let shown = powers
            .into_iter()
            .filter(|value| value.log2() % each == 0.0)
            .map(|value| (value, bytes(value)));
        zero.into_iter().chain(shown).collect()
    }
}

fn can_show(scale: Scale, value: f64) -> bool {
    value.is_finite() && (value > 0.0 || (value == 0.0 && scale != Scale::Log))
}

/// The range of a logarithmic axis. Both ends are 1, 2 or 5 times a power of ten, at least a factor of two apart, and
/// the range includes `low` and `high`.
fn log_range(low: f64, high: f64) -> (f64, f64) {
    let high = if high > 0.0 { high } else { 1.0 };
    let below = [5.0, 2.0, 1.0].map(|factor| factor * 10f64.powi(decade(low)));
    let below = below.into_iter().find(|value| *value <= low * 1.0001);
    let below = below.unwrap_or(low);
    (below, nice_above(high).max(2.0 * below))
}

/// The smallest number that is 1, 2 or 5 times a power of ten and not below `value`.
fn nice_above(value: f64) -> f64 {
    nice(value, 0.9999)
}

fn nice(value: f64, tolerance: f64) -> f64 {
    let power = 10f64.powi(decade(value));
    let factors = [1.0, 2.0, 5.0];
    let fits = factors
        .into_iter()
        .find(|factor| factor * power >= value * tolerance);
    fits.unwrap_or(10.0) * power
}

/// The exponent of the largest power of ten that is not above `value`.
#[allow(clippy::cast_possible_truncation)]
fn decade(value: f64) -> i32 {
    // The cast loses nothing: the exponent of ten of a double lies between -324 and 308.
    (value.log10() + 1e-9).floor() as i32
}

/// A number as text without an exponent and without trailing zeros.
fn plain(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 2,
        size => usize::try_from(1 - decade(size)).unwrap_or(0) + 1,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// A number of bytes as options are written: 64K, 4M and so on.
#[must_use]
pub fn bytes(value: f64) -> String {
    let units = [
        (2f64.powi(30), "G"),
        (2f64.powi(20), "M"),
        (2f64.powi(10), "K"),
    ];
    let unit = units.into_iter().find(|(unit, _)| value >= *unit);
    let (unit, letter) = unit.unwrap_or((1.0, ""));
    format!("{}{letter}", plain(value / unit))
}

/// A number as text with three significant digits, but at most three decimals; an integer from 100 on.
#[must_use]
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        let span = AxisRange::of(scale, values.iter().copied());
        span.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn an_axis_begins_and_ends_at_round_numbers() {
        assert_eq!(
            labels(Scale::Linear, &[3.0, 17.2]),
            ["0", "5", "10", "15", "20"]
        );
        assert_eq!(
            labels(Scale::Linear, &[100.0]),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(Scale::Log, &[0.25, 8000.0]),
            ["1", "10", "100", "1000", "10000"]
        );
        assert_eq!(
            labels(Scale::Log, &[0.3, 4.0]),
            ["0.2", "0.5", "1", "2", "5"]
        );
    }

    #[test]
    fn bytes_are_written_as_in_options_and_zero_is_separate() {
        let sizes = [0.0, 8.0, 1024.0, 65536.0];
        let ticks = labels(Scale::Bytes, &sizes);
        assert_eq!(ticks[..3], ["0", "16", "64"]);
        assert!(ticks.len() <= TICKS + 1, "{ticks:?}");
        let span = AxisRange::of(Scale::Bytes, sizes.into_iter());
        assert_eq!(
            (span.place(0.0), span.place(65536.0)),
            (Some(0.0), Some(1.0))
        );
        assert!(span.place(8.0).unwrap() > 0.05);
        assert_eq!(bytes(4194304.0), "4M");
    }

    #[test]
    fn places_ascend_with_values() {
        for scale in [Scale::Linear, Scale::Log, Scale::Bytes] {
            let values = [1.0, 2.0, 700.0, 5000.0];
            let span = AxisRange::of(scale, values.into_iter());
            let places: Vec<f64> = values
                .iter()
                .filter_map(|value| span.place(*value))
                .collect();
            assert!(
                places.windows(2).all(|pair| pair[0] < pair[1]),
                "{scale:?} {places:?}"
            );
            assert!(
                places.iter().all(|place| (0.0..=1.0).contains(place)),
                "{places:?}"
            );
        }
    }

    #[test]
    fn every_tick_lies_on_its_axis_whatever_the_values() {
        for low in [0.0, 1e-3, 0.7, 1.0, 9.99, 10.0, 12345.0] {
            for high in [1e-3, 0.99, 1.0, 3.0, 99.0, 1e6] {
                for scale in [Scale::Linear, Scale::Log, Scale::Bytes] {
                    let span = AxisRange::of(scale, [low, high].into_iter());
                    let ticks = span.ticks();
                    assert!(ticks.len() < 20, "{scale:?} {low} {high}: {ticks:?}");
                    for (value, label) in ticks {
                        let place = span.place(value).unwrap();
                        assert!(
                            (-0.01..=1.01).contains(&place),
                            "{scale:?} {label} at {place}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn values_outside_the_domain_have_no_position() {
        let span = AxisRange::of(Scale::Log, [1.0, 10.0].into_iter());
        assert_eq!(
            (span.place(0.0), span.place(f64::NAN), span.place(-1.0)),
            (None, None, None)
        );
        let nothing = AxisRange::of(Scale::Log, std::iter::empty());
        assert!(nothing.place(1.0).is_some_and(f64::is_finite));
    }

    #[test]
    fn numbers_have_no_zeros_at_the_end() {
        assert_eq!(
            [0.05, 0.2, 1.0, 2.5, 100.0, 20000.0].map(plain),
            ["0.05", "0.2", "1", "2.5", "100", "20000"]
        );
    }
}
