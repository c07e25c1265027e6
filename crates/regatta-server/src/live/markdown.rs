//! Renders the Markdown of agents as HTML (S12).
//!
//! Only the elements of this file can appear: headings, paragraphs, lists, quotes, code, emphasis,
//! tables, rules and links. HTML in the text is shown as text. A link is shown with its host, and
//! only `http` and `https` addresses become links. Images become links, so that the page requests
//! nothing from other hosts.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::sanitize::{escape, push_escaped, terminal_html, truncate};

/// Maximum nesting of lists and quotes. Deeper levels are shown at this level, because a browser
/// needs time and stack for each level.
const MAX_DEPTH: usize = 16;

/// Renders a Markdown text as HTML. Every element is closed, whatever the text contains.
pub(super) fn markdown_html(text: &str) -> String {
    let extensions =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut renderer = Renderer::default();
    Parser::new_ext(text, extensions).for_each(|event| renderer.push(event));
    renderer.html
}

#[derive(Default)]
struct Renderer {
    html: String,
    /// The elements that are open, outermost first, with the text that closes each. An element that
    /// is not shown has an empty text.
    open: Vec<String>,
    alignments: Vec<Alignment>,
    column: usize,
    is_in_table_head: bool,
    is_in_code_block: bool,
}

impl Renderer {
    fn push(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open_tag(&tag),
            Event::End(tag) => self.close_tag(tag),
            Event::Text(text) if self.is_in_code_block => self.html += &terminal_html(&text),
            Event::Text(text) => {
                let (shown, left) = truncate(&text);
                push_escaped(&mut self.html, shown);
                if left > 0 {
                    self.html += &format!("<span class=\"ctl\"> … {left} more characters</span>");
                }
            }
            Event::Code(text) => {
                self.html += &format!("<code>{}</code>", escape(truncate(&text).0))
            }
            Event::Html(text) | Event::InlineHtml(text) => push_escaped(&mut self.html, &text),
            Event::InlineMath(text) | Event::DisplayMath(text) => {
                push_escaped(&mut self.html, &text);
            }
            Event::FootnoteReference(name) => self.html += &format!("[{}]", escape(&name)),
            Event::SoftBreak | Event::HardBreak => self.html += "<br>",
            Event::Rule => self.html += "<hr>",
            Event::TaskListMarker(is_done) => self.html += if is_done { "☑ " } else { "☐ " },
        }
    }

    fn open_tag(&mut self, tag: &Tag<'_>) {
        let is_block = matches!(tag, Tag::BlockQuote(_) | Tag::List(_) | Tag::Item);
        if is_block && self.open.len() >= 2 * MAX_DEPTH {
            self.open.push(String::new());
            return;
        }
        let (begin, end) = match tag {
            Tag::Paragraph => ("<p>".to_owned(), "</p>"),
            // A page has one heading of the first level, and the log is inside a panel with one of
            // the second level.
            Tag::Heading { .. } => ("<p class=\"h\"><strong>".to_owned(), "</strong></p>"),
            Tag::BlockQuote(_) => ("<blockquote>".to_owned(), "</blockquote>"),
            Tag::CodeBlock(kind) => {
                self.is_in_code_block = true;
                (code_block_begin(kind), "</code></pre>")
            }
            Tag::List(Some(1)) => ("<ol>".to_owned(), "</ol>"),
            Tag::List(Some(start)) => (format!("<ol start=\"{start}\">"), "</ol>"),
            Tag::List(None) => ("<ul>".to_owned(), "</ul>"),
            Tag::Item => ("<li>".to_owned(), "</li>"),
            Tag::Table(alignments) => {
                self.alignments.clone_from(alignments);
                (
                    "<div class=\"scroll\" tabindex=\"0\"><table>".to_owned(),
                    "</tbody></table></div>",
                )
            }
            Tag::TableHead => {
                (self.column, self.is_in_table_head) = (0, true);
                ("<thead><tr>".to_owned(), "</tr></thead><tbody>")
            }
            Tag::TableRow => {
                self.column = 0;
                ("<tr>".to_owned(), "</tr>")
            }
            Tag::TableCell => self.cell(),
            Tag::Emphasis => ("<em>".to_owned(), "</em>"),
            Tag::Strong => ("<strong>".to_owned(), "</strong>"),
            Tag::Strikethrough => ("<del>".to_owned(), "</del>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.open.push(link_end(dest_url));
                self.html += &link_begin(dest_url);
                return;
            }
            _ => (String::new(), ""),
        };
        self.html += &begin;
        self.open.push(end.to_owned());
    }

    fn cell(&mut self) -> (String, &'static str) {
        let is_right = self.alignments.get(self.column) == Some(&Alignment::Right);
        self.column += 1;
        let class = if is_right { " class=\"right\"" } else { "" };
        if self.is_in_table_head {
            (format!("<th{class}>"), "</th>")
        } else {
            (format!("<td{class}>"), "</td>")
        }
    }

    fn close_tag(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::CodeBlock => self.is_in_code_block = false,
            TagEnd::TableHead => self.is_in_table_head = false,
            _ => {}
        }
        self.html += &self.open.pop().unwrap_or_default();
    }
}

fn code_block_begin(kind: &CodeBlockKind<'_>) -> String {
    let language = match kind {
        CodeBlockKind::Fenced(info) => info.split([',', ' ']).next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    if language.is_empty() {
        "<pre tabindex=\"0\"><code>".to_owned()
    } else {
        let language: String = language.chars().take(30).collect();
        format!(
            "<pre tabindex=\"0\"><span class=\"lang\">{}</span><code>",
            escape(&language)
        )
    }
}

/// Returns the host of an `http` or `https` address without credentials, or `None` for any other
/// address.
fn link_host(address: &str) -> Option<&str> {
    let rest = ["https://", "http://"].into_iter().find_map(|scheme| {
        let start = address.get(..scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme)
            .then(|| &address[scheme.len()..])
    })?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    // An address such as `https://bank.example@evil.example` looks like another host.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (!authority.is_empty() && authority.chars().all(is_plain)).then_some(authority)
}

fn link_begin(address: &str) -> String {
    let has_control = address.chars().any(|c| c.is_control() || c.is_whitespace());
    match link_host(address) {
        Some(_) if !has_control => format!(
            "<a href=\"{}\" target=\"_blank\" rel=\"noopener noreferrer nofollow\">",
            escape(address)
        ),
        _ => "<span>".to_owned(),
    }
}

/// Returns the end of a link: the host to which it leads, or the whole address of a text that is no
/// link.
fn link_end(address: &str) -> String {
    let has_control = address.chars().any(|c| c.is_control() || c.is_whitespace());
    match link_host(address) {
        Some(host) if !has_control => {
            format!("</a> <span class=\"dim\">({})</span>", escape(host))
        }
        _ => {
            let shown: String = address.chars().take(200).collect();
            format!("</span> <span class=\"dim\">({})</span>", escape(&shown))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the elements of `html` that are not in the list of allowed elements.
    fn forbidden_elements(html: &str) -> Vec<String> {
        const ALLOWED: &[&str] = &[
            "p",
            "strong",
            "em",
            "del",
            "code",
            "pre",
            "ul",
            "ol",
            "li",
            "blockquote",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "hr",
            "br",
            "a",
            "span",
            "div",
        ];
        html.split('<')
            .skip(1)
            .map(|part| {
                let name = part.trim_start_matches('/');
                name.split(|c: char| !c.is_ascii_alphanumeric())
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .filter(|name| !ALLOWED.contains(&name.as_str()))
            .collect()
    }

    #[test]
    fn markdown_of_agents_is_rendered() {
        let html = markdown_html(
            "# Done\n\nI **changed** `a.rs`:\n\n1. one\n2. two\n\n```rust\nlet a = 1 < 2;\n```\n\n\
             | a | b |\n|---|--:|\n| x | 1 |\n",
        );
        for expected in [
            "<p class=\"h\"><strong>Done</strong></p>",
            "<strong>changed</strong> <code>a.rs</code>",
            "<ol><li>one</li><li>two</li></ol>",
            "<span class=\"lang\">rust</span><code>let a = 1 &lt; 2;\n</code></pre>",
            "<th>a</th><th class=\"right\">b</th></tr></thead><tbody><tr><td>x</td>",
            "</tr></tbody></table></div>",
        ] {
            assert!(html.contains(expected), "{expected}: {html}");
        }
    }

    /// S12: markup and scripts in Markdown have no effect.
    #[test]
    fn s12_html_in_markdown_is_shown_as_text() {
        for hostile in [
            "<script>alert(1)</script>",
            "text <img src=x onerror=alert(1)> more",
            "<div>\n\n**x**\n\n<iframe src=//e></iframe>",
            "| <svg onload=x> |\n|---|\n| <style>*{}</style> |",
            "```<script>\n</code></pre><script>x</script>\n```",
            "`</code><script>`",
            "[^1]\n\n[^1]: <script>",
            "# <h1 onclick=x>",
            "> <object data=x>",
        ] {
            let html = markdown_html(hostile);
            assert_eq!(forbidden_elements(&html), [""; 0], "{hostile}: {html}");
            assert!(
                !html.contains("<script") && !html.contains("<img"),
                "{html}"
            );
        }
    }

    /// S12: only http and https addresses are links, and each link shows its host.
    #[test]
    fn s12_links_lead_only_to_web_pages_and_show_their_host() {
        let html = markdown_html("[docs](https://docs.rs/x?a=\"b)");
        assert!(
            html.contains(
                "rel=\"noopener noreferrer nofollow\">docs</a> <span class=\"dim\">(docs.rs)"
            ),
            "{html}"
        );
        assert!(!html.contains("a=\"b"), "{html}");
        for hostile in [
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>1</script>)",
            "[x](vbscript:x)",
            "[x](//evil.example)",
            "[x](/api/v1/task.cancel)",
            "[x](https://bank.example@evil.example/)",
            "[x](<https://a\tb>)",
            "<javascript:alert(1)>",
            "![x](file:///etc/passwd)",
        ] {
            let html = markdown_html(hostile);
            assert!(
                !html.contains("<a ") && !html.contains("href"),
                "{hostile}: {html}"
            );
            assert_eq!(forbidden_elements(&html), [""; 0], "{hostile}: {html}");
        }
        let image = markdown_html("![logo](https://evil.example/track.png)");
        assert!(
            image.contains("<a href") && !image.contains("<img"),
            "{image}"
        );
    }

    /// S12: hidden characters are visible in all parts of a text.
    #[test]
    fn s12_hidden_characters_in_markdown_are_visible() {
        for hostile in [
            "a\u{202e}b",
            "`a\u{202e}b`",
            "```\na\u{202e}b\n```",
            "[a\u{202e}b](https://x.example/)",
            "```\u{202e}\nx\n```",
            "[x](ftp://\u{202e})",
        ] {
            let html = markdown_html(hostile);
            assert!(
                !html.contains('\u{202e}') && html.contains("202E"),
                "{html}"
            );
        }
    }

    /// S12: deep nesting and unclosed markup give closed and bounded HTML.
    #[test]
    fn s12_nesting_is_bounded_and_elements_are_closed() {
        for hostile in [
            "> ".repeat(10_000) + "x",
            "- ".repeat(5_000) + "x",
            "*".repeat(10_000),
            "[".repeat(10_000),
            "**a *b `c".to_owned(),
            "| a |\n|---|\n".repeat(50),
        ] {
            let html = markdown_html(&hostile);
            for element in [
                "p",
                "blockquote",
                "ul",
                "li",
                "strong",
                "em",
                "table",
                "tbody",
            ] {
                let begins = html.matches(&format!("<{element}>")).count()
                    + html.matches(&format!("<{element} ")).count();
                assert_eq!(
                    begins,
                    html.matches(&format!("</{element}>")).count(),
                    "{element}"
                );
                assert!(
                    element != "blockquote" || begins <= 2 * MAX_DEPTH,
                    "{begins}"
                );
            }
        }
    }
}
