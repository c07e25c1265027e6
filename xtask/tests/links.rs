//! Checks every relative link and anchor of the Markdown files.
//!
//! A link's target must exist in the repository, and an anchor must be a heading of its target.
//! Addresses with a scheme are not fetched. Every page of `docs` must be in the site's summary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
        .to_owned()
}

/// Adds the Markdown files below a directory, without build results and hidden directories other
/// than `.github`.
fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("the directory can be read")
        .flatten()
    {
        let (path, name) = (
            entry.path(),
            entry.file_name().to_string_lossy().into_owned(),
        );
        let is_hidden = name.starts_with('.') && name != ".github";
        if path.is_symlink() || is_hidden || name == "target" || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            add_pages(&path, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// Returns the lines of a page that are not inside a code block, without code in backticks.
fn prose(text: &str) -> Vec<String> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

/// Removes code in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of the links and pictures of a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(&line);
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            found.push(
                target
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            found.push(target.trim().to_owned());
        }
    }
    found
}

/// Returns the anchors of a page as GitHub and mdBook make them from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 {
            anchor
        } else {
            format!("{anchor}-{count}")
        });
        *count += 1;
    }
    anchors
}

/// Removes `.` and `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Returns why a link of a page is broken, or nothing if it works.
fn fault(page: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => normal(&page.parent().expect("a page is in a directory").join(path)),
    };
    if !target.exists() {
        return Some(format!("{link}: no such file"));
    }
    if anchor.is_empty() || target.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let other = fs::read_to_string(&target).expect("a page is UTF-8");
    let text = if target == page { text } else { &other };
    (!anchors(text).contains(anchor)).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_relative_link_and_anchor_works() {
    let mut pages = Vec::new();
    add_pages(&root(), &mut pages);
    let mut faults = Vec::new();
    let mut count = 0;
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page is UTF-8");
        for link in links(&text) {
            count += 1;
            if let Some(fault) = fault(page, &text, &link) {
                faults.push(format!("{}: {fault}", page.display()));
            }
        }
    }
    assert!(count > 300, "only {count} links were found");
    assert!(faults.is_empty(), "broken links:\n{}", faults.join("\n"));
}

#[test]
fn every_page_is_in_the_summary() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the site has a summary");
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
    let mut pages = Vec::new();
    add_pages(&docs, &mut pages);
    let missing: Vec<&PathBuf> = pages
        .iter()
        .filter(|page| !listed.contains(*page) && **page != docs.join("SUMMARY.md"))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

#[test]
fn broken_links_are_found() {
    let page = root().join("docs/adr/README.md");
    let text = "# A page\n## Give it work\n## Give it work\n[a](../agents.md) `[b](gone.md)`\n```\n[c](gone.md)\n```\n";
    assert_eq!(links(text), ["../agents.md"]);
    assert_eq!(
        anchors(text).into_iter().collect::<Vec<_>>(),
        ["a-page", "give-it-work", "give-it-work-1"]
    );
    assert_eq!(fault(&page, text, "../agents.md#give-it-work"), None);
    assert_eq!(fault(&page, text, "#give-it-work-1"), None);
    assert_eq!(fault(&page, text, "https://example.com/gone"), None);
    for broken in ["gone.md", "../agents.md#gone", "#gone"] {
        assert!(fault(&page, text, broken).is_some(), "{broken}");
    }
}
