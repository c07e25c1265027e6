//! Finds the syntax of source code, line by line: comments, strings, numbers, keywords and names.
//!
//! A hand-written scanner with one table per family of languages. It has no grammar, so it can be
//! wrong about a rare construct, but it needs no parser library, takes linear time, and never fails
//! on hostile text. The module `rows` escapes the text and adds the classes.

mod languages;

use std::ops::Range;

pub(super) use languages::syntax_for_path;

/// A part of a line with the CSS class of its syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) range: Range<usize>,
    pub(super) class: &'static str,
}

/// The construct in which a line begins, if an earlier line has opened it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LineState {
    #[default]
    Code,
    BlockComment,
    /// Inside a string that can have several lines.
    Text(&'static Quote),
}

/// A way to write a string.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Quote {
    open: &'static str,
    close: &'static str,
    /// The string can continue on the next line.
    has_lines: bool,
    /// A backslash escapes the next character.
    has_escapes: bool,
}

/// How words are coloured that are not keywords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordStyle {
    /// Calls, and names that begin with a capital letter.
    Program,
    /// Only names before `=` or `:`.
    Settings,
    /// Names of tags and attributes.
    Markup,
    /// Headings and code, for Markdown.
    Prose,
}

/// The syntax of a family of languages.
#[derive(Debug)]
pub(super) struct Syntax {
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    /// The ways to write a string. A longer opening stands before a shorter one.
    quotes: &'static [Quote],
    /// The keywords, separated by spaces.
    keywords: &'static str,
    words: WordStyle,
    /// A `'` can begin a lifetime as well as a character, as in Rust.
    has_lifetimes: bool,
    ignores_case: bool,
}

const COMMENT: &str = "hc";
const STRING: &str = "hs";
const NUMBER: &str = "hn";
const KEYWORD: &str = "hk";
const CALL: &str = "hf";
const TYPE: &str = "ht";
const PROPERTY: &str = "hp";
const ATTRIBUTE: &str = "ha";

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

impl Syntax {
    /// Guesses the state before the first of `lines`, which are a part of a file. If a comment ends
    /// before any comment begins, the part begins inside a comment.
    pub(super) fn state_before<'a>(&self, lines: impl Iterator<Item = &'a str>) -> LineState {
        let Some((open, close)) = self.block_comment else {
            return LineState::Code;
        };
        for line in lines {
            match (line.find(open), line.find(close)) {
                (None, None) => {}
                (None, Some(_)) => return LineState::BlockComment,
                (Some(opened), Some(closed)) if closed < opened => return LineState::BlockComment,
                (Some(_), _) => return LineState::Code,
            }
        }
        LineState::Code
    }

    /// Returns the tokens of a line, and updates the state to that of the next line.
    pub(super) fn tokens(&self, line: &str, state: &mut LineState) -> Vec<Token> {
        if self.words == WordStyle::Prose {
            return prose_tokens(line, state);
        }
        let mut scanner = Scanner {
            syntax: self,
            line,
            at: 0,
            tokens: Vec::new(),
        };
        scanner.scan(state);
        scanner.tokens
    }

    fn is_keyword(&self, word: &str) -> bool {
        self.keywords.split(' ').any(|keyword| {
            keyword == word || (self.ignores_case && keyword.eq_ignore_ascii_case(word))
        })
    }
}

struct Scanner<'a> {
    syntax: &'a Syntax,
    line: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    /// Adds a token of `length` bytes at the present place.
    fn push(&mut self, length: usize, class: &'static str) {
        let range = self.at..self.at + length;
        self.at = range.end;
        if !range.is_empty() {
            self.tokens.push(Token { range, class });
        }
    }

    fn scan(&mut self, state: &mut LineState) {
        match *state {
            LineState::Code => {}
            LineState::BlockComment => self.finish_comment(0, state),
            LineState::Text(quote) => self.finish_string(0, quote, state),
        }
        while let Some(first) = self.rest().chars().next() {
            if first.is_whitespace() {
                self.at += first.len_utf8();
            } else if self.begins_line_comment() {
                self.push(self.rest().len(), COMMENT);
            } else if let Some((open, _)) = self
                .syntax
                .block_comment
                .filter(|(open, _)| self.rest().starts_with(open))
            {
                self.finish_comment(open.len(), state);
            } else if let Some(quote) = self.opening_quote() {
                self.finish_string(quote.open.len(), quote, state);
            } else if first.is_ascii_digit() {
                self.push(number_length(self.rest()), NUMBER);
            } else if is_word_char(first) {
                self.scan_word();
            } else {
                self.scan_sign(first);
            }
        }
    }

    /// Returns whether a comment begins here. A `#` inside a word is none.
    fn begins_line_comment(&self) -> bool {
        let follows_space = || {
            self.line[..self.at]
                .chars()
                .next_back()
                .is_none_or(char::is_whitespace)
        };
        self.syntax
            .line_comments
            .iter()
            .any(|comment| self.rest().starts_with(comment) && (*comment != "#" || follows_space()))
    }

    fn finish_comment(&mut self, open_length: usize, state: &mut LineState) {
        let close = self.syntax.block_comment.map_or("*/", |(_, close)| close);
        let rest = &self.rest()[open_length..];
        match rest.find(close) {
            Some(end) => {
                *state = LineState::Code;
                self.push(open_length + end + close.len(), COMMENT);
            }
            None => {
                *state = LineState::BlockComment;
                self.push(self.rest().len(), COMMENT);
            }
        }
    }

    fn opening_quote(&self) -> Option<&'static Quote> {
        let rest = self.rest();
        let quote = self
            .syntax
            .quotes
            .iter()
            .find(|quote| rest.starts_with(quote.open))?;
        if self.syntax.has_lifetimes && quote.open == "'" {
            let mut following = rest.chars().skip(1);
            let is_char = following.next() == Some('\\') || following.next() == Some('\'');
            return is_char.then_some(quote);
        }
        // In the text of a page, an apostrophe is no string. Strings follow the name of an
        // attribute.
        let is_attribute_value = || self.line[..self.at].trim_end().ends_with('=');
        (self.syntax.words != WordStyle::Markup || is_attribute_value()).then_some(quote)
    }

    fn finish_string(&mut self, open_length: usize, quote: &'static Quote, state: &mut LineState) {
        let rest = &self.rest()[open_length..];
        let end = string_end(rest, quote);
        *state = match end {
            None if quote.has_lines => LineState::Text(quote),
            _ => LineState::Code,
        };
        let length = open_length + end.unwrap_or(rest.len());
        let is_name = self.syntax.words == WordStyle::Settings
            && self.rest()[length..].trim_start().starts_with(':');
        self.push(length, if is_name { PROPERTY } else { STRING });
    }

    fn scan_word(&mut self) {
        let rest = self.rest();
        let is_settings = self.syntax.words == WordStyle::Settings;
        let is_part =
            |c: char| is_word_char(c) || (c == '-' && self.syntax.words != WordStyle::Program);
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let before = self.line[..self.at].chars().next_back();
        let class = if self.syntax.words == WordStyle::Markup {
            match before {
                Some('<' | '/') => Some(KEYWORD),
                _ => after.starts_with('=').then_some(PROPERTY),
            }
        } else if is_settings && after.trim_start().starts_with(['=', ':']) {
            Some(PROPERTY)
        } else if self.syntax.is_keyword(word) {
            Some(KEYWORD)
        } else if is_settings {
            None
        } else if after.starts_with('(') || after.starts_with("!(") {
            Some(CALL)
        } else if word.starts_with(char::is_uppercase) {
            Some(TYPE)
        } else {
            None
        };
        match class {
            Some(class) => self.push(length, class),
            None => self.at += length,
        }
    }

    fn scan_sign(&mut self, sign: char) {
        let rest = self.rest();
        if rest.starts_with("#[") || rest.starts_with("#![") {
            let length = rest.find(']').map_or(rest.len(), |end| end + 1);
            return self.push(length, ATTRIBUTE);
        }
        let name_length = rest[sign.len_utf8()..]
            .find(|c| !is_word_char(c))
            .unwrap_or(rest.len() - sign.len_utf8());
        if sign == '@' && name_length > 0 && self.syntax.words == WordStyle::Program {
            return self.push(1 + name_length, ATTRIBUTE);
        }
        self.at += sign.len_utf8();
    }
}

/// Returns the length of the string's rest including its end, or `None` if it does not end here.
fn string_end(rest: &str, quote: &Quote) -> Option<usize> {
    let mut at = 0;
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with(quote.close) {
            return Some(at + quote.close.len());
        }
        let mut chars = here.chars();
        let first = chars.next()?;
        at += first.len_utf8();
        if first == '\\' && quote.has_escapes {
            at += chars.next().map_or(0, char::len_utf8);
        }
    }
    None
}

fn number_length(rest: &str) -> usize {
    let mut length = 0;
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        let is_fraction = c == '.' && chars.peek().is_some_and(char::is_ascii_digit);
        if !(c.is_ascii_alphanumeric() || c == '_' || is_fraction) {
            break;
        }
        length += c.len_utf8();
    }
    length
}

/// The state of a Markdown line inside a block of code.
static FENCE: Quote = Quote {
    open: "```",
    close: "```",
    has_lines: true,
    has_escapes: false,
};

/// Finds headings, quotes, blocks of code and inline code of Markdown.
fn prose_tokens(line: &str, state: &mut LineState) -> Vec<Token> {
    let whole = |class| {
        vec![Token {
            range: 0..line.len(),
            class,
        }]
    };
    if line.trim_start().starts_with(FENCE.open) {
        *state = match state {
            LineState::Code => LineState::Text(&FENCE),
            _ => LineState::Code,
        };
        return whole(STRING);
    }
    if *state != LineState::Code {
        return whole(STRING);
    }
    if line.starts_with('#') {
        return whole(KEYWORD);
    }
    if line.starts_with('>') {
        return whole(COMMENT);
    }
    let ticks: Vec<usize> = line.match_indices('`').map(|(at, _)| at).collect();
    ticks
        .chunks_exact(2)
        .map(|pair| Token {
            range: pair[0]..pair[1] + 1,
            class: STRING,
        })
        .collect()
}

#[cfg(test)]
mod tests;
