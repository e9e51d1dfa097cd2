// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `rmpi-bench`: columns like those of the OSU benchmarks, a table with a column for each MPI, one JSON
//! line, or a plot.

use std::fmt::Write as _;

use serde_json::json;

use crate::curves::{Curve, CurveData, CurveRow};
use crate::programs::{BenchProgram, BenchReport, Over, ReportRow};
use crate::unit::FigureUnit;
use plot::{Axis, DotPlot, DotRow, LinePlot, Point, Scale, Series};

/// The lines above the rows of one MPI.
#[must_use]
pub fn head(program: &BenchProgram, report: &BenchReport) -> String {
    let mut text = format!(
        "# {}: {}\n# {}",
        program.name,
        program.purpose,
        ranks(program, report)
    );
    if let (Some(window), Some(buffers)) = (report.window, report.buffers) {
        let plural = if buffers == 1 { "" } else { "s" };
        let _ = write!(text, ", window {window}, {buffers} buffer{plural}");
    }
    text.push_str(match program.over {
        Over::Sizes => ", median and 99th percentile of batches\n",
        Over::Jobs => "median and 99th percentile of jobs\n",
        Over::Names => ", median and largest of the ranks\n",
    });
    let _ = writeln!(text, "# {}", report.library);
    if let Some(machine) = &report.machine {
        let _ = writeln!(text, "# {machine}");
    }
    let unit = report
        .title
        .split_once('(')
        .map_or(String::new(), |(_, unit)| format!("({unit}"));
    match program.over {
        Over::Names => {
            let _ = writeln!(
                text,
                "{:<32}{:>22}{:>18}",
                "# What",
                report.title,
                format!("Largest {unit}")
            );
            return text;
        }
        Over::Jobs => text.push_str("# Ranks   "),
        Over::Sizes => text.push_str("# Size    "),
    }
    let _ = write!(text, "{:>22}{:>18}", report.title, format!("p99 {unit}"));
    for extra in &report.extras {
        let _ = write!(text, "{extra:>18}");
    }
    let counts = if program.over == Over::Jobs {
        "Jobs"
    } else {
        "Iterations"
    };
    let _ = writeln!(text, "{counts:>14}{:>10}", "Warm-up");
    text
}

fn ranks(program: &BenchProgram, report: &BenchReport) -> String {
    match (program.over, report.ranks) {
        (Over::Jobs, _) => String::new(),
        (_, 1) => "1 rank".to_owned(),
        (_, ranks) => format!("{ranks} ranks"),
    }
}

/// One row of one MPI.
#[must_use]
pub fn row(program: &BenchProgram, row: &ReportRow) -> String {
    let digits = if row.median < 100.0 { 3 } else { 2 };
    if program.over == Over::Names {
        let name = row.name.as_deref().unwrap_or_default();
        let largest = row.worst.unwrap_or(f64::NAN);
        let digits = usize::from(row.median < 100.0);
        return format!("{name:<32}{:>22.digits$}{largest:>18.digits$}", row.median);
    }
    let mut text = format!("{:<10}{:>22.digits$}", row.size, row.median);
    let _ = write!(text, "{:>18.digits$}", row.p99.unwrap_or(f64::NAN));
    for extra in &row.extras {
        let digits = if *extra < 100.0 { 3 } else { 2 };
        let _ = write!(text, "{extra:>18.digits$}");
    }
    let _ = write!(
        text,
        "{:>14}{:>10}",
        row.iterations.unwrap_or(0),
        row.warm_up.unwrap_or(0)
    );
    text
}

/// A table with a column for each MPI that has the medians over the rounds.
#[must_use]
pub fn side_by_side(program: &BenchProgram, measured: &CurveData) -> String {
    let Some(report) = measured
        .curves
        .first()
        .and_then(|curve| curve.reports.first())
    else {
        return String::new();
    };
    let mut text = format!("# {}: {}\n", program.name, program.purpose);
    let rounds = measured.rounds;
    let plural = if rounds == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "# {}, median of {rounds} round{plural}",
        column_title(program, report)
    );
    for curve in &measured.curves {
        let library = curve.reports.first().map_or("", |report| &report.library);
        let _ = writeln!(text, "# {}: {library}", curve.label);
    }
    let first = if program.over == Over::Names { 32 } else { 10 };
    let _ = write!(text, "{:<first$}", heading(program));
    let widths: Vec<usize> = measured
        .curves
        .iter()
        .map(|curve| curve.label.chars().count().max(12) + 3)
        .collect();
    for (curve, width) in measured.curves.iter().zip(&widths) {
        let _ = write!(text, "{:>width$}", curve.label);
    }
    text.push('\n');
    let columns: Vec<Vec<CurveRow>> = measured.curves.iter().map(Curve::rows).collect();
    for place in columns.first().into_iter().flatten() {
        let name = place.name.clone().unwrap_or_else(|| place.size.to_string());
        let _ = write!(text, "{name:<first$}");
        for (column, width) in columns.iter().zip(&widths) {
            let value = column.iter().find(|other| other.size == place.size);
            let shown = value.map_or_else(|| "-".to_owned(), |place| figure(place.summary.median));
            let _ = write!(text, "{shown:>width$}");
        }
        text.push('\n');
    }
    text
}

fn figure(value: f64) -> String {
    let digits = if value < 100.0 { 3 } else { 2 };
    format!("{value:.digits$}")
}

const fn heading(program: &BenchProgram) -> &'static str {
    match program.over {
        Over::Sizes => "# Size",
        Over::Jobs => "# Ranks",
        Over::Names => "# What",
    }
}

fn column_title(program: &BenchProgram, report: &BenchReport) -> String {
    match program.over {
        Over::Jobs => report.title.clone(),
        _ => format!("{}, {}", report.title, ranks(program, report)),
    }
}

/// One JSON line for several MPIs or rounds. `complete` is whether all rounds were finished.
#[must_use]
pub fn json_line(program: &BenchProgram, measured: &CurveData, complete: bool) -> String {
    let first = measured
        .curves
        .first()
        .and_then(|curve| curve.reports.first());
    let series: Vec<_> = measured
        .curves
        .iter()
        .map(|curve| {
            let library = curve.reports.first().map(|report| &report.library);
            json!({"name": curve.label, "library": library, "rows": curve.rows()})
        })
        .collect();
    let line = json!({
        "benchmark": program.name,
        "unit": first.map(|report| report.unit),
        "ranks": first.map(|report| report.ranks),
        "machine": first.and_then(|report| report.machine.as_ref()),
        "rounds": measured.rounds,
        "complete": complete,
        "series": series,
    });
    line.to_string()
}

/// The plot of the curves. `complete` is whether all rounds were finished.
#[must_use]
pub fn plot(program: &BenchProgram, curves: &[Curve], complete: bool) -> String {
    let Some(report) = curves.first().and_then(|curve| curve.reports.first()) else {
        return String::new();
    };
    let title = format!("{}: {}", program.name, program.purpose);
    let notes = notes(program, curves, report, complete);
    let places: Vec<Vec<CurveRow>> = curves.iter().map(Curve::rows).collect();
    let single_row = places.iter().all(|places| places.len() < 2);
    if program.over == Over::Sizes && !single_row {
        return LinePlot {
            title,
            notes,
            x: Axis {
                title: "message size (bytes)".to_owned(),
                scale: Scale::Bytes,
            },
            y: Axis {
                title: axis_title(report),
                scale: scale(report.unit, &places),
            },
            joined: true,
            mark: None,
            series: curves
                .iter()
                .zip(&places)
                .map(|(curve, places)| series(curve, places, report.unit))
                .collect(),
        }
        .svg();
    }
    let row = |place: &CurveRow| {
        let of = |places: &Vec<CurveRow>| {
            let other = places.iter().find(|other| other.size == place.size)?;
            Some(report.unit.shown(other.summary.median))
        };
        DotRow {
            name: row_name(program, place),
            values: places.iter().map(of).collect(),
            bar: None,
        }
    };
    DotPlot {
        title,
        notes,
        axis: axis_title(report),
        scale: scale(report.unit, &places),
        mark: None,
        series: curves.iter().map(|curve| curve.label.clone()).collect(),
        rows: places.first().into_iter().flatten().map(row).collect(),
    }
    .svg()
}

fn row_name(program: &BenchProgram, place: &CurveRow) -> String {
    match (program.over, &place.name) {
        (_, Some(name)) => name.clone(),
        (Over::Jobs, None) => format!("{} ranks", place.size),
        (_, None) if place.size == 0 => program.name.to_owned(),
        (_, None) => format!("{} bytes", place.size),
    }
}

fn notes(
    program: &BenchProgram,
    curves: &[Curve],
    report: &BenchReport,
    complete: bool,
) -> Vec<String> {
    let rounds = curves
        .iter()
        .map(|curve| curve.reports.len())
        .max()
        .unwrap_or(0);
    let mut made = match rounds {
        0 | 1 => "medians".to_owned(),
        rounds => format!("medians of {rounds} rounds; strokes: best and worst round"),
    };
    if program.over != Over::Jobs {
        made = format!("{}, {made}", ranks(program, report));
    }
    let mut notes = vec![made];
    notes.extend(report.machine.clone());
    if !complete {
        notes.push("Not whole: the measurement was interrupted.".to_owned());
    }
    notes
}

fn axis_title(report: &BenchReport) -> String {
    let what = report.title.split('(').next().unwrap_or_default().trim();
    format!("{what} ({})", report.unit.label())
}

/// Logarithmic if the values span more than a factor of eight, except for percentages.
fn scale(unit: FigureUnit, places: &[Vec<CurveRow>]) -> Scale {
    let values = places.iter().flatten().map(|place| place.summary.median);
    let positive = values.filter(|value| *value > 0.0);
    let (low, high) = positive.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
        (low.min(value), high.max(value))
    });
    match unit {
        FigureUnit::Percent => Scale::Linear,
        _ if high / low > 8.0 => Scale::Log,
        _ => Scale::Linear,
    }
}

fn series(curve: &Curve, places: &[CurveRow], unit: FigureUnit) -> Series {
    let point = |place: &CurveRow| Point {
        x: place.size as f64,
        y: unit.shown(place.summary.median),
        spread: (place.summary.count > 1)
            .then(|| (unit.shown(place.summary.min), unit.shown(place.summary.max))),
    };
    let mut points: Vec<Point> = places.iter().map(point).collect();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    Series {
        name: curve.label.clone(),
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;
    use plot::testing::{has_text, look, of_class};

    fn program(name: &str) -> BenchProgram {
        PROGRAMS
            .into_iter()
            .find(|program| program.name == name)
            .unwrap()
    }

    fn report(name: &str, unit: &str, rows: &str) -> BenchReport {
        let text = format!(
            "{{\"benchmark\":\"{name}\",\"unit\":\"{unit}\",\"title\":\"Latency ({unit})\",\"ranks\":2,\"window\":1,\"buffers\":1,\
             \"library\":\"rmpi 0.1.0\",\"machine\":\"a CPU\",\"extras\":[\"Alone (us)\"],\"rows\":[{rows}]}}"
        );
        BenchReport::parse(&text).unwrap()
    }

    fn measured(reports: &[(&str, &[BenchReport])]) -> CurveData {
        let curve = |(label, reports): &(&str, &[BenchReport])| Curve {
            label: (*label).to_owned(),
            reports: reports.to_vec(),
        };
        CurveData {
            curves: reports.iter().map(curve).collect(),
            failures: Vec::new(),
            rounds: reports.first().map_or(0, |(_, reports)| reports.len()),
            part: None,
        }
    }

    const ROWS: &str = r#"{"size":8,"median":0.25,"p99":0.5,"iterations":9,"warm_up":1,"extras":[123.456]},{"size":65536,"median":250.5,"p99":300,"iterations":9,"warm_up":1,"extras":[1]}"#;

    #[test]
    fn one_mpi_has_the_columns_of_the_osu_benchmarks() {
        let report = report("latency", "us", ROWS);
        let head = head(&program("latency"), &report);
        assert!(
            head.contains("# 2 ranks, window 1, 1 buffer, median"),
            "{head}"
        );
        let columns = "# Size              Latency (us)          p99 (us)        Alone (us)    Iterations   Warm-up";
        assert_eq!(head.lines().last(), Some(columns));
        let line = row(&program("latency"), &report.rows[0]);
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["8", "0.250", "0.500", "123.46", "9", "1"]
        );
        assert_eq!(line.len(), columns.len());
    }

    #[test]
    fn several_mpis_are_columns_of_one_table() {
        let (one, other) = (
            report("latency", "us", ROWS),
            report("latency", "us", &ROWS.replace("0.25", "0.75")),
        );
        let all = measured(&[("rmpi", &[one.clone(), one]), ("mpich5 (best)", &[other])]);
        let text = side_by_side(&program("latency"), &all);
        assert!(
            text.contains("2 ranks, median of 2 rounds") && text.contains("mpich5 (best)"),
            "{text}"
        );
        let row = text.lines().find(|line| line.starts_with("8 ")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["8", "0.250", "0.750"]
        );
        let json: serde_json::Value =
            serde_json::from_str(&json_line(&program("latency"), &all, false)).unwrap();
        assert_eq!(
            (
                json["complete"].as_bool(),
                json["series"][1]["rows"][0]["median"].as_f64()
            ),
            (Some(false), Some(0.75))
        );
    }

    #[test]
    fn sizes_become_lines_and_names_become_dots() {
        let one = report("latency", "us", ROWS);
        let curves = measured(&[
            ("rmpi", std::slice::from_ref(&one)),
            ("other", std::slice::from_ref(&one)),
        ])
        .curves;
        look(&plot(&program("latency"), &curves, true), |document| {
            assert_eq!(of_class(document, "curve").len(), 2);
            assert!(has_text(document, "Latency (µs)") && has_text(document, "2 ranks, medians"));
        });
        let rows = r#"{"size":0,"name":"Pss after init","median":344,"worst":400}"#;
        let memory = measured(&[("rmpi", &[report("memory", "KiB", rows)])]).curves;
        look(&plot(&program("memory"), &memory, false), |document| {
            assert!(has_text(document, "Pss after init") && has_text(document, "344"));
            assert!(has_text(
                document,
                "Not whole: the measurement was interrupted."
            ));
        });
        let rows = r#"{"size":0,"median":12.5,"p99":13}"#;
        let barrier = measured(&[("rmpi", &[report("barrier", "us", rows)])]).curves;
        look(&plot(&program("barrier"), &barrier, true), |document| {
            assert_eq!(of_class(document, "curve").len(), 0);
            assert!(has_text(document, "barrier") && has_text(document, "12.5"));
        });
    }

    #[test]
    fn percentages_have_a_linear_scale_and_times_a_logarithmic_one() {
        let places = measured(&[("rmpi", &[report("latency", "us", ROWS)])]).curves[0].rows();
        assert_eq!(
            scale(FigureUnit::Us, std::slice::from_ref(&places)),
            Scale::Log
        );
        assert_eq!(scale(FigureUnit::Percent, &[places]), Scale::Linear);
    }

    #[test]
    fn without_curves_table_and_plot_are_empty() {
        let nothing = measured(&[]);
        assert_eq!(side_by_side(&program("latency"), &nothing), "");
        assert_eq!(plot(&program("latency"), &nothing.curves, true), "");
        assert!(json_line(&program("latency"), &nothing, false).contains("\"series\":[]"));
    }
}
