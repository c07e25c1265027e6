//! Formats numbers of the web page as short texts: about files, queues and cost.

use regatta_api::file_map;
use regatta_core::budget::Spend;
use regatta_core::plural;

/// Returns a short text about a project's files: how many of them running work has claimed, how
/// many other work waits for, and how many changes landed today.
pub(super) fn files_text(cells: &[file_map::FileCell], landed: u32) -> String {
    let count = |is_counted: &dyn Fn(&file_map::FileCell) -> bool| {
        cells.iter().filter(|cell| is_counted(cell)).count()
    };
    let overlaps = count(&|cell| !cell.clashing_tasks.is_empty());
    let overlaps = if overlaps == 0 {
        String::new()
    } else {
        format!("overlaps at {overlaps} · ")
    };
    let (held_count, wanted_count) = (
        count(&|cell| !cell.held.is_empty()),
        count(&|cell| !cell.wanted.is_empty()),
    );
    format!(
        "{overlaps}{held_count} held · {wanted_count} wanted · {} landed today",
        plural::count(landed, "change")
    )
}

/// Returns a short text about a landing queue: its length and the usual time to land.
pub(super) fn queue_text(count: usize, median_ms: Option<u64>) -> String {
    let text = match count {
        0 => "nothing waits to land".to_owned(),
        count => format!("{count} queued"),
    };
    match median_ms.map(|ms| ms.div_ceil(1_000).max(1)) {
        None => text,
        Some(seconds @ 0..120) => format!("{text} · usual time to land: {seconds} s"),
        Some(seconds) => format!("{text} · usual time to land: {} min", seconds.div_ceil(60)),
    }
}

/// Returns a short text about today's cost and the limit for today. If the price is unknown, the
/// text says so instead of showing zero.
pub(super) fn spend_text(today: &Spend, cap: Option<u64>) -> String {
    let usd = |micro: u64| {
        let cents = (micro + 5_000) / 10_000;
        format!("${}.{:02}", cents / 100, cents % 100)
    };
    let tokens = today.usage.tokens();
    let spent = match today.usage.micro_usd {
        Some(micro) => usd(micro),
        None if tokens == 0 => "nothing yet".into(),
        None => format!("{tokens} tokens, no price reported"),
    };
    cap.map_or(spent.clone(), |cap| format!("{spent} of {}", usd(cap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spend_is_described_in_words_and_an_unknown_price_is_not_zero() {
        let spend = |micro_usd: Option<u64>, input: u64| {
            let mut spend = Spend::default();
            (spend.usage.micro_usd, spend.usage.input) = (micro_usd, input);
            spend
        };
        assert_eq!(spend_text(&spend(None, 0), None), "nothing yet");
        assert_eq!(
            spend_text(&spend(None, 12), None),
            "12 tokens, no price reported"
        );
        assert_eq!(spend_text(&spend(Some(2_845_000), 9), None), "$2.85");
        assert_eq!(
            spend_text(&spend(Some(1_000_000), 9), Some(4_000_000)),
            "$1.00 of $4.00"
        );
        assert_eq!(
            spend_text(&spend(None, 0), Some(4_000_000)),
            "nothing yet of $4.00"
        );
    }

    #[test]
    fn queue_text_has_the_duration_of_one_landing() {
        assert_eq!(queue_text(0, None), "nothing waits to land");
        assert_eq!(
            queue_text(2, Some(1_900)),
            "2 queued · usual time to land: 2 s"
        );
        assert_eq!(
            queue_text(1, Some(150_000)),
            "1 queued · usual time to land: 3 min"
        );
    }
}
