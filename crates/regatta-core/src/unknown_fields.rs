//! Keeps fields of stored data that this version does not know, because a newer version wrote them.
//!
//! A type that several versions read and write has a field of type [`UnknownFields`], which
//! collects all fields that the type does not have. Reading and writing the data again therefore
//! loses nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values of unknown fields, by field name.
pub type UnknownFields = BTreeMap<String, ExtraValue>;

/// Any value that a JSON or TOML file can contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExtraValue {
    #[serde(rename = "Nothing")]
    Null(()),
    #[serde(rename = "Truth")]
    Bool(bool),
    #[serde(rename = "Whole")]
    U64(u64),
    #[serde(rename = "Signed")]
    I64(i64),
    #[serde(rename = "Real")]
    F64(FloatBits),
    #[serde(rename = "Text")]
    String(String),
    List(Vec<ExtraValue>),
    Table(UnknownFields),
}

/// Maximum number of levels of nested lists and tables in an unknown field. JSON readers refuse
/// more than 128 levels, and the stored data around the field needs some of them.
const MAX_DEPTH: usize = 32;

/// Returns the reason why these unknown fields could not be read again after they are stored: a
/// field is nested too deep, or has the same name as a known field. Returns `None` if all can be
/// read again.
pub(crate) fn problem(extra: &UnknownFields, known: &[&str]) -> Option<String> {
    if let Some(name) = extra.keys().find(|name| known.contains(&name.as_str())) {
        return Some(format!("{name} cannot be set"));
    }
    let too_deep = extra
        .iter()
        .find(|(_, value)| !is_within_depth(value, MAX_DEPTH));
    too_deep.map(|(name, _)| format!("{name} is nested deeper than {MAX_DEPTH} levels"))
}

fn is_within_depth(value: &ExtraValue, depth: usize) -> bool {
    match value {
        ExtraValue::List(values) => {
            depth > 0 && values.iter().all(|value| is_within_depth(value, depth - 1))
        }
        ExtraValue::Table(fields) => {
            depth > 0
                && fields
                    .values()
                    .all(|value| is_within_depth(value, depth - 1))
        }
        _ => true,
    }
}

/// A number with a fraction. Unlike for plain `f64`, two of them are equal if their bits are equal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FloatBits(pub f64);

impl PartialEq for FloatBits {
    fn eq(&self, other: &FloatBits) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for FloatBits {}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ExtraValue {
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
        let nested = |depth: usize| {
            (0..depth).fold(ExtraValue::Bool(true), |value, _| {
                ExtraValue::List(vec![value])
            })
        };
        let extra = |name: &str, value: ExtraValue| UnknownFields::from([(name.to_owned(), value)]);
        assert_eq!(
            problem(&extra("colour", nested(MAX_DEPTH)), &["launch"]),
            None
        );
        assert!(
            problem(&extra("colour", nested(MAX_DEPTH + 1)), &[])
                .unwrap()
                .contains("colour is nested deeper")
        );
        let table = ExtraValue::Table(extra("x", nested(MAX_DEPTH)));
        assert!(problem(&extra("colour", table), &[]).is_some());
        assert_eq!(
            problem(&extra("launch", nested(0)), &["launch"]).unwrap(),
            "launch cannot be set"
        );
    }
}
