//! A small universe of paths and patterns, in which overlap is found by testing every path.
//!
//! The checker must not rely on regatta-core's definition of overlap, so this is a second,
//! deliberately naive implementation: two patterns overlap if some path of the universe matches
//! both. The universe has such a path for every overlapping pair that is used here.

use regatta_core::pattern::Uri;

const DIR_COUNT: usize = 20;
const FILES_PER_DIR: usize = 16;

/// A set of patterns, one bit per pattern.
pub(crate) type PatternSet = [u64; 7];

/// The patterns that agents claim: first one per file, then the wider patterns.
pub(crate) struct PatternUniverse {
    pub(crate) uris: Vec<Uri>,
    /// The number of patterns that name one file.
    pub(crate) file_count: usize,
    /// The overlapping patterns of each pattern.
    pub(crate) overlaps: Vec<PatternSet>,
}

fn file_path(number: usize) -> String {
    format!(
        "f{number:02}.{}",
        if number.is_multiple_of(2) { "rs" } else { "md" }
    )
}

impl PatternUniverse {
    pub(crate) fn new() -> anyhow::Result<PatternUniverse> {
        let mut paths: Vec<String> = (0..DIR_COUNT)
            .flat_map(|dir| (0..FILES_PER_DIR).map(move |n| format!("d{dir:02}/{}", file_path(n))))
            .collect();
        let files = paths.len();
        for dir in 0..DIR_COUNT {
            paths.extend([
                format!("d{dir:02}/**"),
                format!("d{dir:02}/*.rs"),
                format!("d{dir:02}/*"),
            ]);
        }
        paths.extend((0..FILES_PER_DIR).map(|n| format!("*/{}", file_path(n))));
        paths.extend(
            [
                "**/f0?.rs",
                "d0?/f1?.md",
                "d?5/**",
                "d1*/f*3.md",
                "**/*7.md",
                "**",
            ]
            .map(String::from),
        );
        let points = sample_paths();
        let matched: Vec<Vec<bool>> = paths
            .iter()
            .map(|path| points.iter().map(|point| matches(path, point)).collect())
            .collect();
        let overlaps = matched
            .iter()
            .map(|a| {
                let mut row = PatternSet::default();
                for (nth, b) in matched.iter().enumerate() {
                    if a.iter().zip(b).any(|(a, b)| *a && *b) {
                        set_bit(&mut row, nth, true);
                    }
                }
                row
            })
            .collect();
        let uris = paths
            .iter()
            .map(|path| Uri::new(&format!("file://lake/{path}")))
            .collect::<Result<_, _>>()?;
        Ok(PatternUniverse {
            uris,
            file_count: files,
            overlaps,
        })
    }

    /// Returns in how many pairs core's overlap differs from this one.
    pub(crate) fn disagreements(&self) -> (usize, usize) {
        let (mut wrong, mut pairs) = (0, 0);
        for (a, row) in self.uris.iter().zip(&self.overlaps) {
            for (nth, b) in self.uris.iter().enumerate() {
                pairs += 1;
                wrong += usize::from(a.overlaps(b) != has_bit(row, nth));
            }
        }
        (wrong, pairs)
    }
}

pub(crate) fn set_bit(bits: &mut PatternSet, nth: usize, on: bool) {
    let mask = 1 << (nth % 64);
    if on {
        bits[nth / 64] |= mask
    } else {
        bits[nth / 64] &= !mask
    }
}

pub(crate) fn has_bit(bits: &PatternSet, nth: usize) -> bool {
    bits[nth / 64] & (1 << (nth % 64)) != 0
}

/// Returns the elements of both sets.
pub(crate) fn common_bits(a: PatternSet, b: PatternSet) -> impl Iterator<Item = usize> {
    (0..a.len() * 64).filter(move |bit| a[bit / 64] & b[bit / 64] & (1 << (bit % 64)) != 0)
}

/// Returns paths of one to three segments, including names that only a wildcard matches.
fn sample_paths() -> Vec<String> {
    let dirs: Vec<String> = (0..DIR_COUNT)
        .map(|dir| format!("d{dir:02}"))
        .chain(["zz".into()])
        .collect();
    let names: Vec<String> = (0..FILES_PER_DIR)
        .map(file_path)
        .chain(["f17.md", "zz.rs", "zz.md", "zz"].map(String::from))
        .collect();
    let mut points: Vec<String> = dirs.iter().chain(&names).cloned().collect();
    for dir in &dirs {
        points.extend(names.iter().map(|name| format!("{dir}/{name}")));
        points.extend(names.iter().map(|name| format!("{dir}/zz/{name}")));
    }
    points
}

fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), path.split('/').collect());
    segments_match(&pattern, &path)
}

fn segments_match(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) if segments_match(rest, path) => true,
        (["**", ..], [_, tail @ ..]) => segments_match(pattern, tail),
        ([glob, rest @ ..], [name, tail @ ..]) => {
            glob_matches(glob.as_bytes(), name.as_bytes()) && segments_match(rest, tail)
        }
        _ => false,
    }
}

fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    match (glob, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) if glob_matches(rest, name) => true,
        ([b'*', ..], [_, tail @ ..]) => glob_matches(glob, tail),
        ([b'?', rest @ ..], [_, tail @ ..]) => glob_matches(rest, tail),
        ([a, rest @ ..], [b, tail @ ..]) => a == b && glob_matches(rest, tail),
        _ => false,
    }
}
