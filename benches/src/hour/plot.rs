//! The picture: memory, disk and speed over time.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::sample::Sample;
use crate::Outcome;

const SIZE: (u32, u32) = (1100, 980);
const TITLE_HEIGHT: u32 = 60;
/// Where the panels' axes stand.
const LEFT: i32 = 82;
const INK: RGBColor = RGBColor(40, 44, 52);
const PALE: RGBColor = RGBColor(110, 116, 128);
const GRID: RGBColor = RGBColor(232, 234, 238);
const WARM_UP: RGBColor = RGBColor(245, 245, 247);
/// Colours that differ in brightness as well.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 90, 156), RGBColor(213, 94, 0), RGBColor(0, 140, 105), RGBColor(120, 94, 160)];

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of a panel: its name, and its value in the panel's unit.
struct Line {
    name: &'static str,
    of: fn(&Sample) -> f64,
}

/// One panel.
struct Panel {
    title: &'static str,
    unit: &'static str,
    lines: &'static [Line],
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "memory, no file's",
        unit: "MB",
        lines: &[
            Line { name: "resident", of: |s| s.anonymous_bytes / 1e6 },
            Line { name: "by the store's own count", of: |s| s.store_bytes / 1e6 },
        ],
    },
    Panel {
        title: "disk, allocated blocks",
        unit: "GB",
        lines: &[
            Line { name: "all", of: |s| s.disk_bytes / 1e9 },
            Line { name: "extents", of: |s| s.extent_disk_bytes / 1e9 },
            Line { name: "extents mapped and resident", of: |s| s.mapped_bytes / 1e9 },
            Line { name: "log", of: |s| s.log_disk_bytes / 1e9 },
        ],
    },
    Panel {
        title: "samples written a second",
        unit: "thousand",
        lines: &[Line { name: "since the look before", of: |s| s.speed / 1e3 }],
    },
];

/// Draws a run whose first `warm_up` seconds do not count.
pub(super) fn draw(path: &Path, samples: &[Sample], warm_up: f64) -> Outcome<()> {
    let all = SVGBackend::new(path, SIZE).into_drawing_area();
    all.fill(&WHITE).map_err(told)?;
    let (title, panels) = all.split_vertically(TITLE_HEIGHT);
    write_title(&title, samples)?;
    for (panel, area) in PANELS.iter().zip(panels.split_evenly((PANELS.len(), 1))) {
        draw_panel(panel, &area, samples, warm_up)?;
    }
    all.present().map_err(told)
}

fn write_title(area: &Drawing<'_>, samples: &[Sample]) -> Outcome<()> {
    let last = samples.last().copied().unwrap_or_default();
    let head = format!(
        "Writing and retiring for {:.0} minutes: {:.1} million samples, {:.0} steps",
        last.seconds / 60.0,
        last.samples / 1e6,
        last.steps
    );
    area.draw(&Text::new(head, (LEFT, 14), font(20, INK))).map_err(told)?;
    let foot = "grey: warming up, not part of the slopes";
    area.draw(&Text::new(foot, (LEFT, 40), font(13, PALE))).map_err(told)
}

fn draw_panel(panel: &Panel, area: &Drawing<'_>, samples: &[Sample], warm_up: f64) -> Outcome<()> {
    let minutes = |sample: &Sample| sample.seconds / 60.0;
    let until = samples.last().map_or(0.0, minutes).max(1e-3);
    let values = panel.lines.iter().flat_map(|line| samples.iter().map(line.of));
    let most = values.fold(0.0, f64::max).max(1e-3) * 1.08;
    write_names(panel, area)?;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .margin_top(34)
        .x_label_area_size(34)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..until, 0.0..most)
        .map_err(told)?;
    let grey = [(0.0, 0.0), (warm_up / 60.0, most)];
    chart.draw_series([Rectangle::new(grey, WARM_UP.filled())]).map_err(told)?;
    let label = |value: &f64| number(*value, most);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("minutes")
        .y_desc(panel.unit)
        .axis_style(PALE)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID);
    mesh.y_label_formatter(&label).x_labels(13).y_labels(6);
    mesh.label_style(font(13, INK)).axis_desc_style(font(13, PALE)).draw().map_err(told)?;
    for (line, colour) in panel.lines.iter().zip(COLOURS) {
        let points = samples.iter().skip(1).map(|sample| (minutes(sample), (line.of)(sample)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(told)?;
    }
    Ok(())
}

/// The panel's title, and behind it the names of its lines where there are several: above the lines, in nobody's way.
fn write_names(panel: &Panel, area: &Drawing<'_>) -> Outcome<()> {
    area.draw(&Text::new(panel.title, (LEFT, 12), font(16, INK))).map_err(told)?;
    let mut at = LEFT + 240;
    for (line, colour) in panel.lines.iter().zip(COLOURS).filter(|_| panel.lines.len() > 1) {
        let dash = PathElement::new([(at, 20), (at + 20, 20)], colour.stroke_width(3));
        area.draw(&dash).map_err(told)?;
        area.draw(&Text::new(line.name, (at + 27, 13), font(13, INK))).map_err(told)?;
        at += 27 + 8 * line.name.len() as i32 + 16;
    }
    Ok(())
}

fn font<'a>(size: u32, colour: RGBColor) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(&colour)
}

/// As many decimals as the axis needs.
fn number(value: f64, most: f64) -> String {
    if most < 1.0 {
        format!("{value:.2}")
    } else if most < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn told(error: impl std::fmt::Display) -> Box<dyn std::error::Error + Send + Sync> {
    format!("the picture: {error}").into()
}
