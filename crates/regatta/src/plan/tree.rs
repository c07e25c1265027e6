//! TOML and JSON as one tree in which every key and value has its position.
//!
//! With positions, a mistake of meaning (an unknown blocker, a path outside of the repository) is
//! shown as exactly as a syntax error. The tree knows nothing about plans.

use super::fault::{Fault, Source};

/// A value and the offsets of its beginning and its end.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: usize,
    pub(crate) end: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Whole(i64),
    /// A fraction, or a number that does not fit into [`Value::Whole`].
    Number(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// One `key = value`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: usize,
    pub(crate) node: Node,
}

impl Node {
    /// Returns the kind of the value for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Whole(_) => "a number",
            Value::Number(_) => "a fraction",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Moves all positions by `by`, so that the tree of one line becomes part of its file's tree.
    pub(crate) fn shift(&mut self, by: usize) {
        self.at += by;
        self.end += by;
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|it| it.shift(by)),
            Value::Table(entries) => entries.iter_mut().for_each(|it| {
                it.at += by;
                it.node.shift(by);
            }),
            _ => {}
        }
    }

    /// Returns the value without positions.
    pub(crate) fn plain(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(it) => Json::Bool(*it),
            Value::Whole(it) => Json::from(*it),
            Value::Number(it) => Json::from(*it),
            Value::Text(it) => Json::String(it.clone()),
            Value::List(it) => it.iter().map(Node::plain).collect(),
            Value::Table(it) => Json::Object(it.iter().map(|it| (it.key.clone(), it.node.plain())).collect()),
        }
    }
}

/// Parses TOML.
pub(crate) fn toml(source: &Source) -> Result<Node, Fault> {
    use toml::Spanned;
    use toml::de::{DeTable, DeValue};
    fn table(it: &DeTable<'_>, span: std::ops::Range<usize>) -> Node {
        let mut entries: Vec<Entry> = it
            .iter()
            .map(|(key, value)| Entry { key: key.get_ref().to_string(), at: key.span().start, node: value_of(value) })
            .collect();
        entries.sort_by_key(|it| it.at);
        Node { at: span.start, end: span.end, value: Value::Table(entries) }
    }
    fn value_of(it: &Spanned<DeValue<'_>>) -> Node {
        let span = it.span();
        let value = match it.get_ref() {
            DeValue::String(it) => Value::Text(it.to_string()),
            DeValue::Integer(it) => match i64::from_str_radix(it.as_str(), it.radix()) {
                Ok(it) => Value::Whole(it),
                Err(_) => Value::Number(it.as_str().parse().unwrap_or(f64::MAX)),
            },
            DeValue::Float(it) => Value::Number(it.as_str().parse().unwrap_or(f64::MAX)),
            DeValue::Boolean(it) => Value::Bool(*it),
            DeValue::Datetime(it) => Value::Text(it.to_string()),
            DeValue::Array(it) => Value::List(it.iter().map(value_of).collect()),
            DeValue::Table(it) => return table(it, span),
        };
        Node { at: span.start, end: span.end, value }
    }
    match DeTable::parse(&source.text) {
        Ok(it) => Ok(table(it.get_ref(), 0..source.text.len())),
        Err(error) => {
            let at = error.span().map_or(0, |it| it.start);
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            Err(source.fault(at, format!("this is not TOML: {what}"), "write name = \"value\", as in subject = \"…\""))
        }
    }
}

/// Parses JSON. serde_json checks the syntax; afterwards [`Walk`] finds the positions.
pub(crate) fn json(source: &Source) -> Result<Node, Fault> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&source.text) {
        let words = error.to_string();
        let what = words.split(" at line ").next().unwrap_or_default();
        return Err(Fault {
            line: error.line().max(1),
            column: error.column().max(1),
            what: format!("this is not JSON: {what}"),
            fix: "look for a missing comma, quote or bracket just before it".into(),
        });
    }
    let mut walk = Walk { source, at: 0, twice: None };
    let node = walk.value();
    walk.twice.map_or(Ok(node), Err)
}

/// Walks through a text that is known to be valid JSON.
struct Walk<'a> {
    source: &'a Source,
    at: usize,
    /// A key that appears twice in one object, which would lose one of the two values.
    twice: Option<Fault>,
}

impl Walk<'_> {
    fn rest(&self) -> &str {
        &self.source.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    /// Skips a character if it comes next, and returns whether it did.
    fn takes(&mut self, sign: char) -> bool {
        self.skip();
        let found = self.rest().starts_with(sign);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Node {
        self.skip();
        let at = self.at;
        let value = match self.rest().as_bytes().first() {
            Some(b'{') => self.table(),
            Some(b'[') => self.list(),
            Some(b'"') => Value::Text(self.text()),
            _ => self.bare(),
        };
        Node { at, end: self.at, value }
    }

    fn table(&mut self) -> Value {
        let mut entries: Vec<Entry> = Vec::new();
        self.at += 1;
        while !self.rest().is_empty() && !self.takes('}') {
            let at = self.at;
            let key = self.text();
            if entries.iter().any(|it| it.key == key) && self.twice.is_none() {
                self.twice = Some(self.source.fault(at, format!("duplicate key `{key}`"), "keep one of the two"));
            }
            let _colon = self.takes(':');
            let node = self.value();
            let _comma = self.takes(',');
            entries.push(Entry { key, at, node });
        }
        Value::Table(entries)
    }

    fn list(&mut self) -> Value {
        let mut items = Vec::new();
        self.at += 1;
        while !self.rest().is_empty() && !self.takes(']') {
            items.push(self.value());
            let _comma = self.takes(',');
        }
        Value::List(items)
    }

    fn text(&mut self) -> String {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(bytes.len());
        let text = serde_json::from_str(&self.rest()[..end]).unwrap_or_default();
        self.at += end;
        text
    }

    fn bare(&mut self) -> Value {
        let word: String =
            self.rest().chars().take_while(|it| it.is_ascii_alphanumeric() || "+-.".contains(*it)).collect();
        self.at += word.len().max(1);
        match word.as_str() {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            other => match other.parse() {
                Ok(it) => Value::Whole(it),
                Err(_) => Value::Number(other.parse().unwrap_or(f64::MAX)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_toml_give_the_same_tree_with_places() {
        let json_text = "{\n \"a\": [1, -2.5, \"x\\\"ü\", true, null],\n \"b\": {\"c\": {}}}";
        let tree = json(&Source::new("p.json", json_text)).unwrap();
        assert_eq!(tree.plain(), serde_json::from_str::<serde_json::Value>(json_text).unwrap());
        let Value::Table(entries) = &tree.value else { panic!("{tree:?}") };
        assert_eq!((&json_text[entries[1].at..entries[1].at + 3], entries[1].key.as_str()), ("\"b\"", "b"));
        let toml_text = "a = [1, -2.5, 'x']\n[b]\nc = {}\n[[d]]\ne = 0x10\n";
        let tree = toml(&Source::new("p.toml", toml_text)).unwrap();
        assert_eq!(tree.plain(), serde_json::json!({ "a": [1, -2.5, "x"], "b": { "c": {} }, "d": [{ "e": 16 }] }));
        assert!(json(&Source::new("p.json", "{\"a\":1,\"a\":2}")).is_err_and(|it| it.column == 8));
    }
}
