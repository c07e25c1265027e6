//! State that several drivers share: open requests, counted usage, and the last part of the
//! program's output.
//!
//! The code in this module knows no protocol. Each driver translates its program's messages and
//! keeps the state that only it needs.

use std::collections::BTreeMap;

use regatta_core::agent_protocol::{
    AgentEvent, FailureClass, PermissionOption, PermissionOptionKind, RequestAnswer,
    RequestContent, Usage,
};
use regatta_engine::ports::agents::{Exit, SessionInput};
use serde_json::{Value, json};

use super::error_class::ProgramFailure;
use crate::driver::{ExitAssessment, JournalRecord, JournalStream};

/// The number of bytes that are kept from the end of the program's error output, for people to
/// read.
const MAX_ERROR_TAIL_BYTES: usize = 4000;
/// The length up to which an agent's answer is kept whole. Longer answers are cut, because chat
/// services and other outside services limit the length of a message.
const MAX_ANSWER_BYTES: usize = 47_000;
/// The number of bytes that are kept from the end of an answer that is longer than
/// [`MAX_ANSWER_BYTES`].
const CUT_ANSWER_BYTES: usize = 40_000;
/// The text that replaces the removed beginning of an answer that was too long.
const CUT_NOTICE: &str = "[The beginning is left out here. The transcript has all of it.]\n\n";

/// The number of characters that a notice shows of an output line that violates the protocol.
const MAX_UNREADABLE_CHARS: usize = 4000;

/// Returns a notice with an output line that violates the protocol. A long line is shortened. Such
/// a line may have megabytes, because the supervisor process cuts overlong lines and a cut line is
/// no longer valid JSON.
pub(super) fn unreadable_line_notice(line: &str) -> AgentEvent {
    let hidden_chars = line.chars().skip(MAX_UNREADABLE_CHARS).count();
    if hidden_chars == 0 {
        return AgentEvent::Notice {
            text: line.to_owned(),
        };
    }
    let shown: String = line.chars().take(MAX_UNREADABLE_CHARS).collect();
    AgentEvent::Notice {
        text: format!("{shown} … {hidden_chars} more characters"),
    }
}

/// Keeps only the last part of a text that may become long.
#[derive(Clone, Debug)]
pub(super) struct TextTail {
    text: String,
    /// The length in bytes beyond which the text is cut. `cut_to_bytes` is the length that remains.
    max_bytes: usize,
    cut_to_bytes: usize,
    cut_notice: &'static str,
}

impl Default for TextTail {
    fn default() -> TextTail {
        TextTail {
            text: String::new(),
            max_bytes: 2 * MAX_ERROR_TAIL_BYTES,
            cut_to_bytes: MAX_ERROR_TAIL_BYTES,
            cut_notice: "",
        }
    }
}

impl TextTail {
    /// Creates an empty `TextTail` with the limits for an agent's answer.
    pub(super) fn for_answer() -> TextTail {
        TextTail {
            text: String::new(),
            max_bytes: MAX_ANSWER_BYTES,
            cut_to_bytes: CUT_ANSWER_BYTES,
            cut_notice: CUT_NOTICE,
        }
    }

    pub(super) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > self.max_bytes {
            let min_start = self.text.len() - self.cut_to_bytes;
            let start = (min_start..)
                .find(|position| self.text.is_char_boundary(*position))
                .unwrap_or(0);
            self.text.replace_range(..start, self.cut_notice);
        }
    }

    pub(super) fn add_line(&mut self, line: &str) {
        self.add(line);
        self.add("\n");
    }

    /// Returns a notice with a line of the program's standard error, or with a sentence for a mark
    /// (a remark that the supervisor process wrote into the journal). Also adds a line of standard
    /// error to `self`, the kept end of that output.
    pub(super) fn on_error_or_mark(&mut self, record: &JournalRecord) -> Vec<AgentEvent> {
        if record.stream == JournalStream::Err {
            self.add_line(&record.line);
        }
        // Show a remark of the supervisor process as a sentence instead of its JSON.
        let sentence = if record.stream == JournalStream::Mark {
            crate::journal::JournalMark::explain(&record.line)
        } else {
            None
        };
        vec![AgentEvent::Notice {
            text: sentence.unwrap_or_else(|| record.line.clone()),
        }]
    }

    /// Returns at most [`MAX_ERROR_TAIL_BYTES`] bytes from the end of the text, for use in an error
    /// message.
    pub(super) fn error_text(&self) -> &str {
        let text = self.text();
        let start = (text.len().saturating_sub(MAX_ERROR_TAIL_BYTES)..)
            .find(|position| text.is_char_boundary(*position))
            .unwrap_or(0);
        &text[start..]
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }
}

/// The total tokens and cost of one session of the program. The numbers never decrease.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageTotal {
    pub(super) session: Option<String>,
    total: Usage,
}

impl UsageTotal {
    /// Starts counting from the usage that was already recorded for the session before this process
    /// started.
    pub(super) fn from_usage(recorded: Usage) -> UsageTotal {
        UsageTotal {
            session: None,
            total: recorded,
        }
    }

    pub(super) fn total(&self) -> Usage {
        self.total
    }

    /// Adds the usage of one turn. Returns an event with the new total if the total changed.
    pub(super) fn add(&mut self, turn: Usage) -> Option<AgentEvent> {
        self.set(self.total.plus(&turn))
    }

    /// Raises the counted total to a total that the program reported. A count that would decrease
    /// stays unchanged. Returns an event if the total changed.
    pub(super) fn raise_to(&mut self, reported: Usage) -> Option<AgentEvent> {
        self.set(self.total.componentwise_max(&reported))
    }

    fn set(&mut self, total: Usage) -> Option<AgentEvent> {
        let has_changed = total != self.total;
        self.total = total;
        has_changed.then(|| AgentEvent::Usage {
            session: self.session.clone(),
            usage: total,
        })
    }

    fn per_session(&self) -> Vec<(Option<String>, Usage)> {
        if self.total == Usage::default() {
            vec![]
        } else {
            vec![(self.session.clone(), self.total)]
        }
    }

    /// Builds the judgement of an ended program from the kind of failure, the text `detail` and
    /// this usage.
    pub(super) fn assessment(
        &self,
        class: Option<FailureClass>,
        detail: impl Into<String>,
    ) -> ExitAssessment {
        ExitAssessment {
            class,
            detail: detail.into(),
            usage: self.per_session(),
        }
    }
}

/// A request of the program that is not answered yet, with the data from which its answer is
/// formatted.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest<T> {
    /// The name under which Regatta knows the request. The name is unique within the attempt.
    pub(super) key: String,
    /// The request's id in the program's protocol, which the answer must repeat.
    pub(super) id: Value,
    pub(super) format: T,
    /// True if the turn (the work on one prompt) was cancelled or the program withdrew the request.
    /// The driver then answers "cancelled", whatever a person answers.
    is_cancelled: bool,
}

/// The requests of the program that are not answered yet, oldest first.
#[derive(Clone, Debug)]
pub(super) struct OpenRequests<T> {
    requests: Vec<OpenRequest<T>>,
    /// The number of times that the program has used each id. A second request with the same id
    /// gets another name, so that it does not get the answer to the first request.
    id_uses: BTreeMap<String, u32>,
}

impl<T> Default for OpenRequests<T> {
    fn default() -> OpenRequests<T> {
        OpenRequests {
            requests: Vec::new(),
            id_uses: BTreeMap::new(),
        }
    }
}

impl<T> OpenRequests<T> {
    /// Adds a request of the program and returns the name under which Regatta knows the request.
    /// `is_cancelled` is true if the turn of the request is already being cancelled.
    pub(super) fn add(&mut self, id: Value, format: T, is_cancelled: bool) -> String {
        let text = super::rpc::id_text(&id);
        let uses = self.id_uses.entry(text.clone()).or_default();
        *uses += 1;
        let key = if *uses == 1 {
            text
        } else {
            format!("{text}#{uses}")
        };
        self.requests.push(OpenRequest {
            key: key.clone(),
            id,
            format,
            is_cancelled,
        });
        key
    }

    /// Removes the request with this id after its answer was sent.
    pub(super) fn remove(&mut self, id: &Value) -> Option<OpenRequest<T>> {
        let index = self.requests.iter().position(|request| request.id == *id)?;
        Some(self.requests.remove(index))
    }

    /// Marks all open requests as cancelled and returns events that withdraw them, so that people
    /// are no longer asked.
    pub(super) fn cancel_all(&mut self) -> Vec<AgentEvent> {
        let open = self
            .requests
            .iter_mut()
            .filter(|request| !request.is_cancelled);
        open.map(|request| {
            request.is_cancelled = true;
            AgentEvent::RequestWithdrawn {
                request: request.key.clone(),
            }
        })
        .collect()
    }

    /// Marks a request as cancelled because the program withdrew it. Returns the event that
    /// withdraws the request, or `None` if the request is not open.
    pub(super) fn withdraw(&mut self, id: &Value) -> Option<AgentEvent> {
        let open = self
            .requests
            .iter_mut()
            .find(|request| request.id == *id && !request.is_cancelled)?;
        open.is_cancelled = true;
        Some(AgentEvent::RequestWithdrawn {
            request: open.key.clone(),
        })
    }

    /// Returns the oldest request that can be answered now, with its answer. Answers to requests
    /// that are not open are ignored.
    pub(super) fn next_answerable(
        &self,
        desired: &SessionInput,
    ) -> Option<(&OpenRequest<T>, RequestAnswer)> {
        self.requests.iter().find_map(|request| {
            if request.is_cancelled {
                return Some((request, RequestAnswer::Cancelled));
            }
            let (_, answer) = desired
                .answers
                .iter()
                .find(|(key, _)| *key == request.key)?;
            Some((request, answer.clone()))
        })
    }
}

/// Chooses the program's option that expresses a person's answer. Only the option's kind counts,
/// not its position or name. Among several options of the same kind the smallest id is chosen, so
/// that their order does not matter.
pub(super) fn choose_option<'a>(
    options: &'a [PermissionOption],
    answer: &RequestAnswer,
) -> Option<&'a PermissionOption> {
    let kinds: &[PermissionOptionKind] = match answer {
        RequestAnswer::Allow | RequestAnswer::Text { .. } => &[
            PermissionOptionKind::AllowOnce,
            PermissionOptionKind::AllowAlways,
        ],
        RequestAnswer::Deny { .. } => &[
            PermissionOptionKind::RejectOnce,
            PermissionOptionKind::RejectAlways,
        ],
        RequestAnswer::Cancelled => &[],
    };
    kinds.iter().find_map(|kind| {
        options
            .iter()
            .filter(|option| option.kind == *kind)
            .min_by(|a, b| a.id.cmp(&b.id))
    })
}

/// The progress of the conversation with a program, from which a driver decides whether the ended
/// program succeeded.
pub(super) struct ConversationProgress<'a> {
    /// The reason for which no session could be opened, if the program gave one.
    pub(super) start_failure: Option<&'a ProgramFailure>,
    pub(super) is_session_open: bool,
    /// `Some` while a turn (the work on one prompt) runs. The value is true if the turn was
    /// cancelled.
    pub(super) running_turn: Option<bool>,
    /// The result of the last ended turn (the work on one prompt): `None` before any turn has
    /// ended, `Some(None)` after a success, otherwise the failure.
    pub(super) last_turn_failure: Option<Option<&'a ProgramFailure>>,
    /// True once Regatta has closed the program's input.
    pub(super) is_input_closed: bool,
    pub(super) answer: &'a TextTail,
    pub(super) errors: &'a TextTail,
    pub(super) usage_total: &'a UsageTotal,
}

impl ConversationProgress<'_> {
    /// Decides whether the program succeeded, from the progress of the conversation and the exit.
    /// An exit code of 0 alone does not mean success.
    pub(super) fn assess_exit(&self, exit: &Exit) -> ExitAssessment {
        let assess = |failure: &ProgramFailure| {
            self.usage_total
                .assessment(Some(failure.class), failure.detail.clone())
        };
        let assess_early_exit = |doing| assess(&early_exit_failure(exit, self.errors, doing));
        if let Exit::NotStarted(reason) = exit {
            return self
                .usage_total
                .assessment(Some(FailureClass::BadConfig), reason.clone());
        }
        match (
            self.start_failure,
            self.is_session_open,
            self.running_turn,
            self.last_turn_failure,
        ) {
            (Some(failure), ..) => assess(failure),
            (_, false, ..) => assess_early_exit("before its session was open"),
            (_, _, Some(true), _) => self
                .usage_total
                .assessment(Some(FailureClass::Cancelled), "The turn was cancelled."),
            (_, _, Some(false), _) => assess_early_exit("in the middle of a turn"),
            (_, _, None, Some(Some(failure))) => assess(failure),
            // The last turn succeeded and the program has no more input, so the way in which it
            // exits does not matter.
            (_, _, None, Some(None)) if self.is_input_closed || *exit == Exit::Code(0) => {
                self.usage_total.assessment(None, self.answer.text())
            }
            (_, _, None, Some(None)) => assess_early_exit("between two turns"),
            (_, _, None, None) => assess_early_exit("before its first prompt"),
        }
    }
}

/// Describes the failure of a program that ended too early. `doing` ends the sentence and tells
/// when, such as "before it had done its work".
pub(super) fn early_exit_failure(exit: &Exit, errors: &TextTail, doing: &str) -> ProgramFailure {
    let sentence = match exit {
        Exit::NotStarted(reason) => {
            return ProgramFailure::new(FailureClass::BadConfig, reason.clone());
        }
        Exit::Code(code) => format!("It ended with exit code {code} {doing}."),
        Exit::Signal(signal) => format!("Signal {signal} ended it {doing}."),
        Exit::Lost => format!("Its supervisor vanished {doing}."),
    };
    let last_lines = errors.error_text();
    let class = match exit {
        // A shell exits with 126 or 127 if it cannot run the command, so the agent's configuration
        // is wrong.
        Exit::Code(126 | 127) => Some(FailureClass::BadConfig),
        Exit::Code(_) => super::error_class::class_from_text(last_lines),
        _ => None,
    };
    let detail = if last_lines.is_empty() {
        sentence
    } else {
        format!("{sentence} Its last output: {last_lines}")
    };
    ProgramFailure::new(class.unwrap_or(FailureClass::Crashed), detail)
}

/// Combines a program's questions into one form with one field for each question, and returns the
/// form and the question for a person. `field_name` returns the name of the field of a question, from the question's index and the question.
pub(super) fn question_form(
    list: &Value,
    field_name: impl Fn(usize, &Value) -> String,
) -> (Value, RequestContent) {
    let questions: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    let text_of = |question: &Value| question["question"].as_str().unwrap_or_default().to_owned();
    let labels = |question: &Value| -> Vec<String> {
        let options = question["options"].as_array().into_iter().flatten();
        options
            .filter_map(|option| option["label"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let (mut fields, mut required) = (serde_json::Map::new(), Vec::new());
    for (index, question) in questions.iter().enumerate() {
        // List the labels of the possible answers as examples and not as an enumeration, because
        // other answers are allowed.
        let field =
            json!({ "type": "string", "title": text_of(question), "examples": labels(question) });
        required.push(field_name(index, question));
        fields.insert(field_name(index, question), field);
    }
    let form = json!({ "type": "object", "properties": fields, "required": required });
    let texts: Vec<String> = questions.iter().map(|question| text_of(question)).collect();
    let (choices, schema) = match questions.as_slice() {
        [question] => (labels(question), None),
        _ => (vec![], Some(form.to_string())),
    };
    let content = RequestContent::Question {
        text: texts.join("\n"),
        choices,
        schema,
    };
    (form, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn option(id: &str, kind: PermissionOptionKind) -> PermissionOption {
        PermissionOption {
            id: id.to_owned(),
            name: "Yes".to_owned(),
            kind,
        }
    }

    #[test]
    fn option_is_chosen_by_its_kind_in_any_order() {
        let mut options = vec![
            option("d", PermissionOptionKind::RejectAlways),
            option("b", PermissionOptionKind::AllowAlways),
            option("c", PermissionOptionKind::RejectOnce),
            option("a", PermissionOptionKind::AllowOnce),
            option("e", PermissionOptionKind::AllowOnce),
        ];
        for _ in 0..options.len() {
            options.rotate_left(1);
            for reversed in [false, true] {
                let mut shuffled = options.clone();
                if reversed {
                    shuffled.reverse();
                }
                let chosen = |answer: RequestAnswer| {
                    choose_option(&shuffled, &answer).map(|option| option.id.clone())
                };
                assert_eq!(chosen(RequestAnswer::Allow).as_deref(), Some("a"));
                assert_eq!(
                    chosen(RequestAnswer::Deny { reason: None }).as_deref(),
                    Some("c")
                );
                assert_eq!(chosen(RequestAnswer::Cancelled), None);
            }
        }
        let only = [option("always", PermissionOptionKind::AllowAlways)];
        assert_eq!(
            choose_option(&only, &RequestAnswer::Allow).map(|option| option.id.as_str()),
            Some("always")
        );
        assert_eq!(
            choose_option(&only, &RequestAnswer::Deny { reason: None }),
            None
        );
    }

    #[test]
    fn reused_request_id_gets_no_old_answer() {
        let mut requests = OpenRequests::default();
        let desired = SessionInput {
            answers: vec![("7".to_owned(), RequestAnswer::Allow)],
            ..SessionInput::default()
        };
        assert_eq!(requests.add(json!(7), (), false), "7");
        assert!(requests.next_answerable(&desired).is_some());
        requests.remove(&json!(7));
        assert_eq!(requests.add(json!(7), (), false), "7#2");
        assert!(requests.next_answerable(&desired).is_none());
    }

    #[test]
    fn usage_never_decreases() {
        let mut usage = UsageTotal::from_usage(Usage {
            input: 10,
            ..Usage::default()
        });
        assert!(
            usage
                .raise_to(Usage {
                    input: 5,
                    output: 3,
                    ..Usage::default()
                })
                .is_some()
        );
        assert_eq!((usage.total.input, usage.total.output), (10, 3));
        assert!(
            usage
                .raise_to(Usage {
                    input: 10,
                    output: 1,
                    ..Usage::default()
                })
                .is_none()
        );
        usage.add(Usage {
            input: 1,
            micro_usd: Some(4),
            ..Usage::default()
        });
        assert_eq!((usage.total.input, usage.total.micro_usd), (11, Some(4)));
    }

    #[test]
    fn tail_keeps_the_end_and_whole_characters() {
        let mut tail = TextTail::default();
        for _ in 0..5000 {
            tail.add("ä€");
        }
        tail.add("end");
        assert!(tail.text().ends_with("ä€end") && tail.text().len() <= 2 * MAX_ERROR_TAIL_BYTES);
        let mut answer = TextTail::for_answer();
        answer.add("begins");
        answer.add(&"ä".repeat(15_000));
        assert!(
            answer.text().starts_with("begins") && answer.text().len() > 30_000,
            "an answer is kept whole"
        );
        answer.add(&"ä".repeat(15_000));
        assert!(
            answer.text().starts_with("[The beginning is left out")
                && answer.text().len() <= MAX_ANSWER_BYTES
        );
    }
}
