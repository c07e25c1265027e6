//! Writes one line of the audit log for each write that a caller requests, even if the write is
//! refused.
//!
//! The file of the log is in the module `audit`.

use regatta_api::view::AuditLineView;

use super::*;
use crate::audit;
use crate::event_stream::rfc3339;

/// The audit line of a write that is not answered yet. If the caller disconnects before the answer,
/// the line is written without a result, because the write may have happened.
pub(super) struct PendingAuditLine {
    shared: Arc<ServerState>,
    line: Option<AuditLineView>,
}

impl PendingAuditLine {
    pub(super) fn begin(
        shared: &Arc<ServerState>,
        context: &RequestContext,
        verb: &str,
        input: &[u8],
    ) -> PendingAuditLine {
        let attempt = match &context.principal {
            Principal::Attempt { id, .. } => Some(*id),
            Principal::Owner | Principal::Named { .. } | Principal::Firing { .. } => None,
        };
        let line = AuditLineView {
            n: 0,
            time: rfc3339(shared.engine.now().unix_ms),
            verb: verb.to_owned(),
            about: audit::subject_of(input),
            by: context.actor.to_string(),
            token: context.principal.label(),
            scope: context.principal.scope(),
            from: context.origin.to_string(),
            key: context.idempotency_key.as_ref().map(ToString::to_string),
            attempt,
            revision: None,
            refused: None,
        };
        PendingAuditLine {
            shared: shared.clone(),
            line: Some(line),
        }
    }

    /// Adds the result of the call to the audit line and writes the line. The caller gets the
    /// answer of its call only after that.
    pub(super) async fn end(mut self, result: &VerbResult) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        match result {
            // A poll for work that gets no task is not recorded, because such a poll changes
            // nothing and there are thousands of them.
            Ok(VerbAnswer {
                data: AnswerData::TaskPoll(granted),
                ..
            }) if granted.is_none() => return,
            Ok(answer) => line.revision = Some(answer.revision),
            Err(problem) => line.refused = Some(problem.code.clone()),
        }
        self.shared.audit.append(line).await;
    }
}

impl Drop for PendingAuditLine {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            // A poll for work whose caller disconnects is not recorded, because the caller did not
            // get a task.
            if line.verb != "task.poll" {
                self.shared.audit.append_now(line);
            }
        }
    }
}

/// Writes an audit line for a change that is made without an API verb, such as a sign-in. `verb`
/// names the kind of change, and `about` the thing that changed.
pub(crate) fn audit_other_write(
    shared: &Arc<ServerState>,
    principal: &Principal,
    origin: ConnectionOrigin,
    verb: &str,
    about: &str,
) {
    shared.audit.append_now(AuditLineView {
        n: 0,
        time: rfc3339(shared.engine.now().unix_ms),
        verb: verb.to_owned(),
        about: Some(about.to_owned()),
        by: principal.label(),
        token: principal.label(),
        scope: principal.scope(),
        from: origin.to_string(),
        key: None,
        attempt: None,
        revision: Some(shared.engine.board().revision),
        refused: None,
    });
}

impl VerbHandler<'_> {
    pub(super) async fn audit(
        &self,
        input: input::AuditQuery,
        page: &PageRequest,
    ) -> PageReply<Vec<AuditLineView>> {
        let mut query = input;
        let limit = page.list_limit(query.limit, audit::MAX_LISTED_LINES);
        if limit.is_none() {
            query.after = query.after.max(page.after_id()?).or(Some(0));
        }
        let limit = limit.unwrap_or(page.read_limit());
        let shared = self.shared.clone();
        let found = run_blocking(move || shared.audit.read(&query, limit)).await?;
        let lines = found.map_err(|error| {
            Problem::new(
                507,
                "io",
                format!("could not read the audit log: {error}"),
                "check the data directory: regatta doctor",
            )
        })?;
        let lines = page.select(lines, |line| line.n.to_string(), |line| line)?;
        reply(self.board().revision, lines)
    }
}
