//! Fields that this version does not know: a newer one wrote them, and they are kept as they are.
//!
//! A row that people edit and programs of several versions read carries an [`Extra`], flattened into it, so that reading
//! and writing it loses nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Unknown fields by their names.
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

/// A number with a fraction; the same when it is written the same.
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
