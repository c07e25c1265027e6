//! Reads and writes git objects of the vault (Regatta's own repository of a project) without
//! starting a git process for each object.
//!
//! Three git processes keep running: one reads objects, one writes commits, and one writes trees.
//! New objects are first written to a scratch directory, without waiting for the disk.
//! [`ObjectStore::adopt`] then moves all of them into the vault and waits for the disk once. So a
//! power cut leaves no half-written object in the vault, and a merge that is not used leaves no
//! garbage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::collections::{BTreeSet, HashMap};

use regatta_core::ids::CommitId;
use regatta_engine::ports::git::{Authorship, GitError};

use crate::git_command::{GitCommand, GitProcess, path_to_text};
use crate::{GitAdapter, disk, errors};

/// The number of queries after which a running git process is replaced by a new one, because git
/// keeps in memory every commit that it has read.
const MAX_QUERIES_PER_PROCESS: u32 = 5_000;
/// The largest number of unused object stores, with their running git processes, that are kept for
/// each vault (Regatta's own repository of a project).
const MAX_IDLE_PROCESSES: usize = 2;

/// The parts of a git commit that this crate needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitObject {
    pub(crate) tree: CommitId,
    pub(crate) parents: Vec<CommitId>,
    pub(crate) message: String,
}

/// One entry of a git tree: a file, a directory, a link or a submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    /// The kind and the permissions of the entry as git writes them: `100644`, `100755`, `120000`,
    /// `160000` or `40000`.
    pub(crate) mode: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) id: CommitId,
}

pub(crate) const DIRECTORY: u32 = 0o40000;
pub(crate) const GITLINK: u32 = 0o160_000;

/// Gives one caller at a time access to the git objects of a vault (Regatta's own repository of a
/// project).
#[derive(Debug)]
pub(crate) struct ObjectStore {
    vault: PathBuf,
    scratch: PathBuf,
    reader: GitProcess,
    writer: GitProcess,
    /// The running git process that writes git trees.
    tree_writer: GitProcess,
    /// Commits that serve only as input for a merge, and must not be moved into the vault
    /// (Regatta's own repository).
    merge_only_commits: Vec<CommitId>,
    query_count: u32,
    /// Recently used objects. The cache saves time, because a landing reads the same few
    /// directories several times.
    cache: ObjectCache,
}

/// A cache of git objects. Its entries need no expiry time, because an object never changes.
#[derive(Debug, Default)]
struct ObjectCache {
    commits: HashMap<CommitId, CommitObject>,
    trees: HashMap<CommitId, Vec<TreeEntry>>,
    /// The number of entries in all cached trees together.
    tree_entry_count: usize,
}

impl ObjectCache {
    /// The largest number of cached commits. A further commit clears all cached commits. This limit
    /// and the limit for tree entries keep the cache at a few megabytes.
    const MAX_COMMITS: usize = 1_000;
    const MAX_TREE_ENTRIES: usize = 40_000;

    fn add_commit(&mut self, id: &CommitId, commit: &CommitObject) {
        if self.commits.len() >= ObjectCache::MAX_COMMITS {
            self.commits.clear();
        }
        self.commits.insert(id.clone(), commit.clone());
    }

    fn add_tree(&mut self, id: &CommitId, entries: &[TreeEntry]) {
        if self.tree_entry_count + entries.len() > ObjectCache::MAX_TREE_ENTRIES {
            self.trees.clear();
            self.tree_entry_count = 0;
        }
        if entries.len() <= ObjectCache::MAX_TREE_ENTRIES
            && self.trees.insert(id.clone(), entries.to_vec()).is_none()
        {
            self.tree_entry_count += entries.len();
        }
    }
}

/// The unused object stores, with their running git processes, of each vault (Regatta's own
/// repository of a project).
#[derive(Debug, Default)]
pub(crate) struct ProcessPool(Mutex<HashMap<PathBuf, Vec<ObjectStore>>>);

impl ProcessPool {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Vec<ObjectStore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all git processes that are kept running but are not in use.
    pub(crate) fn end_all(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle);
    }
}

impl GitAdapter {
    /// Runs `action` with access to the objects of the vault (Regatta's own repository). Discards
    /// the objects that `action` wrote and did not move into the vault with [`ObjectStore::adopt`].
    pub(crate) fn with_object_store<T>(
        &self,
        vault: &Path,
        action: impl FnOnce(&mut ObjectStore) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let idle = self.processes.lock().get_mut(vault).and_then(Vec::pop);
        let mut odb = match idle {
            Some(odb) => odb,
            None => self.open_object_store(vault)?,
        };
        let result = action(&mut odb)?;
        odb.discard()?;
        let mut table = self.processes.lock();
        let idle = table.entry(vault.to_path_buf()).or_default();
        if odb.query_count < MAX_QUERIES_PER_PROCESS && idle.len() < MAX_IDLE_PROCESSES {
            idle.push(odb);
        }
        Ok(result)
    }

    fn open_object_store(&self, vault: &Path) -> Result<ObjectStore, GitError> {
        let scratch = self.layout.scratch_objects(vault);
        self.layout.remove_dead_scratch(vault);
        disk::remove_tree(&scratch)?;
        disk::make_dirs(&scratch)?;
        let reader = self
            .git
            .in_vault(vault, "read the vault")
            .args(["cat-file", "--batch-command"]);
        let writer = |kind: &str| {
            let call = self.git.in_vault(vault, "write an object").without_sync();
            let call = call.args([
                "hash-object",
                "-t",
                kind,
                "-w",
                "--no-filters",
                "--stdin-paths",
            ]);
            call.object_dirs(&scratch, &vault.join("objects"))
                .start_process()
        };
        Ok(ObjectStore {
            // The reading process must also find new objects, which are in the scratch directory
            // and not in the vault (Regatta's own repository) yet.
            reader: reader.alternate_objects(&scratch).start_process()?,
            writer: writer("commit")?,
            tree_writer: writer("tree")?,
            vault: vault.to_path_buf(),
            scratch,
            merge_only_commits: Vec::new(),
            query_count: 0,
            cache: ObjectCache::default(),
        })
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // If the scratch directory cannot be removed now, it is removed when its name is used
        // again.
        let _ = disk::remove_tree(&self.scratch);
    }
}

impl ObjectStore {
    /// Makes the git command `call` write its objects into this store's scratch directory.
    pub(crate) fn write_to_scratch(&self, call: GitCommand) -> GitCommand {
        call.object_dirs(&self.scratch, &self.vault.join("objects"))
    }

    /// Returns the id of the object with this name, or `None` if there is no such object. `name`
    /// must be a full ref name or an object id.
    pub(crate) fn find_object(&mut self, name: &str) -> Result<Option<CommitId>, GitError> {
        self.query_count += 1;
        self.reader.send(format!("info {name}\n").as_bytes())?;
        Ok(parse_header(&self.reader.read_line()?).map(|(id, _, _)| id))
    }

    fn read_object(&mut self, name: &str, kind: &str) -> Result<Option<Vec<u8>>, GitError> {
        self.query_count += 1;
        self.reader.send(format!("contents {name}\n").as_bytes())?;
        let Some((_, found_kind, size)) = parse_header(&self.reader.read_line()?) else {
            return Ok(None);
        };
        let mut bytes = self.reader.read_bytes(size + 1)?;
        bytes.pop();
        Ok((found_kind == kind).then_some(bytes))
    }

    /// Reads the git commit with this id.
    pub(crate) fn commit(&mut self, id: &CommitId) -> Result<CommitObject, GitError> {
        if let Some(cached) = self.cache.commits.get(id) {
            return Ok(cached.clone());
        }
        let bytes = self
            .read_object(id.as_str(), "commit")?
            .ok_or_else(|| errors::no_such_commit(id))?;
        let commit = parse_commit(&bytes).ok_or_else(|| errors::unexpected("read a commit"))?;
        self.cache.add_commit(id, &commit);
        Ok(commit)
    }

    /// Returns the entries of a git tree.
    pub(crate) fn tree(&mut self, id: &CommitId) -> Result<Vec<TreeEntry>, GitError> {
        self.trees([id].into_iter())?
            .pop()
            .ok_or_else(|| errors::no_such_object(id))
    }

    /// Reads several trees, in the order of `ids`. Sends all queries to git before it reads the
    /// first answer.
    pub(crate) fn trees<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a CommitId>,
    ) -> Result<Vec<Vec<TreeEntry>>, GitError> {
        let ids: Vec<&CommitId> = ids.collect();
        let uncached: Vec<&CommitId> = ids
            .iter()
            .copied()
            .filter(|id| !self.cache.trees.contains_key(*id))
            .collect();
        self.query_count += uncached.len() as u32;
        // All queries are sent before the first answer is read. The queries fit into the buffer of
        // the pipe, so neither process blocks.
        let queries: String = uncached
            .iter()
            .map(|id| format!("contents {id}\n"))
            .collect();
        self.reader.send(queries.as_bytes())?;
        let mut read_trees = HashMap::new();
        for id in uncached {
            let (_, kind, size) = parse_header(&self.reader.read_line()?)
                .ok_or_else(|| errors::no_such_object(id))?;
            let mut bytes = self.reader.read_bytes(size + 1)?;
            bytes.pop();
            let entries = (kind == "tree")
                .then(|| parse_tree(&bytes, id.as_str().len() / 2))
                .flatten();
            read_trees.insert(
                id,
                entries.ok_or_else(|| errors::unexpected("read a tree"))?,
            );
        }
        let tree_of = |id: &CommitId| {
            read_trees
                .get(id)
                .or_else(|| self.cache.trees.get(id))
                .cloned()
        };
        let trees = ids
            .iter()
            .map(|id| tree_of(id).ok_or_else(|| errors::no_such_object(id)))
            .collect();
        for (id, entries) in read_trees {
            self.cache.add_tree(id, &entries);
        }
        trees
    }

    /// Returns the content of the file whose git object has this id.
    pub(crate) fn blob(&mut self, id: &CommitId) -> Result<Vec<u8>, GitError> {
        self.read_object(id.as_str(), "blob")?
            .ok_or_else(|| errors::no_such_object(id))
    }

    /// Writes a commit. The same arguments always give the same commit.
    pub(crate) fn write_commit(
        &mut self,
        tree: &CommitId,
        parents: &[&CommitId],
        authorship: &Authorship,
    ) -> Result<CommitId, GitError> {
        self.query_count += 1;
        let mut text = format!("tree {tree}\n");
        for parent in parents {
            text += &format!("parent {parent}\n");
        }
        let signature = format!(
            "{} <{}> {} +0000",
            sanitize_name(&authorship.name),
            sanitize(&authorship.email),
            authorship.unix_seconds
        );
        text += &format!(
            "author {signature}\ncommitter {signature}\n\n{}\n",
            authorship.message.replace('\0', "").trim_end()
        );
        self.write_whole_commit(text.as_bytes())
    }

    fn write_whole_commit(&mut self, bytes: &[u8]) -> Result<CommitId, GitError> {
        let name = self.write_content_file("commit", bytes)?;
        self.writer.send(format!("{name}\n").as_bytes())?;
        let id = CommitId::new(&self.writer.read_line()?)
            .map_err(|_| errors::unexpected("make a commit"))?;
        if let Some(commit) = parse_commit(bytes) {
            self.cache.add_commit(&id, &commit);
        }
        Ok(id)
    }

    /// Writes a copy of the commit `id` with the given tree and first parent in place of its own.
    pub(crate) fn rewrite_commit(
        &mut self,
        id: &CommitId,
        tree: &CommitId,
        parent: &CommitId,
    ) -> Result<CommitId, GitError> {
        self.query_count += 1;
        let bytes = self
            .read_object(id.as_str(), "commit")?
            .ok_or_else(|| errors::no_such_commit(id))?;
        let bytes = rewrite_commit_bytes(&bytes, tree, parent)
            .ok_or_else(|| errors::unexpected("read a commit"))?;
        self.write_whole_commit(&bytes)
    }

    /// Writes a git tree with the given entries, which may be in any order.
    pub(crate) fn write_tree(&mut self, mut entries: Vec<TreeEntry>) -> Result<CommitId, GitError> {
        self.query_count += 1;
        // Git sorts the entries of a tree as if the names of directories ended with a slash.
        let sort_key = |entry: &TreeEntry| {
            [
                entry.name.as_slice(),
                if entry.mode == DIRECTORY { b"/" } else { b"" },
            ]
            .concat()
        };
        entries.sort_by_cached_key(sort_key);
        let mut bytes = Vec::new();
        for TreeEntry { mode, name, id } in &entries {
            bytes.extend(format!("{mode:o} ").bytes());
            bytes.extend(name);
            bytes.push(0);
            bytes.extend(raw_bytes(id));
        }
        let name = self.write_content_file("tree", &bytes)?;
        self.tree_writer.send(format!("{name}\n").as_bytes())?;
        let id = CommitId::new(&self.tree_writer.read_line()?)
            .map_err(|_| errors::unexpected("make a tree"))?;
        self.cache.add_tree(&id, &entries);
        Ok(id)
    }

    /// Writes the content of a new object to a temporary file, from which the git process reads it.
    /// Returns the file's path.
    fn write_content_file(&self, name: &str, bytes: &[u8]) -> Result<String, GitError> {
        let file = self.scratch.join(name);
        disk::write_unsynced(&file, bytes)?;
        // Return a path relative to the vault (Regatta's own repository), where the git processes
        // run. The absolute path could contain a newline (from the path of the data directory),
        // which would end the query.
        Ok(file
            .strip_prefix(&self.vault)
            .unwrap_or(&file)
            .display()
            .to_string())
    }

    /// Writes a commit that serves only as input for a merge, and is never moved into the vault
    /// (Regatta's own repository).
    pub(crate) fn write_merge_only_commit(
        &mut self,
        tree: &CommitId,
        parents: &[&CommitId],
    ) -> Result<CommitId, GitError> {
        let authorship = Authorship {
            name: String::new(),
            email: String::new(),
            message: "side".into(),
            unix_seconds: 0,
        };
        let commit = self.write_commit(tree, parents, &authorship)?;
        self.merge_only_commits.push(commit.clone());
        Ok(commit)
    }

    /// Moves the written objects from the scratch directory into the vault (Regatta's own
    /// repository), and waits until they are on the disk.
    pub(crate) fn adopt(&mut self) -> Result<(), GitError> {
        for commit in std::mem::take(&mut self.merge_only_commits) {
            disk::remove_tree(&loose_path(&self.scratch, &commit))?;
        }
        let mut names = Vec::new();
        for folder in object_dirs(&self.scratch)? {
            let entries = fs::read_dir(&folder)
                .map_err(|cause| errors::io_error("read the directory", &folder, &cause))?;
            for entry in entries.flatten() {
                let path = entry.path();
                names.push(
                    path.strip_prefix(&self.scratch)
                        .unwrap_or(&path)
                        .to_path_buf(),
                );
            }
        }
        // Sync the contents of the objects before their names, so that every object whose name is
        // on the disk is complete.
        disk::sync_all(names.iter().map(|path| self.scratch.join(path)))?;
        let objects = self.vault.join("objects");
        let mut changed_dirs = BTreeSet::new();
        for name in names {
            let (from, to) = (self.scratch.join(&name), objects.join(&name));
            let dir = to.parent().unwrap_or(&objects).to_path_buf();
            if !dir.is_dir() {
                disk::make_dirs(&dir)?;
                changed_dirs.insert(objects.clone());
            }
            fs::rename(&from, &to)
                .map_err(|cause| errors::io_error("move the object file", &from, &cause))?;
            changed_dirs.insert(dir);
        }
        disk::sync_all(changed_dirs)
    }

    /// Deletes all objects from the scratch directory.
    fn discard(&mut self) -> Result<(), GitError> {
        self.merge_only_commits.clear();
        let mut had_objects = false;
        for folder in object_dirs(&self.scratch)? {
            let entries = fs::read_dir(&folder)
                .map_err(|cause| errors::io_error("read the directory", &folder, &cause))?;
            for entry in entries.flatten() {
                disk::remove_tree(&entry.path())?;
                had_objects = true;
            }
        }
        if had_objects {
            self.cache = ObjectCache::default(); // some cached objects no longer exist
        }
        Ok(())
    }
}

fn object_dirs(objects: &Path) -> Result<Vec<PathBuf>, GitError> {
    let entries = fs::read_dir(objects)
        .map_err(|cause| errors::io_error("read the directory", objects, &cause))?;
    Ok(entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

/// Returns the path of an object's file in an object directory.
pub(crate) fn loose_path(objects: &Path, id: &CommitId) -> PathBuf {
    let (folder, name) = id.as_str().split_at(2);
    objects.join(folder).join(name)
}

/// Converts an object id from hexadecimal digits to bytes.
pub(crate) fn raw_bytes(id: &CommitId) -> impl Iterator<Item = u8> + '_ {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    };
    id.as_str()
        .as_bytes()
        .chunks_exact(2)
        .map(move |pair| nibble(pair[0]) << 4 | nibble(pair[1]))
}

/// Parses the line that git prints before an object's content. The line consists of the object's
/// id, type and size. Returns `None` if the object does not exist.
fn parse_header(line: &str) -> Option<(CommitId, String, usize)> {
    let mut words = line.split(' ');
    let (id, kind, size) = (words.next()?, words.next()?, words.next()?);
    Some((CommitId::new(id).ok()?, kind.to_owned(), size.parse().ok()?))
}

fn parse_commit(bytes: &[u8]) -> Option<CommitObject> {
    let text = path_to_text(bytes);
    let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let tree = CommitId::new(lines.next()?.strip_prefix("tree ")?).ok()?;
    let parents = lines
        .map_while(|line| line.strip_prefix("parent "))
        .map(|id| CommitId::new(id).ok());
    Some(CommitObject {
        tree,
        parents: parents.collect::<Option<_>>()?,
        message: message.to_owned(),
    })
}

/// Returns the content of a commit (`bytes`) with the given tree and first parent in place of its
/// own. Removes signatures, because the signatures would no longer be valid.
fn rewrite_commit_bytes(bytes: &[u8], tree: &CommitId, parent: &CommitId) -> Option<Vec<u8>> {
    let end = bytes.windows(2).position(|bytes| bytes == b"\n\n")?;
    let (head, message) = bytes.split_at(end);
    let mut rewritten = format!("tree {tree}\nparent {parent}").into_bytes();
    let (mut parents, mut is_dropped) = (0, false);
    for line in head.split(|byte| *byte == b'\n') {
        let is_continuation = line.starts_with(b" ");
        is_dropped = match line {
            _ if is_continuation => is_dropped,
            _ if line.starts_with(b"parent ") => {
                parents += 1;
                parents == 1
            }
            _ => [&b"tree "[..], b"gpgsig", b"mergetag "]
                .iter()
                .any(|prefix| line.starts_with(prefix)),
        };
        if !is_dropped {
            rewritten.push(b'\n');
            rewritten.extend(line);
        }
    }
    rewritten.extend(message);
    Some(rewritten)
}

fn parse_tree(mut bytes: &[u8], size: usize) -> Option<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let mode = u32::from_str_radix(std::str::from_utf8(bytes.get(..space)?).ok()?, 8).ok()?;
        let name = bytes.get(space + 1..end)?.to_vec();
        let id = bytes.get(end + 1..end + 1 + size)?;
        let id = data_encoding::HEXLOWER.encode(id);
        entries.push(TreeEntry {
            mode,
            name,
            id: CommitId::new(&id).ok()?,
        });
        bytes = &bytes[end + 1 + size..];
    }
    Some(entries)
}

/// Removes the characters that would end an author's name or address in a commit, such as `<` and
/// newlines.
fn sanitize(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() && !matches!(c, '<' | '>'))
        .collect::<String>()
        .trim()
        .to_owned()
}

fn sanitize_name(name: &str) -> String {
    let name = sanitize(name);
    // Git refuses a commit whose author has an empty name.
    if name.is_empty() {
        "Regatta".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_trees_are_parsed_and_malformed_ones_are_refused() {
        let id = |c: char| CommitId::new(&c.to_string().repeat(40)).unwrap();
        let text = format!(
            "tree {}\nparent {}\nparent {}\nauthor a <b> 1 +0000\n\nparent x\n\nmore",
            id('a'),
            id('b'),
            id('c')
        );
        let commit = parse_commit(text.as_bytes()).unwrap();
        assert_eq!(
            (commit.tree, commit.parents),
            (id('a'), vec![id('b'), id('c')])
        );
        assert_eq!(commit.message, "parent x\n\nmore");
        assert_eq!(parse_commit(b"tree x\n\n"), None);
        assert_eq!(parse_commit(b""), None);

        let mut tree = b"100644 a b\0".to_vec();
        tree.extend([0xaa; 20]);
        tree.extend(b"40000 c\0");
        tree.extend([0xbb; 20]);
        let entries = parse_tree(&tree, 20).unwrap();
        assert_eq!(
            (entries[0].name.as_slice(), entries[0].mode),
            (b"a b".as_slice(), 0o100_644)
        );
        assert_eq!((entries[1].mode, &entries[1].id), (DIRECTORY, &id('b')));
        assert_eq!(parse_tree(&tree[..tree.len() - 1], 20), None);
        assert_eq!(parse_header("nope missing"), None);
        assert_eq!(parse_header("nope"), None);
    }

    #[test]
    fn rewritten_commit_keeps_its_message_and_loses_its_signature() {
        let id = |digit: &str| CommitId::new(&digit.repeat(40)).unwrap();
        let (one, two, three) = (id("1"), id("2"), id("3"));
        let signed = format!(
            "tree {one}\nparent {one}\nparent {two}\nauthor A <a> 1 +0100\ncommitter B <b> 2 \
             +0000\ngpgsig -----BEGIN\n \n \
             abc\n -----END\nencoding latin1\n\ntree is a word\n\ngpgsig too\n"
        );
        let rewritten = rewrite_commit_bytes(signed.as_bytes(), &two, &three).unwrap();
        let expected = format!(
            "tree {two}\nparent {three}\nparent {two}\nauthor A <a> 1 +0100\ncommitter B <b> 2 \
             +0000\nencoding \
             latin1\n\ntree is a word\n\ngpgsig too\n"
        );
        assert_eq!(String::from_utf8(rewritten).unwrap(), expected);
        assert_eq!(rewrite_commit_bytes(b"tree x", &two, &three), None);
    }

    #[test]
    fn s7_a_name_cannot_add_a_line_to_a_commit() {
        assert_eq!(sanitize_name("a\nauthor <x>"), "aauthor x");
        assert_eq!(sanitize_name(" <\n> "), "Regatta");
    }
}
