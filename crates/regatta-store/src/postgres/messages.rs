//! Finds messages by words, labels, mentions, threads, senders and channels.
//!
//! The query goes along the shortest list of the index that a condition can use, and checks the
//! other conditions for each message in it. The server's planner would often guess wrong, because a
//! label may be on nearly every message or on three.

use regatta_core::bus::Message;
use regatta_core::ids::MessageId;
use regatta_engine::ports::store::{MessageFilter, StoreError};
use tokio_postgres::Client;

use super::commit::entry;
use super::connection::{Database, Param, Statement, run};
use super::load::{ROW_COLUMNS, stored_row};
use super::{WHOLE_FLEET, faults};
use crate::row_codec::MESSAGES;

/// The number of messages that one query returns. Conditions that only the text shows are checked
/// after that, so more queries may follow.
const PAGE_SIZE: i64 = 256;
/// The largest number of entries that are counted to compare lists of the index.
const MAX_COUNTED_ENTRIES: i64 = 2_000;

/// A list of the index: the messages with this value.
struct IndexList {
    kind: &'static str,
    value: String,
}

/// Reads the messages that meet the filter's conditions.
pub(super) async fn find(
    database: &Database,
    client: &Client,
    filter: &MessageFilter,
) -> Result<Vec<Message>, StoreError> {
    let Some((mut low, mut high)) = id_range(database, client, filter).await? else {
        return Ok(Vec::new());
    };
    let lists = sort_by_length(database, client, index_lists(filter), low, high).await?;
    // The word lists find only messages with all words, so the text must be compared only for
    // phrases.
    let phrases = filter.text.as_ref().filter(|query| query.has_phrases());
    let is_newest_first = filter.after.is_none();
    let mut found: Vec<Message> = Vec::new();
    loop {
        let page = query(filter, &lists, low, high, is_newest_first);
        let rows = run(client, &page)
            .await
            .map_err(|error| faults::database(&database.settings, &error))?;
        for row in &rows {
            let stored = stored_row(MESSAGES, row);
            if is_newest_first {
                high = stored.number - 1;
            } else {
                low = stored.number;
            }
            match stored.decode::<Message>() {
                Ok(message) if phrases.is_none_or(|query| query.matches(&message.text)) => {
                    found.push(message);
                }
                Ok(_) => {}
                Err(fault) => tracing::warn!(
                    "could not read message {} of the store, so the list that somebody requested \
                    is returned without it: {fault}",
                    stored.number
                ),
            }
            if found.len() == filter.limit {
                break;
            }
        }
        if found.len() == filter.limit || i64::try_from(rows.len()) != Ok(PAGE_SIZE) {
            break;
        }
    }
    if is_newest_first {
        found.reverse();
    }
    Ok(found)
}

fn index_lists(filter: &MessageFilter) -> Vec<IndexList> {
    let list = |kind, value: Option<String>| value.map(|value| IndexList { kind, value });
    let id_text = |id: Option<MessageId>| id.map(|id| id.0.to_string());
    let words = filter.text.iter().flat_map(|query| query.words());
    let mut lists: Vec<IndexList> = words
        .filter_map(|word| list(entry::WORD, Some(word.to_owned())))
        .collect();
    lists.extend(list(
        entry::LABEL,
        filter.label.as_ref().map(ToString::to_string),
    ));
    lists.extend(list(
        entry::MENTION,
        filter.mention.as_ref().map(ToString::to_string),
    ));
    lists.extend(list(entry::REPLY_TO, id_text(filter.reply_to)));
    lists.extend(list(entry::THREAD, id_text(filter.thread)));
    lists.extend(list(entry::SENDER, filter.from.clone()));
    lists
}

/// Sorts the lists by their number of entries between `low` and `high`, fewest first.
async fn sort_by_length(
    database: &Database,
    client: &Client,
    lists: Vec<IndexList>,
    low: i64,
    high: i64,
) -> Result<Vec<IndexList>, StoreError> {
    if lists.len() < 2 {
        return Ok(lists);
    }
    let mut sized = Vec::new();
    for list in lists {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM message_index WHERE project = $1 AND kind = \
            $2 AND value = $3 AND message > $4 AND message <= $5 LIMIT $6) some_entries";
        let params = vec![
            WHOLE_FLEET.into(),
            list.kind.into(),
            Param::Text(list.value.clone()),
            low.into(),
            high.into(),
            MAX_COUNTED_ENTRIES.into(),
        ];
        let rows = run(client, &Statement::new(sql, params))
            .await
            .map_err(|error| faults::database(&database.settings, &error))?;
        sized.push((rows.first().map_or(0, |row| row.get::<_, i64>(0)), list));
    }
    sized.sort_by_key(|(size, _)| *size);
    Ok(sized.into_iter().map(|(_, list)| list).collect())
}

/// Returns the query for the next page of messages between `low` (not included) and `high`.
fn query(
    filter: &MessageFilter,
    lists: &[IndexList],
    low: i64,
    high: i64,
    is_newest_first: bool,
) -> Statement {
    let mut params = vec![
        WHOLE_FLEET.into(),
        MESSAGES.into(),
        Param::Number(low),
        Param::Number(high),
        Param::Number(PAGE_SIZE),
    ];
    let mut place = |param: Param| {
        params.push(param);
        format!("${}", params.len())
    };
    let mut conditions = String::new();
    let mut source = String::from("rows m");
    let mut order = "m.number";
    for (nth, list) in lists.iter().enumerate() {
        let (kind, value) = (
            place(list.kind.into()),
            place(Param::Text(list.value.clone())),
        );
        if nth == 0 {
            source =
                "message_index s JOIN rows m ON m.project = $1 AND m.kind = $2 AND m.number = \
                s.message"
                    .into();
            order = "s.message";
            conditions += &format!(" AND s.project = $1 AND s.kind = {kind} AND s.value = {value}");
        } else {
            conditions += &format!(
                " AND EXISTS (SELECT 1 FROM message_index x WHERE x.project = $1 AND x.kind = \
                {kind} AND x.value = {value} AND x.message = m.number)"
            );
        }
    }
    if let Some(channel) = &filter.channel {
        conditions += &format!(" AND m.parent = {}", place(channel.as_str().into()));
    }
    let direction = if is_newest_first { "DESC" } else { "ASC" };
    let columns: Vec<String> = ROW_COLUMNS
        .split(", ")
        .map(|column| format!("m.{column}"))
        .collect();
    let sql = format!(
        "SELECT {} FROM {source} WHERE m.project = $1 AND m.kind = $2 AND {order} > $3 AND {order} \
        <= $4{conditions} ORDER BY {order} {direction} LIMIT $5",
        columns.join(", ")
    );
    Statement::new(sql, params)
}

/// Returns the range of ids in which the filter's messages must be: the lower bound is not
/// included, the upper bound is. Returns `None` if no message can match.
async fn id_range(
    database: &Database,
    client: &Client,
    filter: &MessageFilter,
) -> Result<Option<(i64, i64)>, StoreError> {
    let key = |id: u64| i64::try_from(id).unwrap_or(i64::MAX);
    let mut low = key(filter.after.unwrap_or_default().0);
    let mut high = filter
        .before
        .map_or(i64::MAX, |id| key(id.0).saturating_sub(1));
    if let Some(since) = filter.since_unix_ms {
        low = low.max(
            first_since(database, client, since)
                .await?
                .saturating_sub(1),
        );
    }
    if let Some(until) = filter.until_unix_ms {
        let after = first_since(database, client, until.saturating_add(1)).await?;
        high = high.min(after.saturating_sub(1));
    }
    Ok((low < high && filter.limit > 0).then_some((low, high)))
}

/// The date of a message. A search by date decodes nothing else of a message.
#[derive(serde::Deserialize)]
struct MessageDate {
    wall: u64,
}

/// Returns the number of the first message that was sent at this date or later, by the same search
/// as `first_message_since` of the engine, whose steps would block here.
async fn first_since(
    database: &Database,
    client: &Client,
    unix_ms: u64,
) -> Result<i64, StoreError> {
    let to_error = |error: tokio_postgres::Error| faults::database(&database.settings, &error);
    let last_sql = "SELECT coalesce(max(number), 0) FROM rows WHERE project = $1 AND kind = $2";
    let rows = run(
        client,
        &Statement::new(last_sql, vec![WHOLE_FLEET.into(), MESSAGES.into()]),
    )
    .await
    .map_err(to_error)?;
    let last: i64 = rows.first().map_or(0, |row| row.get(0));
    let sql = format!(
        "SELECT {ROW_COLUMNS} FROM rows WHERE project = $1 AND kind = $2 AND number >= $3 ORDER BY \
        number LIMIT 16"
    );
    let (mut low, mut high) = (1, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let params = vec![WHOLE_FLEET.into(), MESSAGES.into(), middle.into()];
        let rows = run(client, &Statement::new(sql.as_str(), params))
            .await
            .map_err(to_error)?;
        let dated = rows.iter().find_map(|row| {
            let stored = stored_row(MESSAGES, row);
            let date: MessageDate = stored.decode().ok()?;
            Some((stored.number, date.wall))
        });
        match dated {
            Some((id, date)) if date < unix_ms => low = id.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(low)
}
