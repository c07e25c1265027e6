//! State that several drivers share: open requests, usage, and the end of the output.

use std::collections::BTreeMap;

use regatta_core::session::{Answer, AskOption, Class, OptionKind, Said, Usage};
use regatta_engine::ports::agents::{Exit, Wishes};
use serde_json::Value;

use super::verdict::Trouble;
use crate::driver::{Judgement, Record, Stream};

/// The number of bytes of errors and logs that are kept for people.
const LAST_WORDS: usize = 4000;
/// The number of bytes up to which an answer is kept whole. It is shown in threads of outside
/// services.
const MAX_ANSWER_BYTES: usize = 47_000;
/// The number of bytes that are kept of a longer answer.
const CUT_ANSWER_BYTES: usize = 40_000;
/// The text in place of the removed beginning of an answer.
const CUT: &str = "[The beginning is left out here. The transcript has all of it.]\n\n";

/// The number of characters that are shown of a line that violates the protocol.
const MAX_UNREADABLE_CHARS: usize = 4000;

/// Returns a notice about a line that violates the protocol. The line may have megabytes, because a
/// line that was cut for its length is among these.
pub(super) fn unreadable(line: &str) -> Said {
    let left_out = line.chars().skip(MAX_UNREADABLE_CHARS).count();
    if left_out == 0 {
        return Said::Notice { text: line.to_owned() };
    }
    let shown: String = line.chars().take(MAX_UNREADABLE_CHARS).collect();
    Said::Notice { text: format!("{shown} … {left_out} more characters") }
}

/// The end of a text that may be long.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    text: String,
    /// The maximum length in bytes, and the length to which a longer text is cut.
    max: usize,
    cut_to: usize,
    mark: &'static str,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail { text: String::new(), max: 2 * LAST_WORDS, cut_to: LAST_WORDS, mark: "" }
    }
}

impl Tail {
    /// Creates a tail for an agent's answer.
    pub(super) fn of_answer() -> Tail {
        Tail { text: String::new(), max: MAX_ANSWER_BYTES, cut_to: CUT_ANSWER_BYTES, mark: CUT }
    }

    pub(super) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > self.max {
            let least = self.text.len() - self.cut_to;
            let from = (least..).find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
            self.text.replace_range(..from, self.mark);
        }
    }

    pub(super) fn add_line(&mut self, line: &str) {
        self.add(line);
        self.add("\n");
    }

    /// Returns a notice about a line of standard error, which is kept too, or about a mark of the
    /// shim.
    pub(super) fn aside(&mut self, record: &Record) -> Vec<Said> {
        if record.stream == Stream::Err {
            self.add_line(&record.line);
        }
        // A mark of the shim is turned into a sentence.
        let words = if record.stream == Stream::Mark { crate::journal::Mark::explain(&record.line) } else { None };
        vec![Said::Notice { text: words.unwrap_or_else(|| record.line.clone()) }]
    }

    /// Returns the end of the text for an error message.
    pub(super) fn last_words(&self) -> &str {
        let text = self.text();
        let from = (text.len().saturating_sub(LAST_WORDS)..).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        &text[from..]
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
    }

    pub(super) fn text(&self) -> &str {
        self.text.trim()
    }
}

/// The tokens and the cost of one native session, which never decrease.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) session: Option<String>,
    total: Usage,
}

impl Ledger {
    /// Starts from the usage that is already recorded for the session.
    pub(super) fn from(used: Usage) -> Ledger {
        Ledger { session: None, total: used }
    }

    pub(super) fn total(&self) -> Usage {
        self.total
    }

    /// Adds the usage of one turn.
    pub(super) fn add(&mut self, turn: Usage) -> Option<Said> {
        self.set(self.total.plus(&turn))
    }

    /// Takes a cumulative count. Parts that would decrease stay unchanged.
    pub(super) fn reach(&mut self, seen: Usage) -> Option<Said> {
        self.set(self.total.most(&seen))
    }

    fn set(&mut self, total: Usage) -> Option<Said> {
        let changed = total != self.total;
        self.total = total;
        changed.then(|| Said::Usage { session: self.session.clone(), usage: total })
    }

    fn all(&self) -> Vec<(Option<String>, Usage)> {
        if self.total == Usage::default() { vec![] } else { vec![(self.session.clone(), self.total)] }
    }

    /// Builds a judgement with this usage.
    pub(super) fn judged(&self, class: Option<Class>, detail: impl Into<String>) -> Judgement {
        Judgement { class, detail: detail.into(), usage: self.all() }
    }
}

/// An open request, with the facts that are needed to format its answer.
#[derive(Clone, Debug)]
pub(super) struct Open<T> {
    /// The request's name on the board.
    pub(super) key: String,
    /// The program's own id of the request.
    pub(super) id: Value,
    pub(super) what: T,
    /// Set if the turn was cancelled. The request is then answered "cancelled", whatever a person
    /// answers.
    cancelled: bool,
}

/// The open requests, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Asks<T> {
    open: Vec<Open<T>>,
    /// The number of uses of each id. A program that reuses an id must not get the old answer.
    seen: BTreeMap<String, u32>,
}

impl<T> Default for Asks<T> {
    fn default() -> Asks<T> {
        Asks { open: Vec::new(), seen: BTreeMap::new() }
    }
}

impl<T> Asks<T> {
    /// Adds a request and returns its name. `cancelled` tells that its turn is already being
    /// cancelled.
    pub(super) fn open(&mut self, id: Value, what: T, cancelled: bool) -> String {
        let text = super::rpc::id_text(&id);
        let times = self.seen.entry(text.clone()).or_default();
        *times += 1;
        let key = if *times == 1 { text } else { format!("{text}#{times}") };
        self.open.push(Open { key: key.clone(), id, what, cancelled });
        key
    }

    /// Removes the request with this id, because it was answered.
    pub(super) fn close(&mut self, id: &Value) -> Option<Open<T>> {
        let at = self.open.iter().position(|it| it.id == *id)?;
        Some(self.open.remove(at))
    }

    /// Cancels the open requests and returns the events that withdraw them.
    pub(super) fn cancel(&mut self) -> Vec<Said> {
        let open = self.open.iter_mut().filter(|it| !it.cancelled);
        open.map(|it| {
            it.cancelled = true;
            Said::Withdrew { ask: it.key.clone() }
        })
        .collect()
    }

    /// Cancels a request that the program has withdrawn.
    pub(super) fn withdraw(&mut self, id: &Value) -> Option<Said> {
        let open = self.open.iter_mut().find(|it| it.id == *id && !it.cancelled)?;
        open.cancelled = true;
        Some(Said::Withdrew { ask: open.key.clone() })
    }

    /// Returns the first request that can be answered now, with its answer. An answer to a request
    /// that is not open is ignored.
    pub(super) fn answerable(&self, wishes: &Wishes) -> Option<(&Open<T>, Answer)> {
        self.open.iter().find_map(|open| {
            let wished = || wishes.answers.iter().find(|(ask, _)| *ask == open.key).map(|(_, answer)| answer.clone());
            let answer = if open.cancelled { Some(Answer::Cancelled) } else { wished() };
            answer.map(|it| (open, it))
        })
    }
}

/// Chooses an option by its kind, never by its position or name. Of several options of one kind the
/// smallest id is chosen, so that their order does not matter.
pub(super) fn choose<'a>(options: &'a [AskOption], answer: &Answer) -> Option<&'a AskOption> {
    let kinds: &[OptionKind] = match answer {
        Answer::Allow | Answer::Text { .. } => &[OptionKind::AllowOnce, OptionKind::AllowAlways],
        Answer::Deny { .. } => &[OptionKind::RejectOnce, OptionKind::RejectAlways],
        Answer::Cancelled => &[],
    };
    kinds.iter().find_map(|kind| options.iter().filter(|it| it.kind == *kind).min_by(|a, b| a.id.cmp(&b.id)))
}

/// The progress of a conversation, from which its end is judged.
pub(super) struct Course<'a> {
    /// The reason why there is no session, if it is known.
    pub(super) failed: Option<&'a Trouble>,
    pub(super) open: bool,
    /// Set while a turn runs; the value tells whether it was cancelled.
    pub(super) turn: Option<bool>,
    /// The result of the last turn, if one has ended.
    pub(super) last: Option<Option<&'a Trouble>>,
    /// Set once the program's input was closed.
    pub(super) closed: bool,
    pub(super) words: &'a Tail,
    pub(super) errors: &'a Tail,
    pub(super) books: &'a Ledger,
}

impl Course<'_> {
    /// Judges the program's end. An exit code alone does not mean success.
    pub(super) fn judge(&self, exit: &Exit) -> Judgement {
        let of = |it: &Trouble| self.books.judged(Some(it.class), it.detail.clone());
        let broken = |doing| of(&broke_off(exit, self.errors, doing));
        if let Exit::NotStarted(why) = exit {
            return self.books.judged(Some(Class::BadConfig), why.clone());
        }
        match (self.failed, self.open, self.turn, self.last) {
            (Some(trouble), ..) => of(trouble),
            (_, false, ..) => broken("before its session was open"),
            (_, _, Some(true), _) => self.books.judged(Some(Class::Cancelled), "The turn was cancelled."),
            (_, _, Some(false), _) => broken("in the middle of a turn"),
            (_, _, None, Some(Some(trouble))) => of(trouble),
            // After its last turn and the end of its input, the way in which the program exits does
            // not matter.
            (_, _, None, Some(None)) if self.closed || *exit == Exit::Code(0) => {
                self.books.judged(None, self.words.text())
            }
            (_, _, None, Some(None)) => broken("between two turns"),
            (_, _, None, None) => broken("before its first prompt"),
        }
    }
}

/// Judges an end before the session was open or in the middle of a turn.
pub(super) fn broke_off(exit: &Exit, errors: &Tail, doing: &str) -> Trouble {
    let how = match exit {
        Exit::NotStarted(why) => return Trouble::new(Class::BadConfig, why.clone()),
        Exit::Code(code) => format!("It ended with exit code {code} {doing}."),
        Exit::Signal(signal) => format!("Signal {signal} ended it {doing}."),
        Exit::Lost => format!("Its supervisor vanished {doing}."),
    };
    let words = errors.last_words();
    let class = match exit {
        // With 126 and 127 a shell reports a program that cannot be run.
        Exit::Code(126 | 127) => Some(Class::BadConfig),
        Exit::Code(_) => super::verdict::of_text(words),
        _ => None,
    };
    let detail = if words.is_empty() { how } else { format!("{how} Its last words: {words}") };
    Trouble::new(class.unwrap_or(Class::Crashed), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn option(id: &str, kind: OptionKind) -> AskOption {
        AskOption { id: id.to_owned(), name: "Yes".to_owned(), kind }
    }

    #[test]
    fn option_is_chosen_by_its_kind_in_any_order() {
        let mut options = vec![
            option("d", OptionKind::RejectAlways),
            option("b", OptionKind::AllowAlways),
            option("c", OptionKind::RejectOnce),
            option("a", OptionKind::AllowOnce),
            option("e", OptionKind::AllowOnce),
        ];
        for _ in 0..options.len() {
            options.rotate_left(1);
            for reversed in [false, true] {
                let mut shuffled = options.clone();
                if reversed {
                    shuffled.reverse();
                }
                let chosen = |answer: Answer| choose(&shuffled, &answer).map(|it| it.id.clone());
                assert_eq!(chosen(Answer::Allow).as_deref(), Some("a"));
                assert_eq!(chosen(Answer::Deny { words: None }).as_deref(), Some("c"));
                assert_eq!(chosen(Answer::Cancelled), None);
            }
        }
        let only = [option("always", OptionKind::AllowAlways)];
        assert_eq!(choose(&only, &Answer::Allow).map(|it| it.id.as_str()), Some("always"));
        assert_eq!(choose(&only, &Answer::Deny { words: None }), None);
    }

    #[test]
    fn reused_request_id_gets_no_old_answer() {
        let mut asks = Asks::default();
        let wishes = Wishes { answers: vec![("7".to_owned(), Answer::Allow)], ..Wishes::default() };
        assert_eq!(asks.open(json!(7), (), false), "7");
        assert!(asks.answerable(&wishes).is_some());
        asks.close(&json!(7));
        assert_eq!(asks.open(json!(7), (), false), "7#2");
        assert!(asks.answerable(&wishes).is_none());
    }

    #[test]
    fn usage_never_decreases() {
        let mut ledger = Ledger::from(Usage { input: 10, ..Usage::default() });
        assert!(ledger.reach(Usage { input: 5, output: 3, ..Usage::default() }).is_some());
        assert_eq!((ledger.total.input, ledger.total.output), (10, 3));
        assert!(ledger.reach(Usage { input: 10, output: 1, ..Usage::default() }).is_none());
        ledger.add(Usage { input: 1, micro_usd: Some(4), ..Usage::default() });
        assert_eq!((ledger.total.input, ledger.total.micro_usd), (11, Some(4)));
    }

    #[test]
    fn tail_keeps_the_end_and_whole_characters() {
        let mut tail = Tail::default();
        for _ in 0..5000 {
            tail.add("ä€");
        }
        tail.add("end");
        assert!(tail.text().ends_with("ä€end") && tail.text().len() <= 2 * LAST_WORDS);
        let mut answer = Tail::of_answer();
        answer.add("begins");
        answer.add(&"ä".repeat(15_000));
        assert!(answer.text().starts_with("begins") && answer.text().len() > 30_000, "an answer is kept whole");
        answer.add(&"ä".repeat(15_000));
        assert!(answer.text().starts_with("[The beginning is left out") && answer.text().len() <= MAX_ANSWER_BYTES);
    }
}
