//! The page `docs/real-programs.md`, whose parts are written one at a time.

/// Replaces the part with this title on the page, or adds it at the end.
pub(crate) fn write_part(title: &str, part: &str) -> std::io::Result<()> {
    let path = crate::report::workspace_root().join("docs/real-programs.md");
    let page = std::fs::read_to_string(&path)?;
    std::fs::write(path, with_part(&page, title, part))
}

/// Returns the page with the part in place of the one with the same title.
fn with_part(page: &str, title: &str, part: &str) -> String {
    let part = part.trim_end();
    let Some((before, rest)) = page.split_once(&format!("\n## {title}\n")) else {
        return format!("{}\n\n{part}\n", page.trim_end());
    };
    let after = rest.find("\n## ").map_or("", |start| &rest[start..]);
    format!("{before}\n{part}\n{after}")
}

#[cfg(test)]
mod tests {
    use super::with_part;

    #[test]
    fn a_part_replaces_the_one_with_its_title() {
        let page = "# Page\n\nWords.\n\n## One\n\nold\n\n## Two\n\nkept\n";
        let with_one = with_part(page, "One", "## One\n\nnew\n");
        assert_eq!(
            with_one,
            "# Page\n\nWords.\n\n## One\n\nnew\n\n## Two\n\nkept\n"
        );
        assert_eq!(with_part(&with_one, "One", "## One\n\nnew\n"), with_one);
        assert_eq!(
            with_part("# Page\n", "One", "## One\n"),
            "# Page\n\n## One\n"
        );
        assert_eq!(
            with_part(page, "Two", "## Two\n\nnew\n"),
            page.replace("kept", "new")
        );
    }
}
