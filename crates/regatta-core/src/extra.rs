//! Fields that this version does not know. A newer version wrote them, and they are kept unchanged.
//!
//! A row that people edit and that programs of several versions read contains an [`Extra`],
//! flattened into it, so that reading and writing it loses nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Unknown fields by name.
pub type Extra = BTreeMap<String, Value>;

/// Any value of a JSON or TOML file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Nothing(()),
    Truth(bool),
    Whole(u64),
    Signed(i64),
    Real(Real),
    Text(String),
    List(Vec<Value>),
    Table(Extra),
}

/// The deepest nesting of values in unknown fields. A JSON reader gives up at 128 levels, and a
/// stored row adds a few levels around the values.
const MAX_DEPTH: usize = 32;

/// Returns why unknown fields could not be read back, if so: they are nested too deep, or have the
/// name of a field in `known`, which is written next to them.
pub(crate) fn problem(extra: &Extra, known: &[&str]) -> Option<String> {
    if let Some(name) = extra.keys().find(|name| known.contains(&name.as_str())) {
        return Some(format!("{name} cannot be set"));
    }
    let too_deep = extra.iter().find(|(_, value)| !is_within(value, MAX_DEPTH));
    too_deep.map(|(name, _)| format!("{name} is nested deeper than {MAX_DEPTH} levels"))
}

fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::List(values) => depth > 0 && values.iter().all(|value| is_within(value, depth - 1)),
        Value::Table(fields) => depth > 0 && fields.values().all(|value| is_within(value, depth - 1)),
        _ => true,
    }
}

/// A number with a fraction. Two such numbers are equal if their bits are equal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Value {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyValue".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "anything that a newer version wrote" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_could_not_be_read_back_are_refused_by_name() {
        let nested = |depth: usize| (0..depth).fold(Value::Truth(true), |value, _| Value::List(vec![value]));
        let extra = |name: &str, value: Value| Extra::from([(name.to_owned(), value)]);
        assert_eq!(problem(&extra("colour", nested(MAX_DEPTH)), &["launch"]), None);
        assert!(problem(&extra("colour", nested(MAX_DEPTH + 1)), &[]).unwrap().contains("colour is nested deeper"));
        let table = Value::Table(extra("x", nested(MAX_DEPTH)));
        assert!(problem(&extra("colour", table), &[]).is_some());
        assert_eq!(problem(&extra("launch", nested(0)), &["launch"]).unwrap(), "launch cannot be set");
    }
}
