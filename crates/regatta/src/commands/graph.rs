//! The command `graph`, which draws the graph of tasks: a line leads from each task to the tasks
//! that wait for it. The daemon computes the layout.

mod picture;

use clap::Args;
use regatta_api::view::{GraphEdgeView, GraphNodeView, GraphView};
use regatta_api::{call, input};
use regatta_core::display::DisplayState;

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{
    CommandResult, Output, cut_to_width, display_width, first_line, format_table, window_width,
};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[("graph", &["regatta graph", "regatta graph M3"])];

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Mission to draw, or a task to draw with its neighbours in the graph (default: open and
    /// recently ended tasks of the project)
    pub(crate) id: Option<String>,
}

/// The maximum width of the picture in columns if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 160;
/// The maximum width of a task without dependencies, in columns.
const MAX_LOOSE_WIDTH: usize = 48;

/// Runs `regatta graph`.
pub(crate) fn graph(app: &CommandContext, args: &GraphArgs) -> CommandResult {
    let client = app.client()?;
    let project = if args.id.is_none() {
        app.project(&client)?
    } else {
        None
    };
    let reply: CallReply<GraphView> = client.call(call::Graph(input::GraphInput {
        id: args.id.clone(),
        project,
    }))?;
    let graph = reply.data;
    let next: Vec<String> = graph
        .critical
        .first()
        .map(|id| format!("regatta why {id}"))
        .into_iter()
        .collect();
    app.output.print_answer("graph", &graph, &next, |out| {
        draw_graph(out, &graph, window_width())
    })
}

/// Draws the graph as a picture if it fits the window, and as a list otherwise.
fn draw_graph(out: &Output, graph: &GraphView, window: Option<usize>) -> String {
    let mut text = format!(
        "{}   {}\n",
        first_line(&graph.title),
        first_line(&graph.text)
    );
    if graph.nodes.is_empty() {
        return text;
    }
    let width = window.unwrap_or(DEFAULT_WIDTH);
    let (linked, loose) = split_loose_nodes(graph);
    let picture = if linked.nodes.is_empty() {
        Some(String::new())
    } else {
        picture::draw_picture(out, &linked, width)
    };
    match picture {
        Some(picture_text) => {
            text += &picture_text;
            text += &draw_loose_nodes(out, &loose, width, !picture_text.is_empty());
            text += &format!("{}\n", legend(out, graph));
        }
        None => text += &draw_list(out, graph),
    }
    if !graph.critical.is_empty() {
        let arrow = if out.is_unicode { " → " } else { " -> " };
        let path: Vec<String> = graph.critical.iter().map(ToString::to_string).collect();
        text += &format!(
            "{} {}\n",
            out.paint("longest path of open tasks:", "1"),
            shorten_path(&path).join(arrow)
        );
    }
    text
}

/// Returns the graph without the nodes at which no line begins or ends, and these nodes.
fn split_loose_nodes(graph: &GraphView) -> (GraphView, Vec<&GraphNodeView>) {
    let mut new_index = vec![0; graph.nodes.len()];
    let mut nodes = Vec::new();
    for (index, node) in graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.loose)
    {
        new_index[index] = nodes.len();
        nodes.push(node.clone());
    }
    let edges = graph
        .edges
        .iter()
        .map(|edge| GraphEdgeView {
            from: new_index[edge.from],
            to: new_index[edge.to],
            ..edge.clone()
        })
        .collect();
    let linked = GraphView {
        columns: nodes.iter().map(|node| node.column + 1).max().unwrap_or(0),
        nodes,
        edges,
        ..graph.clone()
    };
    (
        linked,
        graph.nodes.iter().filter(|node| node.loose).collect(),
    )
}

/// Draws the tasks without dependencies in as many columns as fit, one after the other in rows.
fn draw_loose_nodes(
    out: &Output,
    nodes: &[&GraphNodeView],
    width: usize,
    has_picture: bool,
) -> String {
    let texts: Vec<String> = nodes
        .iter()
        .map(|node| {
            let label = first_line(&node.label);
            let label = match node.tasks[..] {
                [task] => format!("{task} {label}"),
                _ => label,
            };
            out.format_state(node.at, &cut_to_width(&label, MAX_LOOSE_WIDTH))
        })
        .collect();
    let widest = texts.iter().map(|text| display_width(text)).max();
    let Some(widest) = widest else {
        return String::new();
    };
    let columns = ((width + 2) / (widest + 2)).max(1);
    let mut text = String::new();
    if has_picture {
        text += "without dependencies:\n";
    }
    for row in texts.chunks(columns) {
        let padded: Vec<String> = row
            .iter()
            .map(|text| format!("{text}{}", " ".repeat(widest - display_width(text))))
            .collect();
        text += &format!("{}\n", padded.join("  ").trim_end());
    }
    text
}

/// Shortens a path of more than twelve tasks to its first nine and its last.
fn shorten_path(path: &[String]) -> Vec<String> {
    match path {
        [first @ .., last] if path.len() > 12 => {
            let omitted = format!("… {} more …", path.len() - 10);
            first[..9]
                .iter()
                .cloned()
                .chain([omitted, last.clone()])
                .collect()
        }
        _ => path.to_vec(),
    }
}

/// Returns the legend below the picture: the sign and the name of each state that occurs.
fn legend(out: &Output, graph: &GraphView) -> String {
    let mut states: Vec<(DisplayState, &str)> = Vec::new();
    for node in &graph.nodes {
        let state = (node.at, node.word.as_str());
        if !states.contains(&state) {
            states.push(state);
        }
    }
    states
        .into_iter()
        .map(|(state, word)| out.format_state(state, word))
        .collect::<Vec<_>>()
        .join("  ")
}

/// Draws the graph as a list with one line per task, ordered by wave (tasks that can run at the
/// same time).
fn draw_list(out: &Output, graph: &GraphView) -> String {
    let arrow = if out.is_unicode { "←" } else { "<-" };
    let mut last = None;
    let row = |node: &GraphNodeView| {
        let wave = if last == Some(node.column) {
            String::new()
        } else {
            format!("{}", node.column + 1)
        };
        last = Some(node.column);
        let (mark, needs): (_, Vec<String>) = (
            if node.critical { "*" } else { "" },
            node.needs.iter().map(ToString::to_string).collect(),
        );
        let name = match node.tasks[..] {
            [one] => format!("{one}{mark}"),
            _ => mark.to_owned(),
        };
        let needs = if needs.is_empty() {
            String::new()
        } else {
            format!("{arrow} {}", needs.join(" "))
        };
        vec![
            wave,
            name,
            out.format_state(node.at, &node.word),
            first_line(&node.label),
            needs,
        ]
    };
    let rows: Vec<Vec<String>> = graph.nodes.iter().map(row).collect();
    format_table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::display_width;
    use regatta_api::live_view::TaskRowView;
    use regatta_core::ids::TaskId;
    use regatta_core::task::TaskStatus;

    fn test_output(unicode: bool) -> Output {
        Output {
            is_json: false,
            quiet_level: 0,
            has_colour: false,
            has_hints: false,
            is_unicode: unicode,
            pager: None,
            program: None,
        }
    }

    fn task_row(id: u64, needs: &[u64], at: &str, subject: &str) -> (TaskRowView, TaskStatus) {
        let status = match at {
            "landed" => TaskStatus::Completed,
            "working" => TaskStatus::InProgress,
            _ => TaskStatus::Pending,
        };
        let value = serde_json::json!({
            "id": format!("T{id}"), "project": "shop", "mission": null, "subject": subject, "word": at, "at": at,
            "agent": null, "text": "", "since_wall": 0, "wave": 0, "priority": 2,
            "blocked_by": needs.iter().map(|need| format!("T{need}")).collect::<Vec<_>>(),
        });
        (serde_json::from_value(value).unwrap(), status)
    }

    fn sample_graph() -> GraphView {
        let rows = [
            task_row(1, &[], "landed", "word list"),
            task_row(2, &[1], "working", "french"),
            task_row(3, &[1], "working", "german"),
            task_row(4, &[2, 3], "waiting", "greeting menu"),
            task_row(5, &[], "working", "old flag"),
            task_row(6, &[4], "waiting", "tests"),
            task_row(7, &[4, 5], "waiting", "docs"),
        ];
        GraphView::new("M1 Greet".into(), &rows, None)
    }

    #[test]
    fn a_graph_is_drawn_as_a_picture_if_it_fits() {
        let expected = "\
M1 Greet   7 tasks in 4 waves
wave 1              wave 2             wave 3                  wave 4
✓ T1 word list ─┬─→ ▶ T2 french ━┳━━━→ ‖ T4 greeting menu ━┳━→ ‖ T6 tests
                └─→ ▶ T3 german ─┘ ┌───────────────────────└─→ ‖ T7 docs
▶ T5 old flag ─────────────────────┘
✓ landed  ▶ working  ‖ waiting
longest path of open tasks: T2 → T4 → T6
";
        assert_eq!(
            draw_graph(&test_output(true), &sample_graph(), Some(100)),
            expected
        );
        assert_eq!(
            draw_graph(&test_output(true), &sample_graph(), None),
            expected,
            "without a terminal"
        );
        // In narrower windows the subjects are cut, then only ids are left, then the graph becomes
        // a list.
        for (room, shown) in [(72, "T4 greeting me…"), (60, "✓ T1 word…"), (45, "✓ T1 ")] {
            let drawn = draw_graph(&test_output(true), &sample_graph(), Some(room));
            assert!(drawn.contains(shown) && drawn.contains("wave 1"), "{drawn}");
            let picture = drawn.lines().filter(|line| !line.starts_with("longest"));
            assert!(
                picture.clone().all(|line| display_width(line) <= room),
                "{drawn}"
            );
        }
        let listed = draw_graph(&test_output(true), &sample_graph(), Some(30));
        assert!(
            listed.contains("T4*  ‖ waiting  greeting menu  ← T2 T3"),
            "{listed}"
        );
        let plain = draw_graph(&test_output(false), &sample_graph(), Some(100));
        assert!(
            plain.is_ascii() && plain.contains("> T2 french =+===> = T4 greeting menu"),
            "{plain}"
        );
        let none = GraphView::new("all tasks".into(), &[], None);
        assert_eq!(
            draw_graph(&test_output(true), &none, None),
            "all tasks   0 tasks in 0 waves\n"
        );
    }

    /// Tasks without dependencies are listed side by side, so that they do not make one tall column.
    #[test]
    fn tasks_without_dependencies_are_listed_side_by_side_below_the_picture() {
        let mut rows = vec![
            task_row(1, &[], "landed", "word list"),
            task_row(2, &[1], "working", "french"),
        ];
        rows.extend((3..=7).map(|id| task_row(id, &[], "waiting", "loose task")));
        let expected = "\
all   7 tasks in 2 waves
wave 1            wave 2
✓ T1 word list ─→ ▶ T2 french
without dependencies:
‖ T3 loose task  ‖ T4 loose task  ‖ T5 loose task
‖ T6 loose task  ‖ T7 loose task
✓ landed  ‖ waiting  ▶ working
";
        let draw = |rows: &[(TaskRowView, TaskStatus)]| {
            let graph = GraphView::new("all".into(), rows, None);
            draw_graph(&test_output(true), &graph, Some(52))
        };
        assert_eq!(draw(&rows), expected);
        let loose = draw(&rows[2..]);
        assert!(
            loose.contains("\n‖ T3 loose task  ‖ T4") && !loose.contains("without"),
            "{loose}"
        );
    }

    /// Lines of different edges never touch in a way that suggests an edge that does not exist.
    #[test]
    fn lines_do_not_run_into_each_other() {
        let all = |rows: &[(TaskRowView, TaskStatus)]| {
            draw_graph(
                &test_output(true),
                &GraphView::new("x".into(), rows, None),
                None,
            )
        };
        let both = [
            task_row(1, &[], "landed", "a"),
            task_row(2, &[], "landed", "b"),
            task_row(3, &[1, 2], "landed", "c"),
            task_row(4, &[1, 2], "landed", "d"),
        ];
        let bus = "\
✓ T1 a ─┬─→ ✓ T3 c
✓ T2 b ─┴─→ ✓ T4 d
";
        assert!(all(&both).contains(bus), "{}", all(&both));
        // Only T1 leads to T5. The line to T5 leaves T1 on the free line below, because T2's line
        // enters T1's own line.
        let round = [
            task_row(1, &[], "landed", "a"),
            task_row(2, &[], "landed", "b"),
            task_row(3, &[1, 2], "landed", "c"),
            task_row(4, &[1, 2], "landed", "d"),
            task_row(5, &[1], "landed", "e"),
        ];
        let below = "\
          ┌─→ ✓ T5 e
          │
✓ T1 a ┐┌─├─→ ✓ T3 c
       └│─┤
✓ T2 b ─┴─└─→ ✓ T4 d
";
        assert!(all(&round).contains(below), "{}", all(&round));
    }

    /// A long path is shortened to its ends.
    #[test]
    fn a_long_path_keeps_only_its_ends() {
        let way: Vec<String> = (1..=30).map(|n| TaskId(n).to_string()).collect();
        let cut = shorten_path(&way);
        assert_eq!(
            (cut.len(), cut[9].as_str(), cut[10].as_str()),
            (11, "… 20 more …", "T30")
        );
        assert_eq!(shorten_path(&way[..12]).len(), 12);
    }
}
