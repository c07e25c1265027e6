//! Makes untrusted text safe to show in HTML (S12). Markup is displayed as text and has no effect.
//! Characters that are invisible or change the text's direction are displayed as their codes.
//! Terminal colours become CSS classes, and other terminal sequences are removed.

use std::fmt::Write as _;

/// Maximum length of a shown line, in characters. The rest of a longer line is cut off.
pub(super) const MAX_LINE_CHARS: usize = 4_000;

/// Returns whether a character is invisible, changes the text direction, or is a control character.
fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Appends `text` with all HTML markup escaped.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\r' => {}
            c if is_unprintable(c) => {
                let _a_string_takes_all = write!(
                    out,
                    "<span class=\"ctl\">\u{27e8}{:04X}\u{27e9}</span>",
                    c as u32
                );
            }
            c => out.push(c),
        }
    }
}

/// Returns `text` with all HTML markup escaped.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    push_escaped(&mut out, text);
    out
}

/// Returns `text` with visible codes in place of invisible characters. The caller must still escape
/// the text.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            let _a_string_takes_all = write!(out, "\u{27e8}{:04X}\u{27e9}", c as u32);
        } else {
            out.push(c);
        }
    }
    out
}

/// Cuts a line at [`MAX_LINE_CHARS`]. Returns its beginning, and the number of characters that were
/// cut off.
pub(super) fn truncate(line: &str) -> (&str, usize) {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => (&line[..at], line[at..].chars().count()),
        None => (line, 0),
    }
}

/// The colour and weight that terminal sequences have set for the following text.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct AnsiStyle {
    colour: Option<u8>,
    background: Option<u8>,
    is_bold: bool,
    is_dim: bool,
    is_italic: bool,
    is_underlined: bool,
}

impl AnsiStyle {
    fn classes(self) -> String {
        let mut names = Vec::new();
        names.extend(self.colour.map(|byte| format!("f{byte}")));
        names.extend(self.background.map(|byte| format!("k{byte}")));
        for (is_set, name) in [
            (self.is_bold, "bo"),
            (self.is_dim, "di"),
            (self.is_italic, "it"),
            (self.is_underlined, "un"),
        ] {
            if is_set {
                names.push(name.to_owned());
            }
        }
        names.join(" ")
    }

    /// Applies the codes of the terminal sequence `ESC [ codes m` to the style.
    fn apply_codes(&mut self, codes: &str) {
        let mut codes = codes
            .split([';', ':'])
            .map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = AnsiStyle::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                3 => self.is_italic = true,
                4 => self.is_underlined = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                23 => self.is_italic = false,
                24 => self.is_underlined = false,
                30..=37 => self.colour = u8::try_from(code - 30).ok(),
                90..=97 => self.colour = u8::try_from(code - 90 + 8).ok(),
                39 => self.colour = None,
                40..=47 => self.background = u8::try_from(code - 40).ok(),
                100..=107 => self.background = u8::try_from(code - 100 + 8).ok(),
                49 => self.background = None,
                38 | 48 => {
                    // The sequence chooses one of 256 colours, or red, green and blue values. The
                    // nearest of the first sixteen colours is shown.
                    let picked = match codes.next() {
                        Some(5) => codes.next().and_then(palette_colour),
                        Some(2) => {
                            let rgb = [(); 3].map(|()| codes.next().unwrap_or(0));
                            nearest_colour(rgb)
                        }
                        _ => None,
                    };
                    if code == 38 {
                        self.colour = picked
                    } else {
                        self.background = picked
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the nearest of the first sixteen colours to one of the 256 colours of a terminal.
fn palette_colour(code: u16) -> Option<u8> {
    match code {
        0..=15 => u8::try_from(code).ok(),
        16..=231 => {
            let level = |step: u16| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = code - 16;
            nearest_colour([level(cube / 36), level(cube / 6 % 6), level(cube % 6)])
        }
        232..=255 => nearest_colour([8 + 10 * (code - 232); 3]),
        _ => None,
    }
}

/// Returns the nearest of the first eight colours, bright black for grey, or `None` (the default
/// colour) for colours that are nearly black or white.
fn nearest_colour(rgb: [u16; 3]) -> Option<u8> {
    let [red, green, blue] = rgb;
    let (lightest, darkest) = (red.max(green).max(blue), red.min(green).min(blue));
    if lightest < darkest + 32 {
        return (64..176).contains(&lightest).then_some(8);
    }
    let middle = u16::midpoint(lightest, darkest);
    let bit = |level: u16, value: u8| if level > middle { value } else { 0 };
    Some(bit(red, 1) | bit(green, 2) | bit(blue, 4))
}

/// The terminal state that the lines of a text change one after another.
#[derive(Clone, Copy, Default)]
pub(super) struct TerminalState(AnsiStyle);

/// Renders terminal output as HTML spans. Cursor movements, titles, links and all other sequences
/// are removed. The running time grows linearly with the length of the text.
pub(super) fn terminal_html(text: &str) -> String {
    terminal_line_html(text, &mut TerminalState::default())
}

/// Like [`terminal_html`], but begins with the colours of the lines before and leaves the colours
/// for the lines after. All spans are closed, so a line can be shown alone.
pub(super) fn terminal_line_html(line: &str, state: &mut TerminalState) -> String {
    let mut out = String::with_capacity(line.len() + line.len() / 8);
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        push_styled(&mut out, &rest[..at], state.0);
        rest = apply_escape(&rest[at + 1..], &mut state.0);
    }
    push_styled(&mut out, rest, state.0);
    out
}

/// Applies the colours of a line that is not shown.
pub(super) fn skip_terminal_line(line: &str, state: &mut TerminalState) {
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        rest = apply_escape(&rest[at + 1..], &mut state.0);
    }
}

/// Returns terminal output without its sequences.
pub(super) fn strip_terminal_sequences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut style) = (text, AnsiStyle::default());
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&rest[..at]);
        rest = apply_escape(&rest[at + 1..], &mut style);
    }
    out.push_str(rest);
    out
}

fn push_styled(out: &mut String, text: &str, style: AnsiStyle) {
    // On a terminal, the text after a carriage return overwrites the line. So only the text after a
    // line's last carriage return is shown.
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end_matches('\r');
        let shown = line.rfind('\r').map_or(line, |at| &line[at + 1..]);
        if !shown.is_empty() {
            if style == AnsiStyle::default() {
                push_escaped(out, shown);
            } else {
                let _a_string_takes_all = write!(out, "<span class=\"{}\">", style.classes());
                push_escaped(out, shown);
                out.push_str("</span>");
            }
        }
        if lines.peek().is_some() {
            out.push('\n');
        }
    }
}

/// Applies the escape sequence at the start of `rest`, and returns the text after it.
fn apply_escape<'a>(rest: &'a str, style: &mut AnsiStyle) -> &'a str {
    let bytes = rest.as_bytes();
    match bytes.first() {
        Some(b'[') => {
            let end = bytes
                .iter()
                .skip(1)
                .position(|byte| (0x40..=0x7e).contains(byte))
                .map(|n| n + 1);
            let Some(end) = end.filter(|end| {
                bytes[1..*end]
                    .iter()
                    .all(|byte| (0x20..=0x3f).contains(byte))
            }) else {
                return rest;
            };
            if bytes[end] == b'm' {
                style.apply_codes(&rest[1..end]);
            }
            &rest[end + 1..]
        }
        // Sequences that begin with one of these characters set titles and links. Skip such a
        // sequence up to its end.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = rest.find(['\u{7}', '\u{1b}', '\n']);
            match end {
                Some(at) if bytes[at] == 0x1b && bytes.get(at + 1) == Some(&b'\\') => {
                    &rest[at + 2..]
                }
                Some(at) if bytes[at] == 0x7 => &rest[at + 1..],
                Some(at) => &rest[at..],
                None => "",
            }
        }
        Some(byte) if byte.is_ascii() => &rest[1..],
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S12: no text of an agent becomes markup.
    #[test]
    fn s12_markup_of_agents_is_shown_as_text() {
        let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)> \
            [x](javascript:alert(1)) \"' &lt;";
        for html in [escape(hostile), terminal_html(hostile)] {
            assert!(
                !html.contains('<') && !html.contains('"') && !html.contains('\''),
                "{html}"
            );
            assert!(
                html.contains("&lt;script&gt;") && html.ends_with("&amp;lt;"),
                "{html}"
            );
        }
        let inside = terminal_html("\u{1b}[31m<b onclick=x>\u{1b}[0m");
        assert_eq!(inside, "<span class=\"f1\">&lt;b onclick=x&gt;</span>");
        // A sequence cannot insert anything into the class.
        assert_eq!(
            terminal_html("\u{1b}[31;\"onclick=x m<i>"),
            "nclick=x m&lt;i&gt;"
        );
    }

    /// S12: characters that hide text or change its direction are visible.
    #[test]
    fn s12_hidden_characters_are_made_visible() {
        assert_eq!(
            escape("a\u{202e}b"),
            "a<span class=\"ctl\">\u{27e8}202E\u{27e9}</span>b"
        );
        for c in [
            '\u{200b}',
            '\u{2066}',
            '\u{feff}',
            '\u{0}',
            '\u{9b}',
            '\u{e0041}',
            '\u{ad}',
            '\u{61c}',
        ] {
            assert!(
                escape(&c.to_string()).starts_with("<span class=\"ctl\">"),
                "{:x}",
                c as u32
            );
        }
        assert_eq!(escape("tab\tand ümläut 漢字"), "tab\tand ümläut 漢字");
    }

    #[test]
    fn s12_colours_become_classes_and_other_sequences_are_removed() {
        assert_eq!(
            terminal_html("\u{1b}[1;32mok\u{1b}[0m done"),
            "<span class=\"f2 bo\">ok</span> done"
        );
        assert_eq!(
            terminal_html("\u{1b}[38;5;9mx\u{1b}[38;2;1;2;3my"),
            "<span class=\"f9\">x</span>y"
        );
        assert_eq!(
            terminal_html("\u{1b}]0;title\u{7}a\u{1b}]8;;javascript:x\u{1b}\\b"),
            "ab"
        );
        assert_eq!(terminal_html("10%\r20%\r30%\r\nnext\r\n"), "30%\nnext\n");
        assert_eq!(
            terminal_html("\u{1b}[2J\u{1b}[999999;999999H\u{1b}[?1049hx\u{1b}c"),
            "x"
        );
        assert_eq!(terminal_html("\u{1b}"), "");
        assert_eq!(terminal_html("\u{1b}[31"), "[31");
        assert_eq!(terminal_html("\u{1b}ä"), "ä");
        assert_eq!(terminal_html("\u{1b}]no end"), "");
    }

    /// S12: each line is closed markup, and colours continue on the next line.
    #[test]
    fn s12_lines_are_rendered_one_by_one() {
        let text = "\u{1b}[31mred\nstill <b>\u{1b}[0m\nplain\u{1b}[38;5;46mgreen";
        let mut state = TerminalState::default();
        let lines: Vec<String> = text
            .lines()
            .map(|line| terminal_line_html(line, &mut state))
            .collect();
        assert_eq!(
            lines,
            [
                "<span class=\"f1\">red</span>",
                "<span class=\"f1\">still &lt;b&gt;</span>",
                "plain<span class=\"f2\">green</span>"
            ]
        );
        let mut state = TerminalState::default();
        skip_terminal_line("\u{1b}[31mred", &mut state);
        assert_eq!(
            terminal_line_html("x", &mut state),
            "<span class=\"f1\">x</span>"
        );
        assert_eq!(strip_terminal_sequences(text), "red\nstill <b>\nplaingreen");
    }

    /// S12: work and output are proportional to the input, even for an ANSI bomb.
    #[test]
    fn s12_output_of_an_ansi_bomb_is_small() {
        let bomb = "\u{1b}[31m\u{1b}[42m\u{1b}[1m".repeat(100_000);
        assert_eq!(terminal_html(&bomb), "");
        let nested = "\u{1b}[".repeat(100_000);
        assert!(terminal_html(&nested).len() <= nested.len());
        let long_line = "x".repeat(10_000_000);
        let (shown, left) = truncate(&long_line);
        assert_eq!(
            (shown.len(), left),
            (MAX_LINE_CHARS, 10_000_000 - MAX_LINE_CHARS)
        );
        assert_eq!(truncate("ä"), ("ä", 0));
    }
}
