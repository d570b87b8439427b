//! What is printed: one row, with its limit beside it.

use forebay_store::Durability;
use serde_json::json;

/// One measure, its limit and its goal.
#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) measure: String,
    /// What the store was opened with.
    pub(crate) level: Durability,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) limit: f64,
    pub(crate) limit_kind: &'static str,
    pub(crate) goal: Goal,
    pub(crate) digest: u64,
}

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Nothing: the row is there to be seen.
    None,
    /// At least this much, in the row's unit.
    AtLeast(f64),
    /// At most this much, in the row's unit.
    AtMost(f64),
    /// At least this part of the limit.
    RatioAtLeast(f64),
    /// At most so many times the limit.
    RatioAtMost(f64),
}

impl Row {
    /// A value with its unit and its limit with its kind, of a store at its default level.
    pub fn new(
        measure: String,
        (value, unit): (f64, &'static str),
        (limit, limit_kind): (f64, &'static str),
        goal: Goal,
    ) -> Self {
        Row { measure, level: Durability::default(), value, unit, limit, limit_kind, goal, digest: 0 }
    }

    /// The same with a hash of what came out.
    pub fn of(self, digest: u64) -> Self {
        Row { digest, ..self }
    }

    /// What is measured.
    pub fn measure(&self) -> &str {
        &self.measure
    }

    /// The value over the limit. More is better for throughput, less is better for time.
    pub fn ratio(&self) -> f64 {
        self.value / self.limit
    }

    /// Whether the goal is met; `None` where there is none.
    pub fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::None => None,
            Goal::AtLeast(least) => Some(self.value >= least),
            Goal::AtMost(most) => Some(self.value <= most),
            Goal::RatioAtLeast(least) => Some(self.ratio() >= least),
            Goal::RatioAtMost(most) => Some(self.ratio() <= most),
        }
    }

    /// The goal in words; `None` where there is none.
    pub fn goal(&self) -> Option<String> {
        let unit = self.unit;
        match self.goal {
            Goal::None => None,
            Goal::AtLeast(least) => Some(format!("value >= {} {unit}", digits(least))),
            Goal::AtMost(most) => Some(format!("value <= {} {unit}", digits(most))),
            Goal::RatioAtLeast(least) => Some(format!("ratio >= {least}")),
            Goal::RatioAtMost(most) => Some(format!("ratio <= {most}")),
        }
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        json!({
            "measure": self.measure,
            "level": self.level.as_str(),
            "value": self.value,
            "unit": self.unit,
            "limit": self.limit,
            "limit_kind": self.limit_kind,
            "ratio": self.ratio(),
            "goal": self.goal(),
            "met": self.met(),
            "digest": format!("{:016x}", self.digest),
        })
        .to_string()
    }

    /// A hash of what came out of the work, the same in every run of the same scale.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn cells(&self) -> [String; 8] {
        let met = match self.met() {
            None => "",
            Some(true) => "yes",
            Some(false) => "no",
        };
        [
            self.measure.clone(),
            self.level.as_str().to_owned(),
            format!("{} {}", digits(self.value), self.unit),
            digits(self.limit),
            format!("{:.2}", self.ratio()),
            self.goal().unwrap_or_default(),
            met.to_owned(),
            self.limit_kind.to_owned(),
        ]
    }
}

/// The rows as a table in Markdown.
pub fn table(rows: &[Row]) -> String {
    let head =
        ["measure", "level", "value", "limit", "ratio", "goal", "met", "the limit is"].map(str::to_owned);
    let mut lines = vec![head];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|cells| cells[column].len()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for (at, cells) in lines.iter().enumerate() {
        for (cell, width) in cells.iter().zip(widths) {
            text += &format!("| {cell:width$} ");
        }
        text += "|\n";
        if at == 0 {
            widths.iter().for_each(|&width| text += &format!("| {:-<width$} ", ""));
            text += "|\n";
        }
    }
    text
}

/// Three digits that count, with separators.
fn digits(value: f64) -> String {
    if value < 100.0 {
        let decimals = (2 - value.abs().max(1e-3).log10().floor() as i32).clamp(0, 4) as usize;
        let text = format!("{value:.decimals$}");
        let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        return short.to_owned();
    }
    let plain = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let cases =
            [(0.0123, "0.0123"), (7.0, "7"), (19.96, "20"), (123.4, "123"), (1_234_567.0, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn a_goal_is_judged_on_the_side_it_names() {
        let row = |goal| Row {
            measure: "m".into(),
            level: Durability::Logged,
            value: 3.0,
            unit: "us",
            limit: 2.0,
            limit_kind: "k",
            goal,
            digest: 1,
        };
        assert_eq!(row(Goal::None).met(), None);
        assert_eq!(row(Goal::AtMost(2.9)).met(), Some(false));
        assert_eq!(row(Goal::AtLeast(2.9)).met(), Some(true));
        assert_eq!(row(Goal::RatioAtMost(1.5)).met(), Some(true));
        assert_eq!(row(Goal::RatioAtLeast(1.6)).met(), Some(false));
    }
}
