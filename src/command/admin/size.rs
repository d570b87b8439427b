//! Sizes and limits as they are typed and shown.

/// The units, the largest first.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A limit that was typed: bytes, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(pub(super) Option<u64>);

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Limit(None));
        }
        let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, unit) = unit.unwrap_or((text, 1));
        let bytes = number.trim_end().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        let wrong = || format!("{text:?} is no size; give bytes, such as 1073741824 or 1GiB, or `none`");
        bytes.map(|bytes| Limit(Some(bytes))).ok_or_else(wrong)
    }
}

/// A limit as people read it.
pub(super) fn shown(limit: Option<u64>) -> String {
    let Some(bytes) = limit else { return "none".to_owned() };
    let unit = UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes % unit == 0);
    unit.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_size_is_bytes_with_or_without_a_unit_or_none() {
        for (text, bytes) in [
            ("none", None),
            ("0", Some(0)),
            ("1073741824", Some(1 << 30)),
            ("3MiB", Some(3 << 20)),
            ("4 GiB", Some(4 << 30)),
            ("18446744073709551615", Some(u64::MAX)),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit, Limit(bytes), "{text}");
            assert_eq!(shown(limit.0).parse(), Ok(limit), "{text}");
        }
        for text in ["", "GiB", "-1", "1.5GiB", "1GB", "99999999TiB", "None", "1 000"] {
            assert!(text.parse::<Limit>().unwrap_err().contains("1GiB"), "{text:?}");
        }
    }
}
