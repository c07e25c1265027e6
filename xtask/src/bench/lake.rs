//! A small universe of paths and patterns, in which overlap is found by testing every path.
//!
//! The checker must not rely on regatta-core's definition of overlap, so this is a second,
//! deliberately naive implementation: two patterns overlap if some path of the universe matches
//! both. The universe has such a path for every overlapping pair that is used here.

use regatta_core::pattern::Uri;

const DIRS: usize = 20;
const FILES: usize = 16;

/// A set of patterns, one bit per pattern.
pub(crate) type Bits = [u64; 7];

/// The patterns that agents claim: first one per file, then the wider patterns.
pub(crate) struct Lake {
    pub(crate) uris: Vec<Uri>,
    /// The number of patterns that name one file.
    pub(crate) files: usize,
    /// The overlapping patterns of each pattern.
    pub(crate) overlaps: Vec<Bits>,
}

fn file(number: usize) -> String {
    format!("f{number:02}.{}", if number.is_multiple_of(2) { "rs" } else { "md" })
}

impl Lake {
    pub(crate) fn new() -> anyhow::Result<Lake> {
        let mut paths: Vec<String> =
            (0..DIRS).flat_map(|dir| (0..FILES).map(move |it| format!("d{dir:02}/{}", file(it)))).collect();
        let files = paths.len();
        for dir in 0..DIRS {
            paths.extend([format!("d{dir:02}/**"), format!("d{dir:02}/*.rs"), format!("d{dir:02}/*")]);
        }
        paths.extend((0..FILES).map(|it| format!("*/{}", file(it))));
        paths.extend(["**/f0?.rs", "d0?/f1?.md", "d?5/**", "d1*/f*3.md", "**/*7.md", "**"].map(String::from));
        let points = universe();
        let matched: Vec<Vec<bool>> =
            paths.iter().map(|it| points.iter().map(|point| matches(it, point)).collect()).collect();
        let overlaps = matched
            .iter()
            .map(|a| {
                let mut row = Bits::default();
                for (nth, b) in matched.iter().enumerate() {
                    if a.iter().zip(b).any(|(a, b)| *a && *b) {
                        set(&mut row, nth, true);
                    }
                }
                row
            })
            .collect();
        let uris = paths.iter().map(|it| Uri::new(&format!("file://lake/{it}"))).collect::<Result<_, _>>()?;
        Ok(Lake { uris, files, overlaps })
    }

    /// Returns in how many pairs core's overlap differs from this one.
    pub(crate) fn disagreements(&self) -> (usize, usize) {
        let (mut wrong, mut pairs) = (0, 0);
        for (a, row) in self.uris.iter().zip(&self.overlaps) {
            for (nth, b) in self.uris.iter().enumerate() {
                pairs += 1;
                wrong += usize::from(a.overlaps(b) != has(row, nth));
            }
        }
        (wrong, pairs)
    }
}

pub(crate) fn set(bits: &mut Bits, nth: usize, on: bool) {
    let mask = 1 << (nth % 64);
    if on { bits[nth / 64] |= mask } else { bits[nth / 64] &= !mask }
}

pub(crate) fn has(bits: &Bits, nth: usize) -> bool {
    bits[nth / 64] & (1 << (nth % 64)) != 0
}

/// Returns the elements of both sets.
pub(crate) fn common(a: Bits, b: Bits) -> impl Iterator<Item = usize> {
    (0..a.len() * 64).filter(move |it| a[it / 64] & b[it / 64] & (1 << (it % 64)) != 0)
}

/// Returns paths of one to three segments, including names that only a wildcard matches.
fn universe() -> Vec<String> {
    let dirs: Vec<String> = (0..DIRS).map(|it| format!("d{it:02}")).chain(["zz".into()]).collect();
    let names: Vec<String> = (0..FILES).map(file).chain(["f17.md", "zz.rs", "zz.md", "zz"].map(String::from)).collect();
    let mut points: Vec<String> = dirs.iter().chain(&names).cloned().collect();
    for dir in &dirs {
        points.extend(names.iter().map(|it| format!("{dir}/{it}")));
        points.extend(names.iter().map(|it| format!("{dir}/zz/{it}")));
    }
    points
}

fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    segments(&pattern, &path)
}

fn segments(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) if segments(rest, path) => true,
        (["**", ..], [_, tail @ ..]) => segments(pattern, tail),
        ([glob, rest @ ..], [name, tail @ ..]) => letters(glob.as_bytes(), name.as_bytes()) && segments(rest, tail),
        _ => false,
    }
}

fn letters(glob: &[u8], name: &[u8]) -> bool {
    match (glob, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) if letters(rest, name) => true,
        ([b'*', ..], [_, tail @ ..]) => letters(glob, tail),
        ([b'?', rest @ ..], [_, tail @ ..]) => letters(rest, tail),
        ([a, rest @ ..], [b, tail @ ..]) => a == b && letters(rest, tail),
        _ => false,
    }
}
