//! Builds the documentation site with mdBook and checks every link of the built pages.
//!
//! A page may link to files outside of `docs`, such as a test. mdBook cannot follow these links, so
//! it gets a copy of `docs` in which they lead to the repository's address on the web
//! (`--repository https://example.com/regatta`), or are plain text if no address is given.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::report::workspace_root;

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let target = workspace_root().join("target");
    let (source, site) = (target.join("site-source"), target.join("site"));
    for directory in [&source, &site] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    copy_pages(
        &workspace_root().join("docs"),
        Path::new(""),
        &source.join("docs"),
        args.text("repository"),
    )?;
    fs::copy(workspace_root().join("book.toml"), source.join("book.toml"))?;
    let mdbook = args.text("binary").unwrap_or("mdbook");
    let built = Command::new(mdbook)
        .args(["build", "--dest-dir"])
        .args([&site, &source])
        .status()
        .with_context(|| format!("could not run {mdbook}: cargo install mdbook"))?;
    ensure!(built.success(), "mdbook ended with {built}");
    let broken = broken_links(&site)?;
    for link in &broken {
        println!("broken link: {link}");
    }
    println!("{}", site.join("index.html").display());
    Ok(broken.is_empty())
}

/// Copies a directory of `docs`. `below` is its path in `docs`.
fn copy_pages(
    from: &Path,
    below: &Path,
    target: &Path,
    repository: Option<&str>,
) -> anyhow::Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        // mdBook names the page of README.md index.html, but does not change the links to it.
        let copy = target.join(if name == "README.md" {
            "index.md".as_ref()
        } else {
            name.as_os_str()
        });
        if path.is_dir() {
            copy_pages(&path, &below.join(&name), &copy, repository)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path)?;
            fs::write(copy, with_outside_links(&text, below, repository))?;
        } else {
            fs::copy(&path, &copy)?;
        }
    }
    Ok(())
}

/// Replaces the links of a page that lead out of `docs`.
fn with_outside_links(text: &str, below: &Path, repository: Option<&str>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let Some(length) = rest[middle + 2..].find(')') else {
            break;
        };
        let target = &rest[middle + 2..middle + 2 + length];
        let end = middle + 2 + length + 1;
        let outside = outside_path(below, target);
        match (outside, repository, rest[..middle].rfind('[')) {
            (Some(path), Some(url), _) => {
                result.push_str(&rest[..middle + 2]);
                result.push_str(&format!("{url}/blob/main/{path})"));
            }
            (Some(_), None, Some(start)) => {
                result.push_str(&rest[..start]);
                result.push_str(&rest[start + 1..middle]);
            }
            _ => {
                result.push_str(&rest[..middle + 2]);
                result.push_str(&target.replace("README.md", "index.md"));
                result.push(')');
            }
        }
        rest = &rest[end..];
    }
    result + rest
}

/// Returns a link's path from the top of the repository if it leads out of `docs`.
fn outside_path(below: &Path, link: &str) -> Option<String> {
    if link.contains("://") || !link.starts_with("..") {
        return None;
    }
    let path = normal(&Path::new("docs").join(below).join(link));
    let path = path.to_string_lossy().into_owned();
    (!path.starts_with("docs/")).then_some(path)
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

/// Returns the links of the built pages whose file or heading does not exist.
fn broken_links(site: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read_html(site, &mut pages)?;
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, html)| (path, attributes(html, "id")))
        .collect();
    let mut broken = Vec::new();
    for (page, html) in &pages {
        // The page of all pages and the error page repeat the links of others.
        if page.ends_with("print.html") || page.ends_with("404.html") {
            continue;
        }
        for link in attributes(html, "href")
            .into_iter()
            .chain(attributes(html, "src"))
        {
            if link.contains(':') || link.is_empty() {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let directory = page.parent().expect("a page is in a directory");
            let target = if path.is_empty() {
                page.clone()
            } else {
                normal(&directory.join(path))
            };
            let has_anchor = anchor.is_empty()
                || anchors
                    .get(&target)
                    .is_none_or(|known| known.contains(anchor));
            if !target.exists() || !has_anchor {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    Ok(broken)
}

fn read_html(directory: &Path, pages: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read_html(&path, pages)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            pages.insert(path.clone(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Returns the values of an attribute in a page.
fn attributes<'a>(html: &'a str, name: &str) -> BTreeSet<&'a str> {
    let start = format!(" {name}=\"");
    html.split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_site_lead_to_the_repository() {
        let text = "[a](plans.md) [b](../SECURITY.md#x) [c](https://example.com)";
        let url = "https://example.com/regatta";
        assert_eq!(
            with_outside_links(text, Path::new(""), Some(url)),
            "[a](plans.md) [b](https://example.com/regatta/blob/main/SECURITY.md#x) [c](https://example.com)"
        );
        assert_eq!(
            with_outside_links(text, Path::new(""), None),
            "[a](plans.md) b [c](https://example.com)"
        );
        let below = Path::new("recipes");
        assert_eq!(
            with_outside_links("[a](../plans.md)", below, None),
            "[a](../plans.md)"
        );
        assert_eq!(with_outside_links("[a](../../x.rs)", below, None), "a");
    }
}
