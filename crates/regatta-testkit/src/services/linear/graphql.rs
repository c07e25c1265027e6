//! Parses and answers the part of GraphQL that Linear's clients use. Queries are parsed strictly,
//! and answers contain only the fields that the client selected.
//!
//! There is no schema. An answer is built as a JSON object with its `__typename` and all fields of
//! its type. If a client selects a field that the object lacks, the query is refused, as by the
//! real service.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A parsed GraphQL query or mutation.
#[derive(Debug)]
pub(crate) struct GraphqlDocument {
    /// The kind of operation: `query` or `mutation`.
    pub(crate) kind: String,
    /// The variables: name, declared type and default value.
    pub(crate) variables: Vec<(String, String, Option<WrittenValue>)>,
    pub(crate) fields: Vec<GraphqlSelection>,
    fragments: BTreeMap<String, (String, Vec<GraphqlSelection>)>,
}

#[derive(Clone, Debug)]
pub(crate) enum GraphqlSelection {
    Field {
        alias: String,
        name: String,
        arguments: Vec<(String, WrittenValue)>,
        inner: Vec<GraphqlSelection>,
    },
    Spread(String),
    Inline(Option<String>, Vec<GraphqlSelection>),
}

/// A value as it is written in a GraphQL document. It can contain variables.
#[derive(Clone, Debug)]
pub(crate) enum WrittenValue {
    Variable(String),
    Literal(Value),
    List(Vec<WrittenValue>),
    Object(Vec<(String, WrittenValue)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number(String),
    Mark(char),
    Spread,
}

fn tokenize(text: &str) -> Result<Vec<Token>, String> {
    let mut found = vec![];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' | ',' | '\u{feff}' => {}
            '#' => while rest.next().is_some_and(|c| c != '\n') {},
            '"' => {
                let mut raw = String::from('"');
                loop {
                    match rest.next() {
                        Some('"') => break,
                        Some('\\') => {
                            raw.push('\\');
                            raw.extend(rest.next());
                        }
                        Some(other) => raw.push(other),
                        None => return Err("Syntax Error: Unterminated string.".into()),
                    }
                }
                raw.push('"');
                let text =
                    serde_json::from_str(&raw).map_err(|error| format!("Syntax Error: {error}"))?;
                found.push(Token::Text(text));
            }
            '.' if rest.peek() == Some(&'.') => {
                rest.next();
                if rest.next() != Some('.') {
                    return Err("Syntax Error: Unexpected \".\".".into());
                }
                found.push(Token::Spread);
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::from(c);
                while let Some(next) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(next);
                }
                found.push(Token::Name(name));
            }
            c if c.is_ascii_digit() || c == '-' => {
                let mut number = String::from(c);
                while let Some(next) = rest.next_if(|c| c.is_ascii_digit() || ".eE+-".contains(*c))
                {
                    number.push(next);
                }
                found.push(Token::Number(number));
            }
            c if "{}()[]:!$=@".contains(c) => found.push(Token::Mark(c)),
            other => return Err(format!("Syntax Error: Unexpected character: \"{other}\".")),
        }
    }
    Ok(found)
}

struct GraphqlParser {
    tokens: Vec<Token>,
    position: usize,
}

impl GraphqlParser {
    fn next(&mut self) -> Result<Token, String> {
        let found = self
            .tokens
            .get(self.position)
            .cloned()
            .ok_or("Syntax Error: Unexpected <EOF>.")?;
        self.position += 1;
        Ok(found)
    }

    fn skip_if(&mut self, mark: char) -> bool {
        let found = self.tokens.get(self.position) == Some(&Token::Mark(mark));
        self.position += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        match self.next()? {
            Token::Mark(found) if found == mark => Ok(()),
            other => Err(format!(
                "Syntax Error: Expected \"{mark}\", found {other:?}."
            )),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Name(name) => Ok(name),
            other => Err(format!("Syntax Error: Expected Name, found {other:?}.")),
        }
    }

    /// Reads the name of a type, such as `[String!]!`.
    fn type_name(&mut self) -> Result<String, String> {
        let mut kind = if self.skip_if('[') {
            let inner = self.type_name()?;
            self.expect(']')?;
            format!("[{inner}]")
        } else {
            self.name()?
        };
        if self.skip_if('!') {
            kind.push('!');
        }
        Ok(kind)
    }

    fn value(&mut self) -> Result<WrittenValue, String> {
        Ok(match self.next()? {
            Token::Mark('$') => WrittenValue::Variable(self.name()?),
            Token::Text(text) => WrittenValue::Literal(Value::String(text)),
            Token::Number(text) => WrittenValue::Literal(
                serde_json::from_str(&text)
                    .map_err(|_| format!("Syntax Error: Invalid number {text}."))?,
            ),
            Token::Name(name) => WrittenValue::Literal(match name.as_str() {
                "true" => json!(true),
                "false" => json!(false),
                "null" => Value::Null,
                _ => json!(name),
            }),
            Token::Mark('[') => {
                let mut list = vec![];
                while !self.skip_if(']') {
                    list.push(self.value()?);
                }
                WrittenValue::List(list)
            }
            Token::Mark('{') => {
                let mut fields = vec![];
                while !self.skip_if('}') {
                    let name = self.name()?;
                    self.expect(':')?;
                    fields.push((name, self.value()?));
                }
                WrittenValue::Object(fields)
            }
            other => return Err(format!("Syntax Error: Unexpected {other:?}.")),
        })
    }

    fn selections(&mut self) -> Result<Vec<GraphqlSelection>, String> {
        self.expect('{')?;
        let mut found = vec![];
        while !self.skip_if('}') {
            if self.tokens.get(self.position) == Some(&Token::Spread) {
                self.position += 1;
                found.push(match self.tokens.get(self.position) {
                    Some(Token::Name(name)) if name == "on" => {
                        self.position += 1;
                        let kind = self.name()?;
                        GraphqlSelection::Inline(Some(kind), self.selections()?)
                    }
                    Some(Token::Name(_)) => GraphqlSelection::Spread(self.name()?),
                    _ => GraphqlSelection::Inline(None, self.selections()?),
                });
                continue;
            }
            let mut name = self.name()?;
            let alias = name.clone();
            if self.skip_if(':') {
                name = self.name()?;
            }
            let mut arguments = vec![];
            if self.skip_if('(') {
                while !self.skip_if(')') {
                    let name = self.name()?;
                    self.expect(':')?;
                    arguments.push((name, self.value()?));
                }
            }
            let inner = if self.tokens.get(self.position) == Some(&Token::Mark('{')) {
                self.selections()?
            } else {
                vec![]
            };
            found.push(GraphqlSelection::Field {
                alias,
                name,
                arguments,
                inner,
            });
        }
        if found.is_empty() {
            return Err("Syntax Error: Expected Name, found \"}\".".into());
        }
        Ok(found)
    }
}

/// Parses a GraphQL document. If it has several operations, `wanted` names the one to use.
pub(crate) fn parse_document(text: &str, wanted: Option<&str>) -> Result<GraphqlDocument, String> {
    let mut reader = GraphqlParser {
        tokens: tokenize(text)?,
        position: 0,
    };
    let mut fragments = BTreeMap::new();
    let mut operations = vec![];
    while reader.position < reader.tokens.len() {
        if reader.tokens[reader.position] == Token::Mark('{') {
            operations.push((None, "query".to_owned(), vec![], reader.selections()?));
            continue;
        }
        let kind = reader.name()?;
        if kind == "fragment" {
            let name = reader.name()?;
            if reader.name()? != "on" {
                return Err("Syntax Error: Expected \"on\".".into());
            }
            let of = reader.name()?;
            fragments.insert(name, (of, reader.selections()?));
            continue;
        }
        if kind != "query" && kind != "mutation" {
            return Err(format!("Syntax Error: Unexpected Name \"{kind}\"."));
        }
        let name = if let Some(Token::Name(_)) = reader.tokens.get(reader.position) {
            Some(reader.name()?)
        } else {
            None
        };
        let mut variables = vec![];
        if reader.skip_if('(') {
            while !reader.skip_if(')') {
                reader.expect('$')?;
                let name = reader.name()?;
                reader.expect(':')?;
                let kind = reader.type_name()?;
                let default = if reader.skip_if('=') {
                    Some(reader.value()?)
                } else {
                    None
                };
                variables.push((name, kind, default));
            }
        }
        operations.push((name, kind, variables, reader.selections()?));
    }
    let chosen = match wanted {
        Some(wanted) => operations
            .into_iter()
            .find(|operation| operation.0.as_deref() == Some(wanted)),
        None if operations.len() > 1 => return Err("Must provide operation name.".into()),
        None => operations.pop(),
    };
    let (_, kind, variables, fields) = chosen.ok_or("Unknown operation.")?;
    Ok(GraphqlDocument {
        kind,
        variables,
        fields,
        fragments,
    })
}

impl GraphqlDocument {
    /// Returns the values of the variables, with defaults for missing ones. A missing variable that
    /// is required is an error.
    pub(crate) fn variables(&self, given: &Value) -> Result<Map<String, Value>, String> {
        let mut all = Map::new();
        for (name, kind, default) in &self.variables {
            let value = given.get(name).cloned().or_else(|| {
                default
                    .as_ref()
                    .map(|written_value| self.resolve_value(written_value, &Map::new()))
            });
            match value {
                Some(Value::Null) | None if kind.ends_with('!') => {
                    return Err(format!(
                        "Variable \"${name}\" of required type \"{kind}\" was not provided."
                    ));
                }
                Some(value) => drop(all.insert(name.clone(), value)),
                None => {}
            }
        }
        Ok(all)
    }

    /// Returns a written value with its variables replaced by their values.
    pub(crate) fn resolve_value(
        &self,
        given: &WrittenValue,
        variables: &Map<String, Value>,
    ) -> Value {
        match given {
            WrittenValue::Variable(name) => variables.get(name).cloned().unwrap_or_default(),
            WrittenValue::Literal(value) => value.clone(),
            WrittenValue::List(list) => list
                .iter()
                .map(|written_value| self.resolve_value(written_value, variables))
                .collect(),
            WrittenValue::Object(fields) => fields
                .iter()
                .map(|field| (field.0.clone(), self.resolve_value(&field.1, variables)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    /// Returns the declared type of the argument `given` if the argument is a variable, and `None`
    /// otherwise.
    pub(crate) fn declared_type(&self, given: &WrittenValue) -> Option<&str> {
        let WrittenValue::Variable(name) = given else {
            return None;
        };
        self.variables
            .iter()
            .find(|variable| variable.0 == *name)
            .map(|variable| variable.1.as_str())
    }

    /// Reduces an answer to the fields that the client selected.
    pub(crate) fn select(
        &self,
        value: &Value,
        inner: &[GraphqlSelection],
        variables: &Map<String, Value>,
    ) -> Result<Value, String> {
        match value {
            Value::Array(list) if list.iter().any(|list| list.get("__typename").is_some()) => list
                .iter()
                .map(|list| self.select(list, inner, variables))
                .collect(),
            Value::Object(fields) if fields.contains_key("__typename") => {
                let kind = fields["__typename"].as_str().unwrap_or_default();
                if inner.is_empty() {
                    return Err(format!(
                        "A field of type \"{kind}\" must have a selection of subfields."
                    ));
                }
                let mut cut = Map::new();
                self.select_fields(fields, kind, inner, variables, &mut cut)?;
                Ok(Value::Object(cut))
            }
            plain => Ok(plain.clone()),
        }
    }

    fn select_fields(
        &self,
        of: &Map<String, Value>,
        kind: &str,
        inner: &[GraphqlSelection],
        variables: &Map<String, Value>,
        into: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for selection in inner {
            match selection {
                GraphqlSelection::Spread(name) => {
                    let (on, inner) = self
                        .fragments
                        .get(name)
                        .ok_or_else(|| format!("Unknown fragment \"{name}\"."))?;
                    if on == kind {
                        self.select_fields(of, kind, inner, variables, into)?;
                    }
                }
                GraphqlSelection::Inline(on, inner) => {
                    if on.as_ref().is_none_or(|on| on == kind || on == "Node") {
                        self.select_fields(of, kind, inner, variables, into)?;
                    }
                }
                GraphqlSelection::Field {
                    alias,
                    name,
                    arguments,
                    inner,
                } => {
                    let found = of.get(name);
                    let found = found.ok_or_else(|| {
                        format!("Cannot query field \"{name}\" on type \"{kind}\".")
                    })?;
                    let arguments = arguments
                        .iter()
                        .map(|argument| {
                            (
                                argument.0.clone(),
                                self.resolve_value(&argument.1, variables),
                            )
                        })
                        .collect();
                    let paged = connection_page(found, &arguments);
                    into.insert(alias.clone(), self.select(&paged, inner, variables)?);
                }
            }
        }
        Ok(())
    }
}

/// Returns one page of a list: the `first` entries after a cursor, 50 by default, or the `last`
/// entries.
pub(crate) fn connection_page(value: &Value, arguments: &Map<String, Value>) -> Value {
    let is_connection = value["__typename"]
        .as_str()
        .is_some_and(|value| value.ends_with("Connection"));
    let Some(nodes) = value["nodes"].as_array().filter(|_| is_connection) else {
        return value.clone();
    };
    let number = |name: &str| {
        arguments
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|argument| usize::try_from(argument).ok())
    };
    let position_of = |name: &str| {
        let cursor = arguments.get(name).and_then(Value::as_str)?;
        nodes.iter().position(|node| node["id"] == cursor)
    };
    let from = position_of("after").map_or(0, |index| index + 1);
    let to = position_of("before").unwrap_or(nodes.len()).max(from);
    let (from, to) = match (number("first"), number("last")) {
        (None, Some(last)) => (to.saturating_sub(last).max(from), to),
        (first, _) => (from, (from + first.unwrap_or(50)).min(to)),
    };
    let shown = &nodes[from..to];
    let cursor = |value: Option<&Value>| value.map_or(Value::Null, |value| value["id"].clone());
    json!({
        "__typename": value["__typename"], "nodes": shown,
        "edges": shown.iter().map(|shown| json!({"__typename": "Edge", "node": shown, "cursor": shown["id"]})).collect::<Vec<_>>(),
        "pageInfo": {
            "__typename": "PageInfo", "hasNextPage": to < nodes.len(), "hasPreviousPage": from > 0,
            "startCursor": cursor(shown.first()), "endCursor": cursor(shown.last()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select_from(text: &str, object: &Value) -> Result<Value, String> {
        let document = parse_document(text, None)?;
        let GraphqlSelection::Field { inner, .. } = &document.fields[0] else {
            panic!("the document begins with a field")
        };
        document.select(object, inner, &Map::new())
    }

    #[test]
    fn an_answer_has_exactly_the_selected_fields() {
        let object = json!({"__typename": "A", "id": "1", "plan": [{"x": 1}], "b": {"__typename": "B", "c": null}});
        let text = "query q { a(id: \"1\") { ...F plan other: id b { ... on B { c } ... on C { d \
            } } } } fragment F on A { id }";
        assert_eq!(
            select_from(text, &object).unwrap(),
            json!({"id": "1", "plan": [{"x": 1}], "other": "1", "b": {"c": null}})
        );
        for (text, words) in [
            (
                "{ a { nothing } }",
                "Cannot query field \"nothing\" on type \"A\"",
            ),
            ("{ a { b } }", "must have a selection"),
            ("{ a { ...G } }", "Unknown fragment"),
            ("{ a { id }", "Unexpected <EOF>"),
            ("{ a { } }", "Expected Name"),
            ("subscription { a { id } }", "Unexpected Name"),
        ] {
            assert!(
                select_from(text, &object).unwrap_err().contains(words),
                "{text}"
            );
        }
    }

    #[test]
    fn a_missing_required_variable_is_an_error() {
        let document = parse_document(
            "mutation m($a: String!, $b: Int = 3, $c: [X!]) { f(a: $a) { id } }",
            None,
        )
        .unwrap();
        assert!(document.variables(&json!({})).unwrap_err().contains("$a"));
        let all = document.variables(&json!({"a": "x"})).unwrap();
        assert_eq!(
            (&all["a"], &all["b"], all.get("c")),
            (&json!("x"), &json!(3), None)
        );
    }

    #[test]
    fn connections_are_paged() {
        let nodes: Vec<Value> = (0..120)
            .map(|n| json!({"__typename": "N", "id": n.to_string()}))
            .collect();
        let all = json!({"__typename": "NConnection", "nodes": nodes});
        let first = connection_page(&all, &Map::new());
        assert_eq!(
            (
                first["nodes"].as_array().unwrap().len(),
                &first["pageInfo"]["hasNextPage"]
            ),
            (50, &json!(true))
        );
        let arguments = json!({"first": 2, "after": "117"});
        let last = connection_page(&all, arguments.as_object().unwrap());
        assert_eq!(
            (
                &last["pageInfo"]["endCursor"],
                &last["pageInfo"]["hasNextPage"]
            ),
            (&json!("119"), &json!(false))
        );
    }
}
