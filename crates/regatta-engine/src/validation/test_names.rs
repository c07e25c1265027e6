//! Checks the names of new test files. In some languages, a test file must lie in the same
//! directory as the file that it tests, and must be named after that file.

/// The names (before `_test`) of Go test files that need no source file of the same name.
const GO_HELPERS: [&str; 6] = ["testutil", "helpers", "main", "export", "example", "doc"];

/// Returns one line about a new test file whose name is wrong, or `None` if the name is fine.
/// `exists` returns whether the repository has a file at a path.
pub(crate) fn naming_problem(path: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let (dir, name) = path
        .rsplit_once('/')
        .map_or(("", path), |(dir, name)| (dir, name));
    let beside = |file: &str| {
        exists(&if dir.is_empty() {
            file.to_owned()
        } else {
            format!("{dir}/{file}")
        })
    };
    let in_tests = dir.split('/').any(|dir| {
        matches!(
            dir,
            "tests" | "test" | "__tests__" | "testing" | "e2e" | "spec"
        )
    });
    let (stem, extension) = name.rsplit_once('.')?;
    let advice = match extension {
        "go" => go_problem(stem, beside),
        "py" => python_problem(stem),
        "rs" => rust_problem(stem, dir, in_tests, beside),
        "ts" | "tsx" | "js" | "jsx" | "mts" | "cts" | "mjs" => {
            script_problem(stem, in_tests, beside)
        }
        _ => None,
    }?;
    Some(format!("{path} is not a valid name for a test: {advice}"))
}

/// Returns whether a test file is named after coverage (such as `cov` or `coverage`) and not after
/// the code that it tests.
fn is_for_coverage(source: &str) -> bool {
    source
        .strip_prefix("cov")
        .is_some_and(|rest| rest.is_empty() || !rest.starts_with("er") || rest.starts_with("erage"))
}

fn go_problem(stem: &str, beside: impl Fn(&str) -> bool) -> Option<String> {
    let source = stem.strip_suffix("_test")?;
    if is_for_coverage(source) && !beside(&format!("{source}.go")) {
        return Some(
            "name it after the file it tests, <source>_test.go or <source>_extra_test.go".into(),
        );
    }
    let tested = source.strip_suffix("_extra").unwrap_or(source);
    let has_source = beside(&format!("{tested}.go"))
        || beside(&format!("{source}.go"))
        || GO_HELPERS.contains(&tested);
    (!has_source).then(|| {
        format!("there is no {tested}.go beside it; use <source>_test.go or <source>_extra_test.go")
    })
}

fn python_problem(stem: &str) -> Option<String> {
    let source = stem
        .strip_prefix("test_")
        .or_else(|| stem.strip_suffix("_test"));
    match source {
        Some(source) if is_for_coverage(source) => {
            Some("name it after what it tests, test_<module>.py".into())
        }
        Some(_) => None,
        None if stem.starts_with("tests_")
            || stem.ends_with("_tests")
            || is_unmarked_test(stem) =>
        {
            Some("it would not be collected; use test_<module>.py".into())
        }
        None => None,
    }
}

/// Returns whether a name such as `testfoo` looks like the name of a test file, but does not follow
/// the language's pattern for test files.
fn is_unmarked_test(stem: &str) -> bool {
    let helper_names = [
        "test",
        "tests",
        "testing",
        "testutil",
        "testutils",
        "testcase",
        "testcases",
        "testlib",
        "testdata",
    ];
    stem.starts_with("test")
        && !helper_names.contains(&stem)
        && !stem.starts_with("test_")
        && !stem.contains("util")
}

fn rust_problem(
    stem: &str,
    dir: &str,
    in_tests: bool,
    beside: impl Fn(&str) -> bool,
) -> Option<String> {
    let source = stem
        .strip_suffix("_tests")
        .or_else(|| stem.strip_suffix("_test"));
    if (source.is_some() || in_tests) && is_for_coverage(source.unwrap_or(stem)) {
        return Some("name it after what it tests, <module>_tests.rs".into());
    }
    let source = source.filter(|_| !in_tests)?;
    let parent = dir.rsplit('/').next().unwrap_or_default();
    let has_source = beside(&format!("{source}.rs")) || beside(source) || parent == source;
    (!has_source).then(|| {
        format!("there is no {source}.rs beside it; use <module>_tests.rs, or put it into tests/")
    })
}

fn script_problem(stem: &str, in_tests: bool, beside: impl Fn(&str) -> bool) -> Option<String> {
    let Some(source) = stem
        .strip_suffix(".test")
        .or_else(|| stem.strip_suffix(".spec"))
    else {
        let is_meant_as_test = ["_test", "-test", "_spec", "-spec", ".tests", ".specs"]
            .iter()
            .any(|ending| stem.ends_with(ending));
        let is_meant_as_test =
            is_meant_as_test || stem.starts_with("test_") || stem.starts_with("test-");
        return (is_meant_as_test && !in_tests)
            .then(|| "it would not be found; use <source>.test.ts or <source>.spec.ts".into());
    };
    if is_for_coverage(source) && !beside(&format!("{source}.ts")) {
        return Some("name it after the file it tests, <source>.test.ts".into());
    }
    let has_source = in_tests
        || ["ts", "tsx", "js", "jsx", "mts", "mjs"]
            .iter()
            .any(|ending| beside(&format!("{source}.{ending}")));
    (!has_source).then(|| {
        format!("there is no {source}.ts beside it; use <source>.test.ts, or put it into tests/")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_file_must_be_named_after_its_source_file() {
        let existing = [
            "pkg/goals.go",
            "pkg/cover.go",
            "src/parse.rs",
            "src/lex/mod.rs",
            "src/lex",
            "web/app.ts",
            "web/b.tsx",
        ];
        let check = |path: &str, good: bool| {
            let problem = naming_problem(path, |path| existing.contains(&path));
            assert_eq!(problem.is_none(), good, "{path}: {problem:?}");
        };
        for good in [
            "pkg/goals_test.go",
            "pkg/goals_extra_test.go",
            "pkg/testutil_test.go",
            "pkg/cover_test.go",
            "pkg/new.go",
            "cov.txt",
            "tests/test_goals.py",
            "goals_test.py",
            "tests/conftest.py",
            "tests/testutils.py",
            "src/parse_tests.rs",
            "src/parse_test.rs",
            "src/lex/lex_tests.rs",
            "src/lex_tests.rs",
            "tests/anything.rs",
            "src/contest.rs",
            "web/app.test.ts",
            "web/b.spec.tsx",
            "web/__tests__/anything.test.ts",
            "web/latest.ts",
        ] {
            check(good, true);
        }
        for bad in [
            "pkg/cov_test.go",
            "pkg/cov_goals_test.go",
            "pkg/coverage_test.go",
            "pkg/nothing_test.go",
            "pkg/nothing_extra_test.go",
            "cov3_test.go",
            "tests/test_cov.py",
            "tests/test_coverage_more.py",
            "tests/tests_goals.py",
            "tests/goals_tests.py",
            "tests/testgoals.py",
            "src/nothing_tests.rs",
            "src/cov_tests.rs",
            "tests/cov_more.rs",
            "web/nothing.test.ts",
            "web/cov.test.ts",
            "web/app_test.ts",
            "web/test_app.js",
            "web/app.tests.ts",
        ] {
            check(bad, false);
        }
    }
}
