//! Graphs of tasks and their dependencies, with a computed layout that interfaces draw unchanged.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::display;
use regatta_core::ids::{AgentName, TaskId};
use regatta_core::plural;
use regatta_core::task::TaskStatus;
use serde::{Deserialize, Serialize};

use crate::graph_layout::{self as layout, LayoutTask};
use crate::live_view::{DisplayState, TaskRowView};

/// Tasks and their dependencies as a graph on a grid. Each column is a wave (a group of tasks that
/// can run at the same time), and each cell has at most one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphView {
    /// A title that says what the graph shows: a mission, a task with its neighbours, or all tasks.
    pub title: String,
    /// A text with the number of tasks, and with the number of tasks that share a node with others.
    pub text: String,
    /// The number of tasks in the graph, including the tasks that share a node with others.
    pub tasks: usize,
    pub columns: u32,
    pub rows: u32,
    /// The nodes of the graph, sorted by column, then by row.
    pub nodes: Vec<GraphNodeView>,
    pub edges: Vec<GraphEdgeView>,
    /// The critical path: the longest chain of unfinished tasks that depend on each other, in
    /// order.
    pub critical: Vec<TaskId>,
}

/// A node of the graph: one task, or several tasks that are combined to save space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphNodeView {
    /// The column of the node, counting from 0. The column is the wave (the group of tasks that can
    /// run at the same time) to which the node's tasks belong.
    pub column: u32,
    pub row: u32,
    pub tasks: Vec<TaskId>,
    /// The text of the node: the task's subject or, if the node is several tasks, the number of
    /// tasks in each status, such as `12 landed`.
    pub label: String,
    /// The task's status in one word. If the node is several tasks, the most frequent status.
    pub word: String,
    pub at: DisplayState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// All tasks that must be completed before this task, including tasks that the graph does not
    /// show; empty if the node is several tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<TaskId>,
    /// True if the node is on the critical path (the longest chain of unfinished tasks).
    pub critical: bool,
    /// True if no line begins or ends at the node. Drawings list such nodes compactly below the
    /// others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loose: bool,
}

/// A line from a node to a node that depends on the first one. `from` and `to` are positions in the
/// list of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphEdgeView {
    pub from: usize,
    pub to: usize,
    /// The grid cells through which the line is drawn, as `[column, row]`. The list has one cell
    /// for each column, including both ends of the line.
    pub through: Vec<(u32, u32)>,
    pub critical: bool,
}

impl GraphView {
    /// Computes the graph of the tasks in `rows`, each given as a row of a list and a status. With
    /// `around`, the graph shows only that task and the tasks that are at most two dependency steps
    /// away.
    pub fn new(
        title: String,
        rows: &[(TaskRowView, TaskStatus)],
        around: Option<TaskId>,
    ) -> GraphView {
        let items: Vec<LayoutTask<'_>> = rows.iter().map(layout_task).collect();
        let laid = match around {
            Some(task) => layout::lay_out(&layout::neighbourhood(task, &items), Some(task)),
            None => layout::lay_out(&items, None),
        };
        let by_id: BTreeMap<TaskId, &TaskRowView> = rows
            .iter()
            .map(|(task_row, _)| (task_row.id, task_row))
            .collect();
        let linked: BTreeSet<usize> = laid
            .edges
            .iter()
            .flat_map(|layout_edge| [layout_edge.from, layout_edge.to])
            .collect();
        let nodes: Vec<GraphNodeView> = laid
            .nodes
            .into_iter()
            .enumerate()
            .map(|(index, layout_node)| GraphNodeView {
                loose: !linked.contains(&index),
                ..node_view(layout_node, &by_id)
            })
            .collect();
        let edge = |layout_edge: layout::LayoutEdge| GraphEdgeView {
            from: layout_edge.from,
            to: layout_edge.to,
            through: layout_edge.through,
            critical: layout_edge.is_critical,
        };
        GraphView {
            title,
            text: summary_text(&nodes, laid.columns),
            tasks: nodes.iter().map(|graph_node| graph_node.tasks.len()).sum(),
            columns: laid.columns,
            rows: laid.rows,
            nodes,
            edges: laid.edges.into_iter().map(edge).collect(),
            critical: laid.critical,
        }
    }
}

fn layout_task((task_row, status): &(TaskRowView, TaskStatus)) -> LayoutTask<'_> {
    LayoutTask {
        id: task_row.id,
        needs: &task_row.blocked_by,
        label: &task_row.word,
        progress: display::task_progress(*status),
    }
}

fn node_view(
    layout_node: layout::LayoutNode,
    rows: &BTreeMap<TaskId, &TaskRowView>,
) -> GraphNodeView {
    let members: Vec<&TaskRowView> = layout_node
        .tasks
        .iter()
        .filter_map(|id| rows.get(id).copied())
        .collect();
    // Sort by frequency, the most frequent status first. Among equally frequent statuses, put the
    // most urgent first.
    let mut counts: BTreeMap<(DisplayState, &str), usize> = BTreeMap::new();
    members
        .iter()
        .for_each(|task_row| *counts.entry((task_row.at, &task_row.word)).or_default() += 1);
    let mut counts: Vec<((DisplayState, &str), usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (at, word) = counts
        .first()
        .map_or((DisplayState::Waiting, ""), |(status, _)| *status);
    let only_task = match members[..] {
        [task_row] => Some(task_row),
        _ => None,
    };
    let status_counts = || {
        counts
            .iter()
            .map(|((_, word), count)| format!("{count} {word}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    GraphNodeView {
        column: layout_node.column,
        row: layout_node.row,
        label: only_task.map_or_else(status_counts, |task_row| task_row.subject.clone()),
        word: word.into(),
        at,
        agent: only_task.and_then(|task_row| task_row.agent.clone()),
        needs: only_task
            .map(|task_row| task_row.blocked_by.clone())
            .unwrap_or_default(),
        tasks: layout_node.tasks,
        critical: layout_node.is_critical,
        loose: false,
    }
}

fn summary_text(nodes: &[GraphNodeView], waves: u32) -> String {
    let tasks: usize = nodes.iter().map(|graph_node| graph_node.tasks.len()).sum();
    let folded: Vec<usize> = nodes
        .iter()
        .map(|graph_node| graph_node.tasks.len())
        .filter(|tasks| *tasks > 1)
        .collect();
    let text = format!(
        "{} in {}",
        plural::count(tasks, "task"),
        plural::count(waves, "wave")
    );
    match folded.len() {
        0 => text,
        boxes => {
            let into = if boxes == 1 {
                "one box".to_owned()
            } else {
                plural::count(boxes, "box")
            };
            format!(
                "{text} · {} of them folded into {into}",
                folded.iter().sum::<usize>()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_row(
        id: u64,
        needs: &[u64],
        state: DisplayState,
        status: TaskStatus,
    ) -> (TaskRowView, TaskStatus) {
        let word = if state == DisplayState::Landed {
            "landed"
        } else {
            status.label()
        };
        let value = serde_json::json!({
            "id": format!("T{id}"), "project": "shop", "mission": null, "subject": format!("thing {id}"), "word": word,
            "at": state, "agent": "ann", "text": "", "since_wall": 0, "wave": 0, "priority": 2,
            "blocked_by": needs.iter().map(|need| format!("T{need}")).collect::<Vec<_>>(),
        });
        (serde_json::from_value(value).unwrap(), status)
    }

    #[test]
    fn graph_describes_drawn_tasks_and_folded_tasks() {
        let rows = [
            test_row(1, &[], DisplayState::Landed, TaskStatus::Completed),
            test_row(2, &[1], DisplayState::Working, TaskStatus::InProgress),
            test_row(3, &[2, 99], DisplayState::Waiting, TaskStatus::Pending),
        ];
        let few = GraphView::new("M1 Greet".into(), &rows, None);
        assert_eq!(
            (few.title.as_str(), few.text.as_str()),
            ("M1 Greet", "3 tasks in 3 waves")
        );
        let last = &few.nodes[2];
        assert_eq!(
            (last.label.as_str(), last.word.as_str(), last.at),
            ("thing 3", "waiting", DisplayState::Waiting)
        );
        assert_eq!(
            (last.needs.len(), last.critical, few.nodes[0].critical),
            (2, true, false)
        );
        assert_eq!(few.critical, [TaskId(2), TaskId(3)]);
        assert_eq!(
            few.edges[1],
            GraphEdgeView {
                from: 1,
                to: 2,
                through: vec![(1, 0), (2, 0)],
                critical: true
            }
        );
        let neighbourhood = GraphView::new("around T3".into(), &rows, Some(TaskId(3)));
        assert_eq!(
            (neighbourhood.tasks, neighbourhood.text.as_str()),
            (3, "3 tasks in 3 waves")
        );

        let mut rows_to_fold: Vec<(TaskRowView, TaskStatus)> = (1..=80)
            .map(|n| test_row(n, &[], DisplayState::Landed, TaskStatus::Completed))
            .collect();
        rows_to_fold.extend([
            test_row(81, &[], DisplayState::Failed, TaskStatus::Cancelled),
            test_row(82, &[80], DisplayState::Failed, TaskStatus::Failed),
        ]);
        let folded = GraphView::new("all".into(), &rows_to_fold, None);
        assert_eq!(
            folded.text,
            "82 tasks in 2 waves · 80 of them folded into one box"
        );
        let labels: Vec<(&str, DisplayState)> = folded
            .nodes
            .iter()
            .map(|graph_node| (graph_node.label.as_str(), graph_node.at))
            .collect();
        // A failed task is not finished, because others may wait for its retry.
        let expected = [
            ("thing 80", DisplayState::Landed),
            ("79 landed, 1 cancelled", DisplayState::Landed),
            ("thing 82", DisplayState::Failed),
        ];
        assert_eq!(labels, expected);
        assert_eq!(
            (folded.nodes[1].agent.as_ref(), folded.nodes[1].needs.len()),
            (None, 0)
        );
        assert_eq!(
            GraphView::new("none".into(), &[], None).text,
            "0 tasks in 0 waves"
        );
    }
}
