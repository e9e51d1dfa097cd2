// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of performance variables.

use crate::entry::TableEntry;
use crate::text::wrapped;
use runtime::var::pvars::{PVARS, PerformanceVariable, PvarClass, PvarNumber};
use serde_json::json;

/// All performance variables.
pub(crate) fn entries() -> Vec<TableEntry> {
    PVARS.iter().map(one).collect()
}

fn one(pvar: &PerformanceVariable) -> TableEntry {
    let of = match (pvar.is_of_comm(), pvar.is_of_ranks()) {
        (true, _) => " of a communicator",
        (_, true) => " by world rank",
        _ => "",
    };
    let (class, kind) = (class(pvar.class), kind(pvar.kind));
    let category = pvar.category.name();
    let text = wrapped(pvar.text, 4);
    let mut json = json!({
        "name": pvar.name,
        "category": category,
        "verbosity": format!("{:?}", pvar.verbosity),
        "class": class,
        "type": kind,
        "of": if pvar.is_of_comm() { "communicator" } else { "process" },
        "each_rank": pvar.is_of_ranks(),
        "readonly": pvar.is_read_only(),
        "continuous": pvar.is_continuous(),
        "text": pvar.text,
    });
    if let PvarNumber::Int(words @ [_, ..]) = pvar.kind {
        json["words"] = words.into();
    }
    TableEntry {
        group: "",
        text: format!("{}  {class}{of}, {kind}, in {category}\n{text}", pvar.name),
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
    fn every_pvar_is_listed_with_class_and_text() {
        let page = page(&[("pvars", entries())]);
        let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for pvar in PVARS {
            let is_head = |line: &str| line.split(' ').next() == Some(pvar.name);
            assert!(page.lines().any(is_head), "{}", pvar.name);
            let text = pvar.text.split_whitespace().collect::<Vec<_>>();
            assert!(joined.contains(&text.join(" ")), "{}", pvar.name);
        }
        let line = "MPI_T_UMQ_LENGTH  level of a communicator, unsigned, in rmpi.point_to_point";
        assert!(page.lines().any(|other| other == line), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100));
    }
}
