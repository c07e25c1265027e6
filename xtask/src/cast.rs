//! Draws the moving picture of the README: `regatta demo`, recorded as an animated SVG file.
//!
//! Each line of the program's output appears at the time at which the program printed it. The
//! picture scrolls when the window is full, holds its end, and starts again. It needs no script and
//! no font, so browsers play it inside Markdown.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::report::workspace_root;

/// The path of the picture below the top of the repository.
const PICTURE: &str = "docs/screens/demo.svg";
const COLUMNS: usize = 92;
const ROWS: usize = 24;
/// Width of one character and height of one line, in the units of the picture.
const CHAR_WIDTH: f64 = 8.4;
const LINE_HEIGHT: f64 = 19.0;
const MARGIN: f64 = 14.0;
/// Time for which the last picture stays, in seconds.
const HOLD_S: f64 = 5.0;

/// A printed line, and the time since the start at which it was printed.
struct PrintedLine {
    at_s: f64,
    text: String,
}

/// Records the demo of `--binary PATH`, and writes the picture.
pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let program = args.text("binary").unwrap_or("target/release/regatta");
    let home = tempfile::tempdir()?;
    let mut lines = vec![PrintedLine {
        at_s: 0.0,
        text: "$ regatta demo".to_owned(),
    }];
    lines.extend(record(program, home.path())?);
    fs::write(workspace_root().join(PICTURE), picture(&lines))?;
    println!("wrote {PICTURE}: {} lines", lines.len());
    Ok(true)
}

/// Runs the demo and returns its lines. The temporary directory is shown as `/tmp`.
fn record(program: &str, home: &std::path::Path) -> anyhow::Result<Vec<PrintedLine>> {
    let start = Instant::now();
    // Progress goes to standard error and the result to standard output; a terminal shows both.
    let (output, writer) = std::io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(["--color", "always", "demo"])
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("COLUMNS", COLUMNS.to_string())
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("could not start {program}; name one with --binary PATH"))?;
    // The pipe ends when the program exits, if no copy of its input stays open here.
    drop(command);
    let mut lines = Vec::new();
    for line in BufReader::new(output).lines() {
        let at_s = start.elapsed().as_secs_f64();
        let text = line?.replace(&*home.to_string_lossy(), "/tmp");
        lines.push(PrintedLine { at_s, text });
    }
    let status = child.wait()?;
    ensure!(status.success(), "the demo failed: {status}");
    Ok(lines)
}

/// Draws the animation.
fn picture(lines: &[PrintedLine]) -> String {
    let width = COLUMNS as f64 * CHAR_WIDTH + 2.0 * MARGIN;
    let height = ROWS as f64 * LINE_HEIGHT + 2.0 * MARGIN;
    let total_s = lines.last().map_or(0.0, |line| line.at_s) + HOLD_S;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" aria-label=\"Recording of regatta demo\">\n\
         <style>text{{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d7dae0;\
         white-space:pre}}.g{{fill:#7bc77e}}.y{{fill:#e2b85b}}.r{{fill:#ec7d75}}.d{{fill:#8a919e}}\
         .l,.s{{animation:{total_s:.1}s steps(1) infinite}}\n"
    );
    for (nth, line) in lines.iter().enumerate() {
        let percent = 100.0 * line.at_s / total_s;
        let _ = writeln!(
            svg,
            "@keyframes l{nth}{{0%{{opacity:0}}{percent:.2}%{{opacity:1}}100%{{opacity:1}}}}\
             .l{nth}{{animation-name:l{nth}}}"
        );
    }
    svg.push_str(&scroll_keyframes(lines, total_s));
    let _ = write!(
        svg,
        "</style>\n<rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" fill=\"#1b1e24\"/>\n\
         <svg x=\"0\" y=\"{MARGIN}\" width=\"{width:.0}\" height=\"{:.0}\"><g class=\"s\" \
         style=\"animation-name:scroll\">\n",
        ROWS as f64 * LINE_HEIGHT
    );
    for (nth, line) in lines.iter().enumerate() {
        let y = (nth as f64 + 0.75) * LINE_HEIGHT;
        let spans = spans(&line.text);
        let _ = writeln!(
            svg,
            "<text class=\"l l{nth}\" x=\"{MARGIN}\" y=\"{y:.1}\">{spans}</text>"
        );
    }
    svg + "</g></svg>\n</svg>\n"
}

/// Returns the animation that scrolls up by one line for each line below the window.
fn scroll_keyframes(lines: &[PrintedLine], total_s: f64) -> String {
    let mut steps = String::from("@keyframes scroll{0%{transform:translateY(0)}");
    for (nth, line) in lines.iter().enumerate().skip(ROWS) {
        let percent = 100.0 * line.at_s / total_s;
        let up = (nth + 1 - ROWS) as f64 * LINE_HEIGHT;
        let _ = write!(steps, "{percent:.2}%{{transform:translateY(-{up:.0}px)}}");
    }
    let end = lines.len().saturating_sub(ROWS) as f64 * LINE_HEIGHT;
    let _ = writeln!(steps, "100%{{transform:translateY(-{end:.0}px)}}}}");
    steps
}

/// Translates a line with colour codes into text elements. Long lines are cut at the window.
fn spans(line: &str) -> String {
    let mut text = String::new();
    let mut columns = 0;
    let mut open = false;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some((code, after)) = rest
            .strip_prefix("\u{1b}[")
            .and_then(|code| code.split_once('m'))
        {
            if std::mem::take(&mut open) {
                text.push_str("</tspan>");
            }
            if let Some(class) = class_of(code) {
                let _ = write!(text, "<tspan class=\"{class}\">");
                open = true;
            }
            rest = after;
            continue;
        }
        if columns < COLUMNS {
            match c {
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                '&' => text.push_str("&amp;"),
                _ => text.push(c),
            }
        }
        columns += 1;
        rest = &rest[c.len_utf8()..];
    }
    if open {
        text.push_str("</tspan>");
    }
    text
}

fn class_of(code: &str) -> Option<&'static str> {
    match code {
        "31" => Some("r"),
        "32" => Some("g"),
        "33" => Some("y"),
        "2" | "90" => Some("d"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_elements_and_markup_is_escaped() {
        assert_eq!(
            spans("a \u{1b}[32mok\u{1b}[0m <b>"),
            "a <tspan class=\"g\">ok</tspan> &lt;b&gt;"
        );
        assert_eq!(spans(&"x".repeat(COLUMNS + 5)).len(), COLUMNS);
    }

    #[test]
    fn the_picture_scrolls_by_the_lines_below_the_window() {
        let line = |nth: usize| PrintedLine {
            at_s: nth as f64,
            text: format!("line {nth}"),
        };
        let lines: Vec<PrintedLine> = (0..ROWS + 2).map(line).collect();
        let svg = picture(&lines);
        assert_eq!(svg.matches("<text ").count(), ROWS + 2);
        assert_eq!(
            scroll_keyframes(&lines, 40.0).matches("translateY").count(),
            4
        );
    }
}
