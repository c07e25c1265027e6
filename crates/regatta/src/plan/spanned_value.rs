//! Parses TOML and JSON into the same tree, in which every key and value has its position in the
//! file.
//!
//! With positions, a mistake of meaning (such as an unknown blocker) can be reported with line and
//! column, like a syntax error. The meaning of the keys is not checked here.

use super::diagnostic::{Diagnostic, SourceText};

/// A value, and the byte offsets of its beginning and its end in the file.
#[derive(Clone, Debug)]
pub(crate) struct SpannedValue {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) value: PlanValue,
}

#[derive(Clone, Debug)]
pub(crate) enum PlanValue {
    Null,
    Bool(bool),
    Integer(i64),
    /// A number with a fraction, or an integer that does not fit into [`PlanValue::Integer`].
    Float(f64),
    Text(String),
    List(Vec<SpannedValue>),
    Table(Vec<TableEntry>),
}

/// One `key = value` of a table, with the byte offset of the key.
#[derive(Clone, Debug)]
pub(crate) struct TableEntry {
    pub(crate) key: String,
    pub(crate) start: usize,
    pub(crate) node: SpannedValue,
}

impl SpannedValue {
    /// Returns the kind of the value for error messages, such as `a string`.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.value {
            PlanValue::Null => "null",
            PlanValue::Bool(_) => "true or false",
            PlanValue::Integer(_) => "a number",
            PlanValue::Float(_) => "a fraction",
            PlanValue::Text(_) => "a string",
            PlanValue::List(_) => "a list",
            PlanValue::Table(_) => "a table",
        }
    }

    /// Adds `distance` to all offsets. Used after a line was parsed alone, to turn its offsets into
    /// offsets in the whole file.
    pub(crate) fn shift_offsets(&mut self, distance: usize) {
        self.start += distance;
        self.end += distance;
        match &mut self.value {
            PlanValue::List(items) => items
                .iter_mut()
                .for_each(|spanned_value| spanned_value.shift_offsets(distance)),
            PlanValue::Table(entries) => entries.iter_mut().for_each(|table| {
                table.start += distance;
                table.node.shift_offsets(distance);
            }),
            _ => {}
        }
    }

    /// Returns the value as JSON, without positions.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            PlanValue::Null => Json::Null,
            PlanValue::Bool(flag) => Json::Bool(*flag),
            PlanValue::Integer(n) => Json::from(*n),
            PlanValue::Float(x) => Json::from(*x),
            PlanValue::Text(s) => Json::String(s.clone()),
            PlanValue::List(spanned_values) => {
                spanned_values.iter().map(SpannedValue::to_json).collect()
            }
            PlanValue::Table(tables) => Json::Object(
                tables
                    .iter()
                    .map(|table| (table.key.clone(), table.node.to_json()))
                    .collect(),
            ),
        }
    }
}

/// Parses a TOML text. A syntax error is returned as a mistake with its position.
pub(crate) fn parse_toml(source: &SourceText) -> Result<SpannedValue, Diagnostic> {
    use toml::Spanned;
    use toml::de::{DeTable, DeValue};
    fn table(object: &DeTable<'_>, span: std::ops::Range<usize>) -> SpannedValue {
        let mut entries: Vec<TableEntry> = object
            .iter()
            .map(|(key, value)| TableEntry {
                key: key.get_ref().to_string(),
                start: key.span().start,
                node: value_of(value),
            })
            .collect();
        entries.sort_by_key(|table| table.start);
        SpannedValue {
            start: span.start,
            end: span.end,
            value: PlanValue::Table(entries),
        }
    }
    fn value_of(spanned: &Spanned<DeValue<'_>>) -> SpannedValue {
        let span = spanned.span();
        let value = match spanned.get_ref() {
            DeValue::String(s) => PlanValue::Text(s.to_string()),
            DeValue::Integer(de_integer) => {
                match i64::from_str_radix(de_integer.as_str(), de_integer.radix()) {
                    Ok(n) => PlanValue::Integer(n),
                    Err(_) => PlanValue::Float(de_integer.as_str().parse().unwrap_or(f64::MAX)),
                }
            }
            DeValue::Float(de_float) => {
                PlanValue::Float(de_float.as_str().parse().unwrap_or(f64::MAX))
            }
            DeValue::Boolean(flag) => PlanValue::Bool(*flag),
            DeValue::Datetime(datetime) => PlanValue::Text(datetime.to_string()),
            DeValue::Array(de_array) => PlanValue::List(de_array.iter().map(value_of).collect()),
            DeValue::Table(object) => return table(object, span),
        };
        SpannedValue {
            start: span.start,
            end: span.end,
            value,
        }
    }
    match DeTable::parse(&source.text) {
        Ok(spanned) => Ok(table(spanned.get_ref(), 0..source.text.len())),
        Err(error) => {
            let start = error.span().map_or(0, |range| range.start);
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            let fix = if what.contains("array table") {
                "close the brackets, as in [[task]]"
            } else {
                "write name = \"value\", as in subject = \"…\""
            };
            Err(source.diagnostic(start, format!("this is not TOML: {what}"), fix))
        }
    }
}

/// Parses a JSON text. serde_json checks the syntax first; then [`JsonWalker`] walks through the
/// text again to find the positions.
pub(crate) fn parse_json(source: &SourceText) -> Result<SpannedValue, Diagnostic> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&source.text) {
        let words = error.to_string();
        let what = words.split(" at line ").next().unwrap_or_default();
        return Err(Diagnostic {
            line: error.line().max(1),
            column: error.column().max(1),
            what: format!("this is not JSON: {what}"),
            fix: "look for a missing comma, quote or bracket just before it".into(),
        });
    }
    let mut walk = JsonWalker {
        source,
        offset: 0,
        duplicate_key: None,
    };
    let node = walk.value();
    walk.duplicate_key.map_or(Ok(node), Err)
}

/// Walks through a text that is known to be valid JSON, and builds the tree with positions.
struct JsonWalker<'a> {
    source: &'a SourceText,
    offset: usize,
    /// The mistake to report if a key appears twice in one object, because one of the two values
    /// would be lost.
    duplicate_key: Option<Diagnostic>,
}

impl JsonWalker<'_> {
    fn remaining(&self) -> &str {
        &self.source.text[self.offset..]
    }

    fn skip_whitespace(&mut self) {
        self.offset += self.remaining().len()
            - self
                .remaining()
                .trim_start_matches([' ', '\t', '\r', '\n'])
                .len();
    }

    /// Skips the next character if it is `sign`. Returns true if a character was skipped.
    fn skip_if(&mut self, sign: char) -> bool {
        self.skip_whitespace();
        let found = self.remaining().starts_with(sign);
        self.offset += usize::from(found);
        found
    }

    fn value(&mut self) -> SpannedValue {
        self.skip_whitespace();
        let start = self.offset;
        let value = match self.remaining().as_bytes().first() {
            Some(b'{') => self.table(),
            Some(b'[') => self.list(),
            Some(b'"') => PlanValue::Text(self.text()),
            _ => self.scalar(),
        };
        SpannedValue {
            start,
            end: self.offset,
            value,
        }
    }

    fn table(&mut self) -> PlanValue {
        let mut entries: Vec<TableEntry> = Vec::new();
        self.offset += 1;
        while !self.remaining().is_empty() && !self.skip_if('}') {
            let at = self.offset;
            let key = self.text();
            if entries.iter().any(|table| table.key == key) && self.duplicate_key.is_none() {
                self.duplicate_key = Some(self.source.diagnostic(
                    at,
                    format!("duplicate key `{key}`"),
                    "keep one of the two",
                ));
            }
            let _colon = self.skip_if(':');
            let node = self.value();
            let _comma = self.skip_if(',');
            entries.push(TableEntry {
                key,
                start: at,
                node,
            });
        }
        PlanValue::Table(entries)
    }

    fn list(&mut self) -> PlanValue {
        let mut items = Vec::new();
        self.offset += 1;
        while !self.remaining().is_empty() && !self.skip_if(']') {
            items.push(self.value());
            let _comma = self.skip_if(',');
        }
        PlanValue::List(items)
    }

    fn text(&mut self) -> String {
        let bytes = self.remaining().as_bytes();
        let mut end = 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = (end + 1).min(bytes.len());
        let text = serde_json::from_str(&self.remaining()[..end]).unwrap_or_default();
        self.offset += end;
        text
    }

    fn scalar(&mut self) -> PlanValue {
        let word: String = self
            .remaining()
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c))
            .collect();
        self.offset += word.len().max(1);
        match word.as_str() {
            "null" => PlanValue::Null,
            "true" => PlanValue::Bool(true),
            "false" => PlanValue::Bool(false),
            other => match other.parse() {
                Ok(n) => PlanValue::Integer(n),
                Err(_) => PlanValue::Float(other.parse().unwrap_or(f64::MAX)),
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
        let tree = parse_json(&SourceText::new("p.json", json_text)).unwrap();
        assert_eq!(
            tree.to_json(),
            serde_json::from_str::<serde_json::Value>(json_text).unwrap()
        );
        let PlanValue::Table(entries) = &tree.value else {
            panic!("{tree:?}")
        };
        assert_eq!(
            (
                &json_text[entries[1].start..entries[1].start + 3],
                entries[1].key.as_str()
            ),
            ("\"b\"", "b")
        );
        let toml_text = "a = [1, -2.5, 'x']\n[b]\nc = {}\n[[d]]\ne = 0x10\n";
        let tree = parse_toml(&SourceText::new("p.toml", toml_text)).unwrap();
        assert_eq!(
            tree.to_json(),
            serde_json::json!({ "a": [1, -2.5, "x"], "b": { "c": {} }, "d": [{ "e": 16 }] })
        );
        assert!(
            parse_json(&SourceText::new("p.json", "{\"a\":1,\"a\":2}"))
                .is_err_and(|diagnostic| diagnostic.column == 8)
        );
    }
}
