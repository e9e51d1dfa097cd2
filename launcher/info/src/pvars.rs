// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of performance variables.

use crate::entry::Entry;
use crate::text::wrapped;
use runtime::var::gauges::{GAUGES, PerformanceVariable, PvarClass, PvarNumber};
use serde_json::json;

/// All performance variables.
pub(crate) fn entries() -> Vec<Entry> {
    GAUGES.iter().map(one).collect()
}

fn one(gauge: &PerformanceVariable) -> Entry {
    let of = match (gauge.is_of_comm(), gauge.is_of_ranks()) {
        (true, _) => " of a communicator",
        (_, true) => " by world rank",
        _ => "",
    };
    let (class, kind) = (class(gauge.class), kind(gauge.kind));
    let category = gauge.category.name();
    let text = wrapped(gauge.text, 4);
    let mut json = json!({
        "name": gauge.name,
        "category": category,
        "verbosity": format!("{:?}", gauge.verbosity),
        "class": class,
        "type": kind,
        "of": if gauge.is_of_comm() { "communicator" } else { "process" },
        "each_rank": gauge.is_of_ranks(),
        "readonly": gauge.is_read_only(),
        "continuous": gauge.is_continuous(),
        "text": gauge.text,
    });
    if let PvarNumber::Int(words @ [_, ..]) = gauge.kind {
        json["words"] = words.into();
    }
    Entry {
        group: "",
        text: format!("{}  {class}{of}, {kind}, in {category}\n{text}", gauge.name),
        json,
    }
}

fn class(class: PvarClass) -> &'static str {
    match class {
        PvarClass::State => "state",
        PvarClass::Level => "level",
        PvarClass::Size => "size",
        PvarClass::Percentage => "percentage",
        PvarClass::HighWatermark => "high watermark",
        PvarClass::LowWatermark => "low watermark",
        PvarClass::Counter => "counter",
        PvarClass::Aggregate => "aggregate",
        PvarClass::Timer => "timer",
        PvarClass::Generic => "generic",
    }
}

fn kind(kind: PvarNumber) -> &'static str {
    match kind {
        PvarNumber::Int(_) => "int",
        PvarNumber::Unsigned => "unsigned",
        PvarNumber::Long => "unsigned long long",
        PvarNumber::Double => "double",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::page;

    #[test]
    fn each_variable_is_there_with_its_class_and_its_text() {
        let page = page(&[("pvars", entries())]);
        let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for gauge in GAUGES {
            let is_head = |line: &str| line.split(' ').next() == Some(gauge.name);
            assert!(page.lines().any(is_head), "{}", gauge.name);
            let text = gauge.text.split_whitespace().collect::<Vec<_>>();
            assert!(joined.contains(&text.join(" ")), "{}", gauge.name);
        }
        let line = "MPI_T_UMQ_LENGTH  level of a communicator, unsigned, in rmpi.point_to_point";
        assert!(page.lines().any(|other| other == line), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100));
    }
}
