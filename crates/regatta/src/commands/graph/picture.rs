//! Draws a task graph as text: a box for each task, in columns, and lines from left to right for
//! the edges.
//!
//! Each row of the layout is one line of text. Between two columns of boxes is a gutter (space for
//! edges). Boxes on the left of a gutter that lead to the same boxes on its right share one bus:
//! their edges meet in one vertical line and leave it together. Lines of two buses must not
//! overlap, because they would look like one bus. If that cannot be avoided, every row gets a
//! second, free line below its boxes, and one of the two buses uses the free line. Where two lines
//! cross, the vertical line is drawn on top.

use std::collections::{BTreeMap, BTreeSet};

use regatta_api::view::{GraphNodeView, GraphView};

use crate::output::{
    Output, cut_to_width, display_width, first_line, prefix_of_width, state_colour,
};

/// The maximum width of a box in columns.
const MAX_BOX_WIDTH: usize = 34;
/// The minimum width of a subject that is cut to fit into its box. A box with less room shows only
/// the task's id.
const MIN_SUBJECT_WIDTH: usize = 4;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// A bus: edges of the graph that share one vertical line. They lead from boxes on the left of a
/// gutter (the space between two columns) to the same boxes on its right.
struct EdgeBus {
    /// The rows of the boxes on the left, in ascending order.
    from_rows: Vec<u32>,
    to_rows: BTreeSet<u32>,
    /// The edges of this bus (group of edges) that are on the longest path of the graph. Each edge
    /// is the row of its left box and the row of its right box.
    critical_edges: Vec<(u32, u32)>,
    /// True if the edges leave their boxes on the free line of text below the boxes.
    leaves_below: bool,
    /// The position of the vertical line in the gutter (the space between two columns of boxes),
    /// from 0 on the left; `None` if the edges form one straight line.
    track: Option<usize>,
}

impl EdgeBus {
    fn is_straight(&self) -> bool {
        self.from_rows.len() == 1
            && self.to_rows.len() == 1
            && self.to_rows.contains(&self.from_rows[0])
    }

    fn is_critical_from(&self, row: u32) -> bool {
        self.critical_edges
            .iter()
            .any(|critical_edge| critical_edge.0 == row)
    }

    fn is_critical_to(&self, row: u32) -> bool {
        self.critical_edges
            .iter()
            .any(|critical_edge| critical_edge.1 == row)
    }

    /// Returns the first and the last row that the common vertical line of these edges covers.
    fn row_range(&self) -> (u32, u32) {
        let all = || self.from_rows.iter().chain(&self.to_rows).copied();
        (
            all().min().unwrap_or(0),
            all().max().unwrap_or(0) + u32::from(self.leaves_below),
        )
    }
}

/// The line segments that the drawn graph has at one character.
#[derive(Clone, Copy, Default)]
struct LineMark {
    arms: u8,
    is_heavy: bool,
    /// The number of the bus (group of edges that share one vertical line) to which the lines
    /// belong.
    bus: usize,
}

/// Draws the graph in at most `room` columns. Returns `None` if it does not fit.
pub(super) fn draw_picture(out: &Output, graph: &GraphView, room: usize) -> Option<String> {
    let mut gutters: Vec<Vec<EdgeBus>> = (1..graph.columns)
        .map(|right| edge_buses(graph, right))
        .collect();
    // Do not use `any`, which would stop at the first match, because every gutter needs its tracks.
    let has_lower_lines: Vec<bool> = gutters
        .iter_mut()
        .map(|edge_buses| assign_tracks(edge_buses))
        .collect();
    let has_lower_lines = has_lower_lines.contains(&true);
    let lines_per_row = if has_lower_lines { 2 } else { 1 };
    let gutter_widths: Vec<usize> = gutters
        .iter()
        .map(|edge_buses| gutter_width(edge_buses))
        .collect();
    let texts: Vec<(String, String)> = graph
        .nodes
        .iter()
        .map(|graph_node| (box_name(out, graph_node), first_line(&graph_node.label)))
        .collect();
    let boxes = box_widths(graph, &texts, room.checked_sub(gutter_widths.iter().sum())?)?;
    let mut starts = vec![0];
    for (width, gutter) in boxes.iter().zip(gutter_widths.iter().chain([&0])) {
        starts.push(starts.last().copied().unwrap_or(0) + width + gutter);
    }
    let cells: Vec<String> = graph
        .nodes
        .iter()
        .zip(&texts)
        .map(|(graph_node, text)| box_text(graph_node, text, &boxes))
        .collect();
    let index_by_position: BTreeMap<(u32, u32), usize> = (0..)
        .zip(&graph.nodes)
        .map(|(nth, graph_node)| ((graph_node.column, graph_node.row), nth))
        .collect();
    let mut canvas = Canvas {
        lines_per_row,
        marks: BTreeMap::new(),
        arrows: BTreeSet::new(),
    };
    let mut bus_index = 0;
    for ((column, buses), start) in (0..).zip(&gutters).zip(&starts) {
        let gutter = (start + boxes[column as usize], starts[column as usize + 1]);
        for bus in buses {
            bus_index += 1;
            canvas.draw_bus(bus, gutter, bus_index);
            for row in &bus.from_rows {
                // The line of an edge starts after the text of its box. If this row has no box in
                // this column, the edge passes through the column, so the line starts at the
                // column's beginning.
                let text = index_by_position
                    .get(&(column, *row))
                    .map_or(0, |index_by_position| {
                        display_width(&cells[*index_by_position]) + 1
                    });
                canvas.draw_horizontal(
                    row * lines_per_row,
                    start + text..gutter.0 + 1,
                    bus.is_critical_from(*row),
                    bus_index,
                );
            }
            for row in &bus.to_rows {
                if index_by_position.contains_key(&(column + 1, *row)) {
                    canvas.arrows.insert((row * lines_per_row, gutter.1 - 2));
                } else {
                    canvas.draw_horizontal(
                        row * lines_per_row,
                        gutter.1 - 2..gutter.1,
                        bus.is_critical_to(*row),
                        bus_index,
                    );
                }
            }
        }
    }
    let mut text = draw_headings(out, &starts, &boxes);
    for y in 0..graph.rows * lines_per_row {
        let here = graph
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.row * lines_per_row == y);
        let mut done = String::new();
        let mut index_by_position = 0;
        for (nth, node) in here {
            let start = starts[node.column as usize];
            done += &canvas.line_text(out, y, index_by_position..start);
            done += &coloured_box_text(out, node, &cells[nth], display_width(&texts[nth].0));
            index_by_position = start + display_width(&cells[nth]);
        }
        let end = starts.last().copied().unwrap_or(0);
        done += &canvas.line_text(out, y, index_by_position..end);
        text += done.trim_end();
        text.push('\n');
    }
    Some(text.trim_end().to_owned() + "\n")
}

/// Returns the symbol for a box's state and the id of its task, such as `✓ T1`. For a box that
/// represents several tasks, returns only the symbol.
fn box_name(out: &Output, graph_node: &GraphNodeView) -> String {
    match graph_node.tasks[..] {
        [one] => format!("{} {one}", out.state_glyph(graph_node.at)),
        _ => out.state_glyph(graph_node.at).to_owned(),
    }
}

/// Returns the text of a box, with the label cut to the width of its column.
fn box_text(
    graph_node: &GraphNodeView,
    (name, label): &(String, String),
    boxes: &[usize],
) -> String {
    let room = boxes[graph_node.column as usize].saturating_sub(display_width(name) + 1);
    let has_room =
        graph_node.tasks.len() > 1 || display_width(label).min(MIN_SUBJECT_WIDTH) <= room;
    let label = if has_room {
        cut_to_width(label, room)
    } else {
        String::new()
    };
    format!("{name} {label}").trim_end().to_owned()
}

/// Returns the text of a box in colours: sign and id in the colour of the state, everything bold on
/// the longest path.
fn coloured_box_text(out: &Output, graph_node: &GraphNodeView, text: &str, name: usize) -> String {
    let name = prefix_of_width(text, name);
    let (bold, rest) = (
        if graph_node.critical { "1;" } else { "" },
        &text[name.len()..],
    );
    let rest = if graph_node.critical && !rest.is_empty() {
        out.paint(rest, "1")
    } else {
        rest.to_owned()
    };
    out.paint(&name, &format!("{bold}{}", state_colour(graph_node.at))) + &rest
}

/// Returns the line of column headings: `wave 1`, or only the number if the column is narrow.
fn draw_headings(out: &Output, starts: &[usize], boxes: &[usize]) -> String {
    let mut text = String::new();
    for (nth, wide) in boxes.iter().enumerate() {
        text += &" ".repeat(starts[nth].saturating_sub(display_width(&text)));
        let word = format!("wave {}", nth + 1);
        text += &if display_width(&word) <= *wide {
            word
        } else {
            format!("{}", nth + 1)
        };
    }
    out.paint(&text, "2") + "\n"
}

/// Returns the width of the boxes in each column: the widths that their texts need, reduced until
/// the sum is at most `room`. Returns `None` if even the minimum widths do not fit.
fn box_widths(graph: &GraphView, texts: &[(String, String)], room: usize) -> Option<Vec<usize>> {
    let (mut min_widths, mut widths) = (
        vec![2; graph.columns as usize],
        vec![2; graph.columns as usize],
    );
    for (node, (name, label)) in graph.nodes.iter().zip(texts) {
        let column = node.column as usize;
        let full_width = display_width(name) + 1 + display_width(label);
        widths[column] = widths[column].max(full_width.min(MAX_BOX_WIDTH));
        // A box for several tasks shows no id, so its label must stay readable.
        min_widths[column] = min_widths[column].max(if node.tasks.len() > 1 {
            full_width.min(MAX_BOX_WIDTH)
        } else {
            display_width(name)
        });
    }
    while widths.iter().sum::<usize>() > room {
        let widest = (0..widths.len())
            .filter(|column| widths[*column] > min_widths[*column])
            .max_by_key(|column| (widths[*column], usize::MAX - column))?;
        widths[widest] -= 1;
    }
    Some(widths)
}

/// Returns the buses (groups of edges that share one vertical line) in the gutter (the space for
/// edges) between column `right` and the column before it.
fn edge_buses(graph: &GraphView, right: u32) -> Vec<EdgeBus> {
    let mut links: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut heavy = BTreeSet::new();
    for edge in &graph.edges {
        for ends in edge
            .through
            .windows(2)
            .filter(|through| through[1].0 == right)
        {
            links.entry(ends[0].1).or_default().insert(ends[1].1);
            if edge.critical {
                heavy.insert((ends[0].1, ends[1].1));
            }
        }
    }
    let mut all: BTreeMap<BTreeSet<u32>, Vec<u32>> = BTreeMap::new();
    links
        .into_iter()
        .for_each(|(from, to)| all.entry(to).or_default().push(from));
    let bus = |(to, from): (BTreeSet<u32>, Vec<u32>)| {
        let heavy = heavy
            .iter()
            .filter(|edge| from.contains(&edge.0))
            .copied()
            .collect();
        EdgeBus {
            from_rows: from,
            to_rows: to,
            critical_edges: heavy,
            leaves_below: false,
            track: None,
        }
    };
    let mut all: Vec<EdgeBus> = all.into_iter().map(bus).collect();
    all.sort_by_key(|edge_bus| edge_bus.row_range());
    all
}

/// Assigns a track (a position for the vertical line) to each bus (group of edges that share one
/// vertical line) of a gutter. If one bus leaves on a row on which another bus arrives, the first
/// bus must turn further left. If these requirements form a circle, one bus uses the free line of
/// text below its boxes. Returns true if a bus uses such a free line.
fn assign_tracks(buses: &mut [EdgeBus]) -> bool {
    let must_wait = |buses: &[EdgeBus], bus: usize, done: &[bool]| {
        (0..buses.len()).any(|other| {
            other != bus && !done[other] && must_turn_before(&buses[other], &buses[bus])
        })
    };
    let mut done: Vec<bool> = buses.iter().map(EdgeBus::is_straight).collect();
    let mut taken: Vec<Vec<(u32, u32)>> = Vec::new();
    while done.contains(&false) {
        let unassigned = || (0..buses.len()).filter(|bus| !done[*bus]);
        let Some(next) = unassigned().find(|bus| !must_wait(buses, *bus, &done)) else {
            // Let the bus that blocks most other buses use the free line of text below its boxes.
            let blocked_count = |bus: usize| {
                unassigned()
                    .filter(|other| *other != bus && must_turn_before(&buses[bus], &buses[*other]))
                    .count()
            };
            let first = unassigned()
                .filter(|bus| !buses[*bus].leaves_below)
                .max_by_key(|bus| (blocked_count(*bus), usize::MAX - bus));
            match first {
                Some(first) => buses[first].leaves_below = true,
                None => break,
            }
            continue;
        };
        let earlier = (0..buses.len())
            .filter(|bus| *bus != next && must_turn_before(&buses[*bus], &buses[next]));
        let from = earlier
            .filter_map(|bus| buses[bus].track)
            .max()
            .map_or(0, |track| track + 1);
        let (top, end) = buses[next].row_range();
        let free =
            |items: &Vec<(u32, u32)>| items.iter().all(|other| other.1 < top || end < other.0);
        let track = (from..taken.len())
            .find(|bus| free(&taken[*bus]))
            .unwrap_or(taken.len().max(from));
        taken.resize(taken.len().max(track + 1), vec![]);
        taken[track].push((top, end));
        buses[next].track = Some(track);
        done[next] = true;
    }
    buses.iter().any(|edge_bus| edge_bus.leaves_below)
}

/// Returns true if `bus` starts on a row on which `other` ends. Its vertical line must then be
/// further left, so that the two lines do not overlap on that row.
fn must_turn_before(bus: &EdgeBus, other: &EdgeBus) -> bool {
    !bus.leaves_below
        && !bus.is_straight()
        && bus
            .from_rows
            .iter()
            .any(|from_row| other.to_rows.contains(from_row))
}

/// Returns the width of a gutter (the space between two columns of boxes) in characters: two for
/// each track (vertical line), and four for spaces and the arrow. A gutter without edges is two
/// spaces.
fn gutter_width(buses: &[EdgeBus]) -> usize {
    let tracks = buses
        .iter()
        .filter_map(|edge_bus| edge_bus.track)
        .max()
        .map_or(0, |buse| buse + 1);
    if buses.is_empty() { 2 } else { 4 + 2 * tracks }
}

/// The lines and arrows of a picture, by position: the line of text, and the column in it.
struct Canvas {
    /// The number of text lines per row of boxes: 2 if an edge uses the free line below the boxes,
    /// otherwise 1.
    lines_per_row: u32,
    marks: BTreeMap<(u32, usize), LineMark>,
    arrows: BTreeSet<(u32, usize)>,
}

impl Canvas {
    /// Adds arms (the directions in which lines leave a character) at a position. If lines of two
    /// buses (groups of edges) cross there, only the vertical line is drawn.
    fn add_arms(&mut self, position: (u32, usize), arms: u8, heavy: bool, bus_index: usize) {
        let mark = self.marks.entry(position).or_insert(LineMark {
            arms: 0,
            is_heavy: false,
            bus: bus_index,
        });
        let upright = |arms: u8| arms & (UP | DOWN) != 0;
        if mark.bus == bus_index || mark.arms == 0 || !(upright(mark.arms) || upright(arms)) {
            *mark = LineMark {
                arms: mark.arms | arms,
                is_heavy: mark.is_heavy || heavy,
                bus: bus_index,
            };
        } else if upright(arms) {
            *mark = LineMark {
                arms,
                is_heavy: heavy,
                bus: bus_index,
            };
        }
    }

    fn draw_horizontal(
        &mut self,
        y: u32,
        xs: std::ops::Range<usize>,
        heavy: bool,
        bus_index: usize,
    ) {
        xs.for_each(|x| self.add_arms((y, x), LEFT | RIGHT, heavy, bus_index));
    }

    /// Draws a bus (edges that share one vertical line) into its gutter, from the boxes on the left
    /// to the arrows on the right.
    fn draw_bus(&mut self, bus: &EdgeBus, gutter: (usize, usize), bus_index: usize) {
        let (start, end) = gutter;
        let (step, first, last) = (self.lines_per_row, start + 1, end - 2);
        let Some(track) = bus.track else {
            bus.from_rows.iter().for_each(|from_row| {
                self.draw_horizontal(
                    from_row * step,
                    first..last,
                    bus.is_critical_from(*from_row),
                    bus_index,
                )
            });
            return;
        };
        let x = first + 1 + 2 * track;
        let mut stops: BTreeMap<u32, u8> = BTreeMap::new();
        for row in &bus.from_rows {
            let (y, heavy) = (
                row * step + u32::from(bus.leaves_below),
                bus.is_critical_from(*row),
            );
            if bus.leaves_below {
                self.add_arms((row * step, first), LEFT | DOWN, heavy, bus_index);
                self.add_arms((y, first), UP | RIGHT, heavy, bus_index);
            } else {
                self.add_arms((y, first), LEFT | RIGHT, heavy, bus_index);
            }
            self.draw_horizontal(y, first + 1..x, heavy, bus_index);
            *stops.entry(y).or_default() |= LEFT;
        }
        for row in &bus.to_rows {
            self.draw_horizontal(row * step, x + 1..last, bus.is_critical_to(*row), bus_index);
            *stops.entry(row * step).or_default() |= RIGHT;
        }
        let (Some(top), Some(end)) = (
            stops.keys().next().copied(),
            stops.keys().next_back().copied(),
        ) else {
            return;
        };
        let lift = u32::from(bus.leaves_below);
        let spans: Vec<(u32, u32)> = bus
            .critical_edges
            .iter()
            .map(|critical_edge| (critical_edge.0 * step + lift, critical_edge.1 * step))
            .collect();
        for y in top..=end {
            let up = if y > top { UP } else { 0 };
            let down = if y < end { DOWN } else { 0 };
            let heavy = spans
                .iter()
                .any(|span| (span.0.min(span.1)..=span.0.max(span.1)).contains(&y));
            self.add_arms(
                (y, x),
                up | down | stops.get(&y).copied().unwrap_or(0),
                heavy,
                bus_index,
            );
        }
    }

    /// Returns the characters of text line `y` in the columns `xs`.
    fn line_text(&self, out: &Output, y: u32, xs: std::ops::Range<usize>) -> String {
        let (mut text, mut run, mut was) = (String::new(), String::new(), false);
        for x in xs {
            let mark = self.marks.get(&(y, x)).copied().unwrap_or_default();
            if mark.is_heavy != was && !run.is_empty() {
                text += &style_run(out, &std::mem::take(&mut run), was);
            }
            was = mark.is_heavy;
            run.push(match (self.arrows.contains(&(y, x)), out.is_unicode) {
                (true, true) => '→',
                (true, false) => '>',
                (false, unicode) => line_char(mark, unicode),
            });
        }
        text + &style_run(out, &run, was)
    }
}

fn style_run(out: &Output, run: &str, heavy: bool) -> String {
    if run.trim().is_empty() {
        run.to_owned()
    } else {
        out.paint(run, if heavy { "1" } else { "2" })
    }
}

fn line_char(mark: LineMark, unicode: bool) -> char {
    const LIGHT_LINE_CHARS: [char; 16] = [
        ' ', '╵', '╷', '│', '╴', '┘', '┐', '┤', '╶', '└', '┌', '├', '─', '┴', '┬', '┼',
    ];
    const HEAVY_LINE_CHARS: [char; 16] = [
        ' ', '╹', '╻', '┃', '╸', '┛', '┓', '┫', '╺', '┗', '┏', '┣', '━', '┻', '┳', '╋',
    ];
    let arms = usize::from(mark.arms & 15);
    match (unicode, mark.is_heavy) {
        _ if arms == 0 => ' ',
        (true, false) => LIGHT_LINE_CHARS[arms],
        (true, true) => HEAVY_LINE_CHARS[arms],
        (false, heavy) if mark.arms & (UP | DOWN) == 0 => {
            if heavy {
                '='
            } else {
                '-'
            }
        }
        (false, _) if mark.arms & (LEFT | RIGHT) == 0 => '|',
        (false, _) => '+',
    }
}
