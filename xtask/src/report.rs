//! What a measurement says: to the terminal, and to a file in `target/bench/`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::args::Args;

/// The workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where reports are kept.
pub(crate) fn kept() -> PathBuf {
    root().join("target/bench")
}

/// A report in the making.
pub(crate) struct Report {
    name: &'static str,
    json: bool,
    strict: bool,
    text: String,
    values: Map<String, Value>,
    missed: usize,
}

impl Report {
    pub(crate) fn new(name: &'static str, args: &Args) -> Report {
        let (json, strict) = (args.flag("json"), args.flag("check"));
        let mut report = Report { name, json, strict, text: String::new(), values: Map::new(), missed: 0 };
        report.say(format!("# {name} ({})", machine()));
        report
    }

    pub(crate) fn say(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !self.json {
            println!("{line}");
        }
        let _infallible = writeln!(self.text, "{line}");
    }

    /// A figure, for machines.
    pub(crate) fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Says whether a target was met. A missed one counts against the run with `--check`.
    pub(crate) fn target(&mut self, met: bool, what: impl AsRef<str>) {
        self.missed += usize::from(!met);
        self.say(format!("  {} {}", if met { "ok    " } else { "MISSED" }, what.as_ref()));
    }

    /// Says whether something holds that must, `--check` or not.
    pub(crate) fn demand(&mut self, holds: bool, what: impl AsRef<str>) {
        self.strict |= !holds;
        self.target(holds, what);
    }

    /// Keeps the report; returns whether the run may pass.
    pub(crate) fn end(mut self) -> anyhow::Result<bool> {
        self.value("missed", self.missed);
        let (dir, values) = (kept(), Value::Object(self.values));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("{}.txt", self.name)), &self.text)?;
        std::fs::write(dir.join(format!("{}.json", self.name)), format!("{values:#}\n"))?;
        if self.json {
            println!("{values:#}");
        }
        Ok(!(self.strict && self.missed > 0))
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let build = if cfg!(debug_assertions) { "DEBUG BUILD" } else { "release build" };
    format!("{build}, {cores} cores, load {}", load.split(' ').next().unwrap_or("?"))
}

/// Times, from which the middle and the end are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    nanoseconds: Vec<u64>,
    sorted: bool,
}

impl Times {
    pub(crate) fn add(&mut self, it: Duration) {
        self.nanoseconds.push(u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        self.sorted = false;
    }

    pub(crate) fn extend(&mut self, other: Times) {
        self.nanoseconds.extend(other.nanoseconds);
        self.sorted = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.nanoseconds.len()
    }

    /// The time below which this part of all lies.
    pub(crate) fn at(&mut self, part: f64) -> Duration {
        if !self.sorted {
            self.nanoseconds.sort_unstable();
            self.sorted = true;
        }
        let last = self.nanoseconds.len().saturating_sub(1);
        let nth = (part * last as f64).round() as usize;
        Duration::from_nanos(self.nanoseconds.get(nth).copied().unwrap_or(0))
    }
}

/// The middle of a few numbers.
pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// A time as people compare them.
pub(crate) fn ms(it: Duration) -> String {
    format!("{:.2} ms", it.as_secs_f64() * 1e3)
}

/// A time of a decision.
pub(crate) fn us(it: Duration) -> String {
    format!("{:.1} µs", it.as_secs_f64() * 1e6)
}

/// A whole number with its thousands apart.
pub(crate) fn thousands(it: impl TryInto<u64>) -> String {
    let digits = it.try_into().unwrap_or(0).to_string();
    let mut out = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
