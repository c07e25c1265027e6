//! The command `name`: prints readable names that are not in use.

use regatta_api::{Call, input};

use crate::args::NameArgs;
use crate::client::Got;
use crate::out::Said;

use super::App;

/// Prints names. In JSON, the answer is a string without a count, and a list with a count.
pub(super) fn name(app: &App, ask: NameArgs) -> Said {
    let call = Call::Name(input::NameAsk { count: ask.count, prefix: ask.prefix });
    if ask.count.is_none() {
        let got: Got<String> = app.call(&call)?;
        return app.out.answer("name", &got.data, &[], |_| format!("{}\n", got.data));
    }
    let got: Got<Vec<String>> = app.call(&call)?;
    app.out.answer("name", &got.data, &[], |_| got.data.iter().map(|it| format!("{it}\n")).collect())
}
