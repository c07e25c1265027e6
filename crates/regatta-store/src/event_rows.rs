//! Converts events to rows of the table `events` and back, for every kind of store.
//!
//! Events of the same moment share a row, so that a transaction that grants sixty-four claims
//! (leases on files) writes one row instead of sixty-four. A row has the revision (event number) of
//! its last event. A row with one event has the format of schema 1, in which the author has a
//! column. In a row with several events, each event is stored with its author.

use regatta_core::command::Actor;
use regatta_core::event::{Event, Recorded};
use regatta_core::ids::Now;
use regatta_core::limits;
use regatta_engine::ports::store::UnreadableRow;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The largest number of events in one row. More events in a row would make reading a single event
/// slow, because the whole row must be read.
pub(crate) const MAX_EVENTS_PER_ROW: usize = 64;
/// The size in bytes from which no further event is added to a row.
pub(crate) const FULL_ROW_BYTES: usize = 32 * 1024;

/// A row of the table `events`.
pub(crate) struct EventRow<'a> {
    /// The revision (event number) of the last event in the row.
    pub(crate) revision: u64,
    pub(crate) now: Now,
    /// The author of the event if the row has one event, otherwise empty.
    pub(crate) author: &'a str,
    pub(crate) body: &'a [u8],
}

/// Splits consecutive events into as few rows as possible, and calls `write` for each row. `json`
/// is a buffer that is reused.
pub(crate) fn encode_events<E: From<serde_json::Error>>(
    json: &mut Vec<u8>,
    events: &[Recorded],
    mut write: impl FnMut(EventRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut remaining = events;
    while let Some(first) = remaining.first() {
        json.clear();
        let is_single = remaining.get(1).is_none_or(|event| event.now != first.now);
        let count = if is_single {
            serde_json::to_writer(&mut *json, &first.event)?;
            1
        } else {
            write_row_body(json, remaining)?
        };
        let (row, later) = remaining.split_at(count);
        let author = if is_single {
            first.by.to_string()
        } else {
            String::new()
        };
        write(EventRow {
            revision: row.last().map_or(first.revision, |event| event.revision),
            now: first.now,
            author: &author,
            body: json,
        })?;
        remaining = later;
    }
    Ok(())
}

/// Writes as many events as fit into one row, in the form `[["ann",{…}],["bob",{…}]]`. Returns the
/// number of events that fit.
fn write_row_body(json: &mut Vec<u8>, events: &[Recorded]) -> Result<usize, serde_json::Error> {
    let mut count = 0;
    for event in events
        .iter()
        .take(MAX_EVENTS_PER_ROW)
        .take_while(|event| event.now == events[0].now)
    {
        if json.len() > FULL_ROW_BYTES {
            break;
        }
        json.push(if count == 0 { b'[' } else { b',' });
        serde_json::to_writer(&mut *json, &(&event.by, &event.event))?;
        count += 1;
    }
    json.push(b']');
    Ok(count)
}

/// Returns the events of a row, oldest first. In place of an event that cannot be read, returns an
/// [`Event::EventUnreadable`]. If it is unknown how many events the row has, one such event with
/// the row's revision (event number) stands for all of them (D11).
pub(crate) fn decode_events(row: &EventRow<'_>) -> Vec<Recorded> {
    let (body, last, now) = (row.body, row.revision, row.now);
    let recorded = |revision: u64, decoded: DecodedEvent| {
        let (by, event) =
            decoded.unwrap_or_else(|why| (Actor::Regatta, limits::unreadable_event(why)));
        Recorded {
            revision,
            now,
            by,
            event,
        }
    };
    if body.first() != Some(&b'[') {
        let by = Actor::try_from(row.author.to_owned()).map_err(|error| error.to_string());
        let event = read_event(body).map_err(|error| error.to_string());
        return vec![recorded(last, by.and_then(|by| Ok((by, event?))))];
    }
    let events = match parse_row_body(body) {
        Ok(events) => events,
        Err(error) => return vec![recorded(last, Err(error.to_string()))],
    };
    // If the row's revision (event number) is lower than its number of events, the row is damaged,
    // and the revision of its first event is unknown.
    let first = last
        .checked_sub(events.len() as u64)
        .map(|before| before + 1);
    let Some(first) = first.filter(|_| !events.is_empty()) else {
        let reason = "the row has no events, or more events than its number allows";
        return vec![recorded(last, Err(reason.into()))];
    };
    (first..)
        .zip(events)
        .map(|(revision, decoded)| recorded(revision, decoded))
        .collect()
}

/// A decoded event with its author, or the reason why the event cannot be read.
type DecodedEvent = Result<(Actor, Event), String>;

/// Parses the text that [`write_row_body`] wrote. Only if that fails, parses each event separately,
/// which is slower.
fn parse_row_body(body: &[u8]) -> Result<Vec<DecodedEvent>, serde_json::Error> {
    if let Ok(events) = serde_json::from_slice::<Vec<(Actor, Event)>>(body) {
        return Ok(events.into_iter().map(Ok).collect());
    }
    let each: Vec<&RawValue> = serde_json::from_slice(body)?;
    Ok(each
        .into_iter()
        .map(|event| parse_row_event(event).map_err(|error| error.to_string()))
        .collect())
}

fn parse_row_event(pair: &RawValue) -> Result<(Actor, Event), serde_json::Error> {
    let (by, event): (&RawValue, &RawValue) = serde_json::from_str(pair.get())?;
    Ok((
        serde_json::from_str(by.get())?,
        read_event(event.get().as_bytes())?,
    ))
}

/// Parses one event. The repair in schema 8 wrote the fields of some events in another order (the
/// data before the kind), so the fields of such events are put in order first.
fn read_event(body: &[u8]) -> Result<Event, serde_json::Error> {
    #[derive(Deserialize)]
    struct Fields<'a> {
        #[serde(borrow)]
        kind: &'a RawValue,
        #[serde(borrow)]
        data: &'a RawValue,
    }

    serde_json::from_slice(body).or_else(|error| {
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(body) else {
            return Err(error);
        };
        let ordered = format!(r#"{{"kind":{},"data":{}}}"#, fields.kind, fields.data);
        serde_json::from_slice(ordered.as_bytes())
    })
}

/// Returns a description of the row if the event is an [`Event::EventUnreadable`], otherwise
/// `None`.
pub(crate) fn unreadable_row(recorded: &Recorded) -> Option<UnreadableRow> {
    let Event::EventUnreadable(event) = &recorded.event else {
        return None;
    };
    Some(UnreadableRow {
        table: "events",
        id: recorded.revision.to_string(),
        reason: event.why().clone(),
    })
}
