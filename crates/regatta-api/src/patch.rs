//! Finds the files that a patch (a diff) changes, and counts the added and removed lines of each
//! file.

/// A file that a patch changes, with the number of added and removed lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchFile {
    /// The file's path as written in the patch. Do not trust the path, because an agent may have
    /// written the patch.
    pub path: String,
    pub added: usize,
    pub removed: usize,
}

/// Returns the files that a patch changes, with their numbers of added and removed lines. The `+++`
/// and `---` headers are not counted.
pub fn files_in_patch(patch: &str) -> Vec<PatchFile> {
    let mut files: Vec<PatchFile> = Vec::new();
    let mut is_in_hunk = false;
    for line in patch.lines() {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = names.rsplit(" b/").next().unwrap_or(names).to_owned();
            files.push(PatchFile {
                path,
                added: 0,
                removed: 0,
            });
            is_in_hunk = false;
            continue;
        }
        is_in_hunk |= line.starts_with("@@");
        let Some(file) = files.last_mut().filter(|_| is_in_hunk) else {
            continue;
        };
        match line.bytes().next() {
            Some(b'+') => file.added += 1,
            Some(b'-') => file.removed += 1,
            _ => {}
        }
    }
    files
}

/// Returns how many lines a patch adds and removes in total.
pub fn changed_lines(patch: &str) -> u64 {
    files_in_patch(patch)
        .iter()
        .map(|patch_file| (patch_file.added + patch_file.removed) as u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_of_a_patch_are_counted_without_headers() {
        let patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n+two\n \
            same\n--- a line that began with two dashes\ndiff --git a/b b/b\nnew file\n--- \
            /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+++more\n\\ No newline at end of file\n";
        let counted: Vec<_> = files_in_patch(patch)
            .into_iter()
            .map(|patch_file| (patch_file.path, patch_file.added, patch_file.removed))
            .collect();
        assert_eq!(counted, [("a".to_owned(), 1, 2), ("b".to_owned(), 1, 0)]);
        assert_eq!((changed_lines(patch), changed_lines("")), (4, 0));
    }
}
