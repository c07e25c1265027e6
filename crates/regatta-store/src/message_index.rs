//! Maintains the search indexes of messages: by label, mention, thread and word.
//!
//! A message is written once, so entries are usually only added to the indexes. Entries are removed
//! only when the row of a message is replaced, which is so rare that it need not be fast.

use std::collections::BTreeMap;

use regatta_core::bus::Message;
use regatta_core::ids::MessageId;
use regatta_core::search::{self, SearchQuery};
use rusqlite::Connection;

use crate::commit::{execute_sql, to_sql_number};
use crate::errors::StoreFault;
use crate::load::{decode_row, keep_readable, text_bytes};

/// Returns the words of a text, each once, in the form in which the word index stores them.
fn distinct_words(text: &str) -> String {
    let mut words = search::words(text);
    words.sort_unstable();
    words.dedup();
    words.join(" ")
}

/// Returns the query for the word index that finds messages with all words of `query`.
pub(crate) fn index_query(query: &SearchQuery) -> String {
    query
        .words()
        .into_iter()
        .map(|word| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Adds a new message to all indexes.
pub(crate) fn index_message(db: &Connection, message: &Message) -> Result<(), StoreFault> {
    let id = to_sql_number(message.id.0)?;
    for label in &message.labels {
        execute_sql(
            db,
            "INSERT OR IGNORE INTO message_labels (label, message) VALUES (?1, ?2)",
            (label.as_str(), id),
        )?;
    }
    for agent in &message.mentions {
        execute_sql(
            db,
            "INSERT OR IGNORE INTO message_mentions (agent, message) VALUES (?1, ?2)",
            (agent.as_str(), id),
        )?;
    }
    index_new_message(db, message, message.thread)
}

/// Adds a message to the indexes that exist since schema 4. For messages of older stores, the other
/// indexes were filled before.
fn index_new_message(
    db: &Connection,
    message: &Message,
    thread: Option<MessageId>,
) -> Result<(), StoreFault> {
    let id = to_sql_number(message.id.0)?;
    if let Some(parent) = message.reply_to {
        let sql = "INSERT OR IGNORE INTO message_replies (parent, message) VALUES (?1, ?2)";
        execute_sql(db, sql, (to_sql_number(parent.0)?, id))?;
    }
    if let Some(root) = thread {
        // The first message of a thread is added to the thread's index only when it gets its first
        // reply, so add both messages here.
        let sql = "INSERT OR IGNORE INTO message_threads (root, message) SELECT ?1, id FROM \
            messages WHERE id IN (?1, ?2)";
        execute_sql(db, sql, (to_sql_number(root.0)?, id))?;
    }
    execute_sql(
        db,
        "INSERT INTO message_words (rowid, words) VALUES (?1, ?2)",
        (id, distinct_words(&message.text)),
    )
}

/// Removes a message from all indexes.
pub(crate) fn unindex_message(db: &Connection, message: &Message) -> Result<(), StoreFault> {
    let id = to_sql_number(message.id.0)?;
    for label in &message.labels {
        execute_sql(
            db,
            "DELETE FROM message_labels WHERE label = ?1 AND message = ?2",
            (label.as_str(), id),
        )?;
    }
    for agent in &message.mentions {
        execute_sql(
            db,
            "DELETE FROM message_mentions WHERE agent = ?1 AND message = ?2",
            (agent.as_str(), id),
        )?;
    }
    if let Some(parent) = message.reply_to {
        let sql = "DELETE FROM message_replies WHERE parent = ?1 AND message = ?2";
        execute_sql(db, sql, (to_sql_number(parent.0)?, id))?;
    }
    let sql = "DELETE FROM message_threads WHERE root = ?1 AND message = ?2";
    execute_sql(db, sql, (to_sql_number(message.root().0)?, id))?;
    let sql = "INSERT INTO message_words (message_words, rowid, words) VALUES ('delete', ?1, ?2)";
    execute_sql(db, sql, (id, distinct_words(&message.text)))
}

/// Adds the messages of an older store to the indexes. The rows of these messages do not name the
/// thread. But a reply always comes after the message to which it replies, so the thread can be
/// computed from the replies.
pub(crate) fn index_all_messages(db: &Connection) -> Result<(), StoreFault> {
    let mut roots: BTreeMap<MessageId, MessageId> = BTreeMap::new();
    let mut statement = db.prepare("SELECT id, body FROM messages ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // A message that cannot be read is left out of the indexes. The check of the store reports
        // such a message.
        let decoded = decode_row("messages", row.get_ref(0)?, text_bytes(row.get_ref(1)?));
        let Some(message): Option<Message> = keep_readable(decoded, &mut Vec::new())? else {
            continue;
        };
        let thread = message.thread.or_else(|| {
            message
                .reply_to
                .map(|parent| roots.get(&parent).copied().unwrap_or(parent))
        });
        if let Some(root) = thread {
            roots.insert(message.id, root);
        }
        index_new_message(db, &message, thread)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use crate::schema;

    /// The messages of a store with schema 3 are found by their words and threads after its
    /// migration.
    #[test]
    fn messages_of_an_older_store_are_indexed() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db, &schema::MIGRATIONS[..3]).unwrap();
        for (id, text, reply_to) in [
            (1, "Hello there", "null"),
            (2, "other", "null"),
            (3, "hello back", r#""B1""#),
            (4, "so be it", r#""B3""#),
        ] {
            let body = format!(
                r#"{{"id":"B{id}","channel":"shop","sender":"bob","text":"{text}","labels":[],"mentions":[],"reply_to":{reply_to},"wall":7}}"#
            );
            db.execute(
                "INSERT INTO messages VALUES (?1, 'shop', 'bob', ?2)",
                (id, body),
            )
            .unwrap();
        }
        schema::migrate(&mut db, schema::MIGRATIONS).unwrap();
        let numbers = |sql: &str| -> Vec<i64> {
            let mut statement = db.prepare(sql).unwrap();
            statement
                .query_map([], |row| row.get(0))
                .unwrap()
                .map(Result::unwrap)
                .collect()
        };
        assert_eq!(
            numbers(
                "SELECT rowid FROM message_words WHERE message_words MATCH '\"hello\"' ORDER BY \
                rowid"
            ),
            [1, 3]
        );
        assert_eq!(
            numbers("SELECT message FROM message_threads WHERE root = 1 ORDER BY message"),
            [1, 3, 4]
        );
        assert_eq!(
            numbers("SELECT message FROM message_replies WHERE parent = 3"),
            [4]
        );
        assert_eq!(
            numbers("SELECT count(*) FROM message_threads"),
            [3],
            "a message without replies is in no thread"
        );
    }
}
