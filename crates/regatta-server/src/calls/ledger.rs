//! Who asked for what: a line of the audit log for each write, whatever becomes of it.

use regatta_api::view::AuditView;

use super::*;
use crate::audit;
use crate::stream::rfc3339;

/// A write under way. Should its caller hang up before it is answered, the line says so: what was asked may be done.
pub(super) struct Ledger {
    shared: Arc<Shared>,
    line: Option<AuditView>,
}

impl Ledger {
    pub(super) fn begin(shared: &Arc<Shared>, guest: &Guest, verb: &str, input: &[u8]) -> Ledger {
        let attempt = match &guest.visitor {
            Visitor::Attempt { id, .. } => Some(*id),
            Visitor::Owner | Visitor::Named { .. } | Visitor::Firing { .. } => None,
        };
        let line = AuditView {
            n: 0,
            time: rfc3339(shared.engine.now().wall),
            verb: verb.to_owned(),
            about: audit::about(input),
            by: guest.by.to_string(),
            token: guest.visitor.label(),
            scope: guest.visitor.scope(),
            from: guest.origin.to_string(),
            key: guest.key.as_ref().map(ToString::to_string),
            attempt,
            revision: None,
            refused: None,
        };
        Ledger { shared: shared.clone(), line: Some(line) }
    }

    /// Writes the line, before the caller is answered.
    pub(super) async fn end(mut self, done: &Json) {
        let Some(mut line) = self.line.take() else { return };
        match done {
            // A poll that found nothing changed nothing; thousands of them say nothing.
            Ok(answer) if line.verb == "task.poll" && answer.ends_with(b"\"data\":null}") => return,
            Ok(answer) => line.revision = revision_of(answer),
            Err(problem) => line.refused = Some(problem.code.clone()),
        }
        self.shared.audit.add(line).await;
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            // A runner that hangs up while it waits for something to do has asked for nothing yet.
            if line.verb != "task.poll" {
                self.shared.audit.add_now(line);
            }
        }
    }
}

/// Writes down what somebody brings who calls no verb: which one, and what it is about.
pub(crate) fn wrote_beside(shared: &Arc<Shared>, visitor: &Visitor, origin: Origin, (verb, about): (&str, &str)) {
    shared.audit.add_now(AuditView {
        n: 0,
        time: rfc3339(shared.engine.now().wall),
        verb: verb.to_owned(),
        about: Some(about.to_owned()),
        by: visitor.label(),
        token: visitor.label(),
        scope: visitor.scope(),
        from: origin.to_string(),
        key: None,
        attempt: None,
        revision: Some(shared.engine.board().revision),
        refused: None,
    });
}

/// An answer begins with its revision.
pub(crate) fn revision_of(answer: &[u8]) -> Option<u64> {
    let rest = answer.strip_prefix(b"{\"revision\":")?;
    let end = rest.iter().position(|it| !it.is_ascii_digit())?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

impl Caller<'_> {
    pub(super) async fn audit(&self, ask: input::Audit) -> Json {
        let shared = self.shared.clone();
        let found = blocking(move || shared.audit.read(&ask)).await?;
        let lines = found.map_err(|it| {
            Problem::new(507, "io", format!("the audit log cannot be read: {it}"), "see what is wrong: regatta doctor")
        })?;
        answer(self.board().revision, &lines)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answers_revision_is_read_from_its_beginning() {
        let answer = super::answer(4711, &"done").unwrap();
        assert_eq!(super::revision_of(&answer), Some(4711));
        assert_eq!(super::revision_of(b"{}"), None);
    }
}
