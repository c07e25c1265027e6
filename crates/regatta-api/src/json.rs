//! Converts between data and JSON values, by way of JSON text.
//!
//! serde generates the code that reads or writes a type once for each format. JSON text, a
//! [`Value`] and the fields of a flattened struct are three formats. The program needs the code for
//! text anyway. With these functions it does not contain copies of that code for the other formats.
//! The copy that writes events as values alone had 400 KB. The text costs time, so code that runs
//! many times a second should not use values at all.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Returns `data` as a JSON value.
pub fn to_value(data: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(data)?)
}

/// Reads data from a JSON value.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> serde_json::Result<T> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

/// Reads a field that is marked with `#[serde(flatten)]`. The type of the field must ignore unknown
/// fields.
pub(crate) fn read_flattened<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields = Value::deserialize(deserializer)?;
    from_value(&fields).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        id: u64,
        ratio: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        name: String,
        #[serde(flatten, deserialize_with = "read_flattened")]
        inner: Inner,
    }

    fn outer() -> Outer {
        let inner = Inner {
            id: u64::MAX,
            ratio: 0.1 + 0.2,
            note: None,
        };
        Outer {
            name: "a".into(),
            inner,
        }
    }

    #[test]
    fn data_is_equal_after_it_was_a_value() {
        let value = to_value(&outer()).expect("a value");
        assert_eq!(value, serde_json::to_value(outer()).expect("a value"));
        assert_eq!(from_value::<Outer>(&value).expect("valid"), outer());
    }

    /// A newer daemon may send fields that this client does not know.
    #[test]
    fn flattened_fields_are_read_beside_unknown_fields() {
        let mut value = to_value(&outer()).expect("a value");
        value["unknown"] = serde_json::json!([{ "deep": 1 }]);
        assert_eq!(from_value::<Outer>(&value).expect("valid"), outer());
        value["id"] = serde_json::json!("no number");
        let error = from_value::<Outer>(&value).expect_err("the id is a text");
        assert!(error.to_string().contains("expected u64"), "{error}");
    }
}
