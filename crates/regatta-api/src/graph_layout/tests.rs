use super::*;
use proptest::prelude::*;

type TestTask = (u64, Vec<u64>, char);

fn status_of(state: char) -> (&'static str, TaskProgress) {
    match state {
        'l' => ("landed", TaskProgress::Ended),
        'c' => ("cancelled", TaskProgress::Ended),
        'w' => ("working", TaskProgress::Active),
        _ => ("waiting", TaskProgress::Waiting),
    }
}

fn layout_of(given: &[TestTask], keep: Option<u64>) -> GraphLayout {
    let needs: Vec<Vec<TaskId>> = given
        .iter()
        .map(|given| given.1.iter().map(|n| TaskId(*n)).collect())
        .collect();
    let item = |(row, needs): (&TestTask, &'static [TaskId])| LayoutTask {
        id: TaskId(row.0),
        needs,
        label: status_of(row.2).0,
        progress: status_of(row.2).1,
    };
    let needs: Vec<&'static [TaskId]> = needs.into_iter().map(|ids| &*ids.leak()).collect();
    let items: Vec<LayoutTask<'_>> = given.iter().zip(needs).map(item).collect();
    match keep {
        Some(keep) => lay_out(&neighbourhood(TaskId(keep), &items), Some(TaskId(keep))),
        None => lay_out(&items, None),
    }
}

/// Formats a layout as `T1@0,0 T2+3@1,0*`: first task, number of further tasks, column, row,
/// and `*` on the critical path.
fn format_layout(layout: &GraphLayout) -> String {
    let node = |node: &LayoutNode| {
        let more = if node.tasks.len() > 1 {
            format!("+{}", node.tasks.len() - 1)
        } else {
            String::new()
        };
        let mark = if node.is_critical { "*" } else { "" };
        format!(
            "T{}{more}@{},{}{mark}",
            node.tasks[0].0, node.column, node.row
        )
    };
    layout.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
}

fn format_edges(layout: &GraphLayout) -> Vec<String> {
    let name = |at: usize| format!("T{}", layout.nodes[at].tasks[0].0);
    let mark = |edge: &LayoutEdge| if edge.is_critical { "*" } else { "" };
    layout
        .edges
        .iter()
        .map(|edge| format!("{}-{}{}", name(edge.from), name(edge.to), mark(edge)))
        .collect()
}

fn check(given: &[TestTask], expected: &str) {
    assert_eq!(
        format_layout(&layout_of(given, None)),
        expected,
        "{given:?}"
    );
}

#[test]
fn waves_are_columns_and_no_two_tasks_share_a_cell() {
    check(&[], "");
    check(&[(1, vec![], '-')], "T1@0,0");
    // A chain is straight, and an isolated task is below it.
    check(
        &[
            (1, vec![], '-'),
            (2, vec![1], '-'),
            (3, vec![2], '-'),
            (4, vec![], '-'),
        ],
        "T1@0,0* T4@0,1 T2@1,0* T3@2,0*",
    );
    // Three tasks depend on one, and a fifth depends on the three.
    let fan = [
        (1, vec![], '-'),
        (2, vec![1], '-'),
        (3, vec![1], '-'),
        (4, vec![1], '-'),
        (5, vec![2, 3, 4], '-'),
    ];
    check(&fan, "T1@0,0* T2@1,0* T3@1,1 T4@1,2 T5@2,0*");
    // A long edge has its own cell in each column between, so no line crosses T2.
    let long = layout_of(
        &[(1, vec![], '-'), (2, vec![1], '-'), (3, vec![1, 2], '-')],
        None,
    );
    assert_eq!(format_layout(&long), "T1@0,1* T2@1,1* T3@2,1*");
    assert_eq!(format_edges(&long), ["T1-T2*", "T1-T3", "T2-T3*"]);
    assert_eq!(long.edges[1].through, [(0, 1), (1, 0), (2, 1)]);
    assert_eq!((long.columns, long.rows), (3, 2));
    // Connected tasks stay together, and isolated tasks come last.
    check(
        &[
            (1, vec![], 'l'),
            (2, vec![], 'l'),
            (3, vec![], 'l'),
            (4, vec![3], 'l'),
        ],
        "T3@0,0 T1@0,1 T2@0,2 T4@1,0",
    );
    let mixed = [
        (1, vec![], 'l'),
        (2, vec![], 'l'),
        (3, vec![2], 'l'),
        (4, vec![1], 'l'),
    ];
    check(&mixed, "T1@0,0 T2@0,1 T4@1,0 T3@1,1");
    // Tasks whose lines would cross change places.
    let crossed = [
        (1, vec![], 'l'),
        (2, vec![], 'l'),
        (3, vec![], 'l'),
        (4, vec![3], 'l'),
        (5, vec![1], 'l'),
    ];
    let crossed: Vec<TestTask> = crossed
        .into_iter()
        .chain([(6, vec![2], 'l'), (7, vec![4, 5, 6], 'l')])
        .collect();
    check(&crossed, "T1@0,0 T2@0,1 T3@0,2 T5@1,0 T6@1,1 T4@1,2 T7@2,1");
}

#[test]
fn the_critical_path_is_the_longest_path_of_open_tasks() {
    let way = |given: &[TestTask]| {
        layout_of(given, None)
            .critical
            .iter()
            .map(|id| id.0)
            .collect::<Vec<_>>()
    };
    // T3 ends the longest path of all tasks, T5 the longest path of open tasks.
    let half = [
        (1, vec![], 'l'),
        (2, vec![1], 'l'),
        (3, vec![2], '-'),
        (4, vec![], 'w'),
        (5, vec![4], '-'),
    ];
    assert_eq!(way(&half), [4, 5]);
    // Of two equally long paths, the one with the smaller ids wins.
    assert_eq!(
        way(&[
            (4, vec![], '-'),
            (3, vec![], '-'),
            (6, vec![4], '-'),
            (5, vec![3], '-')
        ]),
        [3, 5]
    );
    // A single task is no path, and landed tasks are not counted.
    assert_eq!(
        way(&[(1, vec![], '-'), (2, vec![], '-')]),
        Vec::<u64>::new()
    );
    assert_eq!(
        way(&[(1, vec![], 'l'), (2, vec![1], 'l')]),
        Vec::<u64>::new()
    );
}

#[test]
fn the_neighbourhood_of_a_task_is_two_steps_in_each_direction() {
    let chain: Vec<TestTask> = (1..=9).map(|n| (n, vec![n - 1], '-')).collect();
    let near = layout_of(&chain, Some(5));
    assert_eq!(
        format_layout(&near),
        "T3@0,0* T4@1,0* T5@2,0* T6@3,0* T7@4,0*"
    );
    assert_eq!(layout_of(&chain, Some(99)), GraphLayout::default());
}

/// Above sixty boxes, the least interesting tasks share a box.
#[test]
fn the_least_interesting_tasks_are_folded_first() {
    // Up to sixty tasks are drawn one by one, whatever their status.
    let landed_tasks = |count: u64| {
        (1..=count)
            .map(|n| (n, vec![], 'l'))
            .collect::<Vec<TestTask>>()
    };
    assert_eq!(layout_of(&landed_tasks(60), None).nodes.len(), 60);
    check(&landed_tasks(61), "T1+60@0,0");
    // One landed chain has an open end, and no task waits for the other.
    let mut chains: Vec<TestTask> = (1..=40)
        .map(|n| (n, vec![n - 1], if n < 39 { 'l' } else { '-' }))
        .collect();
    chains.extend((41..=80).map(|n| (n, if n == 41 { vec![] } else { vec![n - 1] }, 'l')));
    check(&chains, "T1+37@0,0 T41+39@0,1 T39@1,0* T40@2,0*");
    // Pieces that no open task waits for share one box.
    chains.extend([(81, vec![], 'l'), (82, vec![81], 'l')]);
    check(&chains, "T1+37@0,0 T41+41@0,1 T39@1,0* T40@2,0*");
    chains.truncate(80);
    // A landed task that depends on an open one is not folded with earlier ones, so no cycle
    // arises.
    chains[36].2 = '-';
    check(
        &chains,
        "T1+35@0,0 T41+39@0,1 T37@1,0* T38@2,0 T39@3,0* T40@4,0*",
    );
    // Leaves with equal dependencies and status are folded; working tasks stay visible.
    let mut leaves: Vec<TestTask> = (2..=70)
        .map(|n| (n, vec![1], if n < 11 { '-' } else { 'l' }))
        .collect();
    leaves.push((1, vec![], 'w'));
    (leaves[7].2, leaves[8].2) = ('w', 'w');
    check(
        &leaves,
        "T1@0,0* T2@1,0* T3+5@1,1 T9@1,2 T10@1,3 T11+59@1,4",
    );
    // Pairs: tasks of one wave with the same status are folded, except on the critical path.
    let pairs: Vec<TestTask> = (1..=70)
        .map(|n| (n, if n % 2 == 0 { vec![n - 1] } else { vec![] }, '-'))
        .collect();
    check(&pairs, "T1@0,0* T3+33@0,1 T2@1,0* T4+33@1,1");
    // Working tasks are folded, too, if all of them work.
    let busy: Vec<TestTask> = (1..=70).map(|n| (n, vec![], 'w')).collect();
    check(&busy, "T1+69@0,0");
    // A very long chain is cut where it can no longer be read.
    let chain: Vec<TestTask> = (1..=300).map(|n| (n, vec![n - 1], '-')).collect();
    let cut = layout_of(&chain, None);
    assert_eq!(
        (
            cut.nodes.len(),
            cut.nodes[59].tasks.len(),
            cut.critical.len()
        ),
        (60, 241, 300)
    );
}

#[test]
fn the_task_in_the_centre_is_never_folded() {
    let mut given: Vec<TestTask> = (2..=90).map(|n| (n, vec![1], '-')).collect();
    given.push((1, vec![], 'l'));
    let near = layout_of(&given, Some(50));
    assert_eq!(
        near.nodes
            .iter()
            .filter(|node| node.tasks == [TaskId(50)])
            .count(),
        1
    );
    assert!(near.nodes.len() < 5, "{}", format_layout(&near));
}

/// The daemon accepts no cycles. If one appeared all the same, the layout would still
/// terminate.
#[test]
fn a_cycle_does_not_keep_the_layout_from_ending() {
    check(&[(1, vec![1], '-')], "T1@0,0");
    let two = layout_of(&[(1, vec![2], '-'), (2, vec![1], '-')], None);
    assert_eq!((two.nodes.len(), two.edges.len()), (2, 1));
    let third = layout_of(
        &[(1, vec![2, 3], '-'), (2, vec![1], '-'), (3, vec![], '-')],
        None,
    );
    assert!(
        format_edges(&third)
            .iter()
            .any(|edge| edge.starts_with("T3-T1")),
        "an edge outside the cycle was left out"
    );
    let all: Vec<TestTask> = (0..80).map(|n| (n, (0..80).collect(), '-')).collect();
    assert_eq!(
        layout_of(&all, None)
            .nodes
            .iter()
            .map(|node| node.tasks.len())
            .sum::<usize>(),
        80
    );
}

/// A task whose status changes keeps its position if nothing else changes.
#[test]
fn a_change_of_status_moves_no_task() {
    let given = |at: char| -> Vec<TestTask> {
        (1..=50)
            .map(|n| (n, vec![n / 2, n / 3], if n == 7 { at } else { 'l' }))
            .collect()
    };
    let places = |at: char| layout_of(&given(at), None).nodes;
    assert_eq!(places('l'), places('w'));
}

/// Checks the properties that each layout must have.
fn check_properties(given: &[TestTask], layout: &GraphLayout, keep: Option<u64>) {
    let mut drawn: Vec<u64> = layout
        .nodes
        .iter()
        .flat_map(|node| node.tasks.iter().map(|id| id.0))
        .collect();
    drawn.sort_unstable();
    if keep.is_none() {
        let mut all: Vec<u64> = given.iter().map(|given| given.0).collect();
        all.sort_unstable();
        assert_eq!(drawn, all, "a task is in no box or in two boxes");
        assert!(
            layout.nodes.len() <= MAX_BOXES.max(1),
            "{} boxes",
            layout.nodes.len()
        );
    }
    let places: BTreeSet<(u32, u32)> = layout
        .nodes
        .iter()
        .map(|node| (node.column, node.row))
        .collect();
    assert_eq!(
        places.len(),
        layout.nodes.len(),
        "two boxes in the same cell: {}",
        format_layout(layout)
    );
    assert!(
        places
            .iter()
            .all(|place| place.0 < layout.columns && place.1 < layout.rows)
    );
    assert!(
        layout
            .nodes
            .is_sorted_by_key(|node| (node.column, node.row))
    );
    let mut cells: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for edge in &layout.edges {
        let (from, to) = (&layout.nodes[edge.from], &layout.nodes[edge.to]);
        assert!(
            from.column < to.column,
            "an edge goes backwards in {}",
            format_layout(layout)
        );
        let wide = to.column - from.column;
        assert_eq!(
            edge.through.len() as u32,
            wide + 1,
            "an edge does not have one cell in each column"
        );
        assert!(
            (from.column..)
                .zip(&edge.through)
                .all(|(column, pair)| pair.0 == column)
        );
        assert_eq!(edge.through.first(), Some(&(from.column, from.row)));
        assert_eq!(edge.through.last(), Some(&(to.column, to.row)));
        for cell in &edge.through[1..edge.through.len() - 1] {
            assert!(!places.contains(cell), "an edge runs through a box");
            assert_eq!(
                *cells.entry(*cell).or_insert(edge.from),
                edge.from,
                "edges of two boxes in one cell"
            );
        }
    }
    // A task's dependencies are before it or in the same box.
    let at = |id: u64| {
        layout
            .nodes
            .iter()
            .position(|node| node.tasks.contains(&TaskId(id)))
    };
    for (id, needs, _) in given.iter().filter(|given| drawn.contains(&given.0)) {
        for need in needs.iter().filter(|need| drawn.contains(need)) {
            let (from, to) = (at(*need), at(*id));
            let linked = layout
                .edges
                .iter()
                .any(|edge| Some(edge.from) == from && Some(edge.to) == to);
            assert!(from == to || linked, "T{need}-T{id} is not drawn");
        }
    }
}

fn graphs() -> impl Strategy<Value = Vec<TestTask>> {
    let needs = |most: u64| proptest::collection::vec(1..=most.max(1), 0..4);
    (1..130_u64).prop_flat_map(move |many| {
        let task = move |id: u64| {
            let needs = needs(id.saturating_sub(1));
            (
                Just(id),
                needs,
                proptest::sample::select(vec!['l', 'c', 'w', '-']),
            )
        };
        (1..=many).map(task).collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_task_is_drawn_once_and_every_edge_goes_forward(given in graphs(), near in 1..130_u64) {
        let given: Vec<TestTask> = given
            .into_iter()
            .map(|(id, needs, state)| (id, needs.into_iter().filter(|need| *need < id).collect(), state))
            .collect();
        let all = layout_of(&given, None);
        check_properties(&given, &all, None);
        let mut turned = given.clone();
        turned.reverse();
        prop_assert_eq!(&layout_of(&turned, None), &all, "the layout depends on the order of \
            the tasks");
        check_properties(&given, &layout_of(&given, Some(near)), Some(near));
    }
}
