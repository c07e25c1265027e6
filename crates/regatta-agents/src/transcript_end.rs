//! Reads the end of a transcript without reading all of it, so that the end of a long transcript is
//! shown at once.

use regatta_core::ids::AttemptId;
use regatta_engine::ports::agents::{
    AgentError, CompleteTranscriptLine, TranscriptEnd, TranscriptLine,
};

use crate::adapter::AgentsAdapter;
use crate::errors;
use crate::journal::JournalReader;
use crate::output_changes::OutputReader;

/// The number of records at the beginning of the journal that the driver gets. In these records the
/// program opens its session and receives its first prompt.
const OPENING_RECORDS: usize = 50;

/// The number of bytes after which no further record of the journal's beginning is read.
const MAX_OPENING_BYTES: usize = 256 * 1024;

/// Returns the lines in about the last `bytes` bytes of a transcript.
///
/// The driver gets the first records of the journal and then the last records, so the events may
/// lack facts from the records between them.
pub(crate) fn read(
    adapter: &AgentsAdapter,
    attempt: AttemptId,
    bytes: u64,
) -> Result<TranscriptEnd, AgentError> {
    let dir = adapter.attempt_dir(attempt);
    let failed = |error| {
        errors::file_error(
            "read the end of the journal (the program's recorded output) in",
            &dir.0,
            error,
        )
    };
    let mut driver = adapter.restore_driver(&dir)?;
    let mut reader = JournalReader::near_end(&dir.0, bytes).map_err(failed)?;
    let first = reader.position();
    let (mut opening, mut opening_bytes) = (JournalReader::new(&dir.0), 0);
    for _ in 0..OPENING_RECORDS {
        if opening.position() >= first || opening_bytes > MAX_OPENING_BYTES {
            break;
        }
        let Some(record) = opening.next_record().map_err(failed)? else {
            break;
        };
        opening_bytes += record.line.len();
        if let Some(driver) = &mut driver {
            driver.on_record(&record);
        }
    }
    let (mut lines, mut outputs) = (Vec::new(), OutputReader::default());
    while let Some(record) = reader.next_record().map_err(failed)? {
        let events = driver
            .as_mut()
            .map_or_else(Vec::new, |driver| driver.on_record(&record));
        let outputs = outputs.read(&record);
        let line = TranscriptLine { record, events };
        lines.push(CompleteTranscriptLine { line, outputs });
    }
    Ok(TranscriptEnd {
        lines,
        is_whole: first == 1,
    })
}
