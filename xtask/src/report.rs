//! The report of a measurement, on the terminal and in `target/bench/`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::args::Args;

/// Returns the root of the workspace.
///
/// Cargo names the directory at run time too, so a binary that was built in one clone and is run in
/// another one works on the clone that it is run in.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir.parent().unwrap_or(&manifest_dir).to_owned()
}

/// Returns the directory of stored reports.
pub(crate) fn reports_dir() -> PathBuf {
    workspace_root().join("target/bench")
}

/// A report that is being written.
pub(crate) struct Report {
    name: &'static str,
    json: bool,
    is_strict: bool,
    text: String,
    values: Map<String, Value>,
    missed_targets: usize,
}

impl Report {
    pub(crate) fn new(name: &'static str, args: &Args) -> Report {
        let (json, strict) = (args.flag("json"), args.flag("check"));
        let mut report = Report {
            name,
            json,
            is_strict: strict,
            text: String::new(),
            values: Map::new(),
            missed_targets: 0,
        };
        report.add_line(format!("# {name} ({})", machine_text()));
        report
    }

    pub(crate) fn add_line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !self.json {
            println!("{line}");
        }
        let _infallible = writeln!(self.text, "{line}");
    }

    /// Adds a figure to the machine-readable report.
    pub(crate) fn set_value(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Reports whether a target was met. With `--check`, a missed target fails the run.
    pub(crate) fn check_target(&mut self, met: bool, description: impl AsRef<str>) {
        self.missed_targets += usize::from(!met);
        self.add_line(format!(
            "  {} {}",
            if met { "ok    " } else { "MISSED" },
            description.as_ref()
        ));
    }

    /// Reports whether a requirement holds. A failed requirement always fails the run.
    pub(crate) fn require(&mut self, holds: bool, description: impl AsRef<str>) {
        self.is_strict |= !holds;
        self.check_target(holds, description);
    }

    /// Stores the report. Returns whether the run passes.
    pub(crate) fn finish(mut self) -> anyhow::Result<bool> {
        self.set_value("missed", self.missed_targets);
        let (dir, values) = (reports_dir(), Value::Object(self.values));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("{}.txt", self.name)), &self.text)?;
        std::fs::write(
            dir.join(format!("{}.json", self.name)),
            format!("{values:#}\n"),
        )?;
        if self.json {
            println!("{values:#}");
        }
        Ok(!(self.is_strict && self.missed_targets > 0))
    }
}

fn machine_text() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let build = if cfg!(debug_assertions) {
        "DEBUG BUILD"
    } else {
        "release build"
    };
    format!(
        "{build}, {cores} cores, load {}",
        load.split(' ').next().unwrap_or("?")
    )
}

/// A collection of durations, for their quantiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    nanoseconds: Vec<u64>,
    is_sorted: bool,
}

impl Times {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.nanoseconds
            .push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        self.is_sorted = false;
    }

    pub(crate) fn extend(&mut self, other: Times) {
        self.nanoseconds.extend(other.nanoseconds);
        self.is_sorted = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// Returns the quantile `part` of the durations.
    pub(crate) fn percentile(&mut self, part: f64) -> Duration {
        if !self.is_sorted {
            self.nanoseconds.sort_unstable();
            self.is_sorted = true;
        }
        let last = self.nanoseconds.len().saturating_sub(1);
        let nth = (part * last as f64).round() as usize;
        Duration::from_nanos(self.nanoseconds.get(nth).copied().unwrap_or(0))
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Formats a duration in milliseconds.
pub(crate) fn format_ms(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

/// Formats a duration in microseconds.
pub(crate) fn format_us(duration: Duration) -> String {
    format!("{:.1} µs", duration.as_secs_f64() * 1e6)
}

/// Formats a whole number with separated thousands.
pub(crate) fn format_thousands(try_into: impl TryInto<u64>) -> String {
    let digits = try_into.try_into().unwrap_or(0).to_string();
    let mut out = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
