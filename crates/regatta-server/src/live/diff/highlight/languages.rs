//! The syntax of each family of languages, and which files belong to it.

use super::{Quote, Syntax, WordStyle};

const fn line_string(mark: &'static str) -> Quote {
    Quote {
        open: mark,
        close: mark,
        has_lines: false,
        has_escapes: true,
    }
}

const fn long_string(mark: &'static str) -> Quote {
    Quote {
        open: mark,
        close: mark,
        has_lines: true,
        has_escapes: true,
    }
}

const C_COMMENT: Option<(&str, &str)> = Some(("/*", "*/"));

/// The syntax of most languages with braces. The tables below name only what differs.
const BRACES: Syntax = Syntax {
    line_comments: &["//"],
    block_comment: C_COMMENT,
    quotes: &[line_string("\""), line_string("'")],
    keywords: "",
    words: WordStyle::Program,
    has_lifetimes: false,
    ignores_case: false,
};

static RUST: Syntax = Syntax {
    quotes: &[
        Quote {
            open: "r#\"",
            close: "\"#",
            has_lines: true,
            has_escapes: false,
        },
        long_string("\""),
        line_string("'"),
    ],
    keywords: "as async await break const continue crate dyn else enum extern false fn for if impl \
        in let loop match mod move mut pub ref return self Self static struct super trait \
        true type unsafe use where while bool char str u8 u16 u32 u64 usize i8 i16 i32 i64 \
        isize f32 f64",
    has_lifetimes: true,
    ..BRACES
};

static JAVASCRIPT: Syntax = Syntax {
    quotes: &[line_string("\""), line_string("'"), long_string("`")],
    keywords: "abstract as async await break case catch class const continue default delete do else \
        enum export extends false finally for from function get if implements import in \
        instanceof interface let new null of private protected public readonly return set \
        static super switch this throw true try type typeof undefined var void while yield \
        boolean number string unknown never",
    ..BRACES
};

static PYTHON: Syntax = Syntax {
    line_comments: &["#"],
    block_comment: None,
    quotes: &[
        long_string("\"\"\""),
        long_string("'''"),
        line_string("\""),
        line_string("'"),
    ],
    keywords: "and as assert async await break case class continue def del elif else except False \
        finally for from global if import in is lambda match None nonlocal not or pass raise \
        return self True try while with yield",
    ..BRACES
};

static GO: Syntax = Syntax {
    quotes: &[line_string("\""), line_string("'"), long_string("`")],
    keywords: "break case chan const continue default defer else fallthrough false for func go goto \
        if import interface map nil package range return select struct switch true type var \
        bool byte error int int64 string",
    ..BRACES
};

/// Java, Kotlin, C#, Scala, Swift, Dart and PHP.
static CLASSES: Syntax = Syntax {
    quotes: &[long_string("\"\"\""), line_string("\""), line_string("'")],
    keywords: "abstract as async await boolean break byte case catch char class const continue \
        default do double echo else enum extends false final finally float for foreach fun \
        func function guard if implements import in init instanceof int interface internal \
        is let long namespace new nil null object override package private protected public \
        record return sealed self static string struct super switch this throw throws true \
        try using val var void when where while with yield",
    ..BRACES
};

static C: Syntax = Syntax {
    keywords: "auto bool break case catch char class const constexpr continue default define delete \
        do double else endif enum extern false float for goto if ifdef ifndef include inline \
        int long namespace new nullptr NULL operator override private protected public \
        return short signed sizeof static struct switch template this throw true try typedef \
        typename union unsigned using virtual void volatile while",
    ..BRACES
};

static RUBY: Syntax = Syntax {
    line_comments: &["#"],
    block_comment: None,
    keywords: "alias and begin break case class def do else elsif end ensure false for if in module \
        next nil not or raise redo require rescue return self super then true unless until \
        when while yield",
    ..BRACES
};

static SHELL: Syntax = Syntax {
    line_comments: &["#"],
    block_comment: None,
    quotes: &[
        long_string("\""),
        Quote {
            open: "'",
            close: "'",
            has_lines: true,
            has_escapes: false,
        },
    ],
    keywords: "case cd do done echo elif else esac exit export fi for function if in local return \
        set shift source test then trap until while ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE \
        FROM LABEL RUN USER VOLUME WORKDIR",
    ..BRACES
};

static SQL: Syntax = Syntax {
    line_comments: &["--"],
    quotes: &[
        Quote {
            open: "'",
            close: "'",
            has_lines: true,
            has_escapes: false,
        },
        line_string("\""),
    ],
    keywords: "add all alter and as asc begin between by cascade case check column commit \
        constraint create default delete desc distinct drop else end exists foreign from \
        group having if in index inner insert into is join key left like limit not null \
        offset on or order outer primary references returning right rollback select set \
        table then union unique update values view when where with bigint boolean integer \
        text timestamp varchar",
    ignores_case: true,
    ..BRACES
};

static CSS: Syntax = Syntax {
    line_comments: &[],
    words: WordStyle::Settings,
    ..BRACES
};

static MARKUP: Syntax = Syntax {
    line_comments: &[],
    block_comment: Some(("<!--", "-->")),
    words: WordStyle::Markup,
    ..BRACES
};

/// JSON, TOML, YAML and files like them.
static SETTINGS: Syntax = Syntax {
    line_comments: &["#", "//", ";"],
    block_comment: None,
    quotes: &[long_string("\"\"\""), line_string("\""), line_string("'")],
    keywords: "true false null yes no on off",
    words: WordStyle::Settings,
    ..BRACES
};

static PROSE: Syntax = Syntax {
    line_comments: &[],
    block_comment: None,
    quotes: &[],
    words: WordStyle::Prose,
    ..BRACES
};

/// Returns the syntax of a file by its name, or `None` if the language is unknown.
pub(in super::super) fn syntax_for_path(path: &str) -> Option<&'static Syntax> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if matches!(
        name,
        "Makefile" | "Dockerfile" | "Justfile" | ".bashrc" | ".profile"
    ) {
        return Some(&SHELL);
    }
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "rs" => &RUST,
        "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" | "cts" => &JAVASCRIPT,
        "py" | "pyi" => &PYTHON,
        "go" => &GO,
        "java" | "kt" | "kts" | "cs" | "scala" | "swift" | "dart" | "php" | "groovy" | "gradle" => {
            &CLASSES
        }
        "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "m" | "mm" | "cu" | "proto" => &C,
        "rb" | "rake" | "gemspec" | "ex" | "exs" => &RUBY,
        "sh" | "bash" | "zsh" | "fish" => &SHELL,
        "sql" => &SQL,
        "css" | "scss" | "less" => &CSS,
        "html" | "htm" | "xml" | "svg" | "vue" | "svelte" => &MARKUP,
        "json" | "jsonc" | "toml" | "yaml" | "yml" | "ini" | "cfg" | "conf" | "properties"
        | "lock" | "env" => &SETTINGS,
        "md" | "markdown" => &PROSE,
        _ => return None,
    })
}
