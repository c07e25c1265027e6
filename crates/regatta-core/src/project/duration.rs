//! Reads and writes durations as people write them: `500ms`, `30s`, `10m`, `2h`, `1d`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A duration of whole milliseconds, which is read and written in a form such as `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Millis(u64);

crate::ids::described!(Millis, "500ms, 30s, 10m, 2h or 1d");

impl Millis {
    pub const fn new(ms: u64) -> Millis {
        Millis(ms)
    }
    pub const fn seconds(seconds: u64) -> Millis {
        Millis(seconds * 1_000)
    }
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// Parses a duration such as `30s`. A number without a unit means seconds.
    pub fn parse(text: &str) -> Result<Millis, String> {
        let text = text.trim();
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit.trim() {
            "ms" => 1.0,
            "" | "s" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => {
                return Err(format!(
                    "{text:?} is not a duration; write 500ms, 30s, 10m, 2h or 1d"
                ));
            }
        };
        // The limit applies to the rounded number, because the rounded number is stored and must be
        // accepted when it is read again (D9).
        match number
            .parse::<f64>()
            .map(|number| (number * factor).round())
        {
            Ok(ms) if ms.is_finite() && ms < 1e15 => Ok(Millis(ms as u64)),
            _ => Err(format!(
                "{text:?} is not a duration; write 500ms, 30s, 10m, 2h or 1d"
            )),
        }
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
        ];
        match units
            .iter()
            .find(|unit| self.0 > 0 && self.0.is_multiple_of(unit.0))
        {
            Some((size, unit)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}ms", self.0),
        }
    }
}

impl Serialize for Millis {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl TryFrom<String> for Millis {
    type Error = String;
    fn try_from(text: String) -> Result<Millis, String> {
        Millis::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_with_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("7", 7_000),
            ("0", 0),
            ("999999999999999.4ms", 999_999_999_999_999),
        ] {
            let duration = Millis::parse(text).unwrap();
            assert_eq!(duration.ms(), ms, "{text}");
            assert_eq!(
                Millis::parse(&duration.to_string()),
                Ok(duration),
                "{text} is not read back"
            );
        }
        for bad in [
            "",
            "s",
            "-1s",
            "1x",
            "1e99",
            "NaN",
            "1.2.3s",
            "999999999999999d",
            "999999999999999.6ms",
        ] {
            assert!(Millis::parse(bad).is_err(), "{bad}");
        }
    }
}
