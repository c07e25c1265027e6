//! What the web page draws: each entity whole, as it is sent over the live stream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A way in for a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenView {
    /// The page's address with the code behind the `#`.
    pub url: String,
    pub code: String,
    /// How long the code works, if nobody uses it.
    pub lasts_ms: u64,
}
