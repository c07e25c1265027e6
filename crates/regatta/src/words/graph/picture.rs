//! A graph in a terminal: a line of text for each row of the layout, and lines from the left to the right.
//!
//! Between two columns of boxes runs a gutter. Those on its left that lead to the same boxes on its right share one bus:
//! their lines meet in a vertical and leave it together. A line that would run into another one's, and so seem to be
//! part of it, takes the free line below its own; then every row has two. Where two cross, the vertical is on top.

use std::collections::{BTreeMap, BTreeSet};

use regatta_api::view::{GraphView, NodeView};

use crate::out::{Out, cut, head, line, width};

/// How wide a box gets at most, and how much of a subject is worth showing.
const WIDEST: usize = 34;
const LEAST_SUBJECT: usize = 4;

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// One or several on the left that lead to the same on the right.
struct Bus {
    /// Rows, in order.
    from: Vec<u32>,
    to: BTreeSet<u32>,
    /// Which row leads to which on the longest way.
    heavy: Vec<(u32, u32)>,
    /// It leaves by the free line below its boxes.
    below: bool,
    /// Where its vertical runs; none if it goes straight on.
    track: Option<usize>,
}

impl Bus {
    fn straight(&self) -> bool {
        self.from.len() == 1 && self.to.len() == 1 && self.to.contains(&self.from[0])
    }

    fn leaves_heavy(&self, row: u32) -> bool {
        self.heavy.iter().any(|it| it.0 == row)
    }

    fn enters_heavy(&self, row: u32) -> bool {
        self.heavy.iter().any(|it| it.1 == row)
    }

    /// From which row to which its vertical reaches.
    fn span(&self) -> (u32, u32) {
        let all = || self.from.iter().chain(&self.to).copied();
        (all().min().unwrap_or(0), all().max().unwrap_or(0) + u32::from(self.below))
    }
}

/// What is at one place of the picture.
#[derive(Clone, Copy, Default)]
struct Mark {
    arms: u8,
    heavy: bool,
    /// The bus it belongs to.
    of: usize,
}

/// Draws a graph no wider than that; nothing if it cannot be.
pub(super) fn picture(out: &Out, it: &GraphView, room: usize) -> Option<String> {
    let mut gutters: Vec<Vec<Bus>> = (1..it.columns).map(|right| buses(it, right)).collect();
    let below: Vec<bool> = gutters.iter_mut().map(|it| lay(it)).collect(); // all of them are laid
    let below = below.contains(&true);
    let step = if below { 2 } else { 1 };
    let wide: Vec<usize> = gutters.iter().map(|it| gutter_width(it)).collect();
    let texts: Vec<(String, String)> = it.nodes.iter().map(|it| (name(out, it), line(&it.label))).collect();
    let boxes = box_widths(it, &texts, room.checked_sub(wide.iter().sum())?)?;
    let mut starts = vec![0];
    for (width, gutter) in boxes.iter().zip(wide.iter().chain([&0])) {
        starts.push(starts.last().copied().unwrap_or(0) + width + gutter);
    }
    let cells: Vec<String> = it.nodes.iter().zip(&texts).map(|(it, text)| shown(it, text, &boxes)).collect();
    let at: BTreeMap<(u32, u32), usize> = (0..).zip(&it.nodes).map(|(nth, it)| ((it.column, it.row), nth)).collect();
    let mut sheet = Sheet { step, marks: BTreeMap::new(), arrows: BTreeSet::new() };
    let mut of = 0;
    for ((column, buses), start) in (0..).zip(&gutters).zip(&starts) {
        let gutter = (start + boxes[column as usize], starts[column as usize + 1]);
        for bus in buses {
            of += 1;
            sheet.draw(bus, gutter, of);
            for row in &bus.from {
                // From the end of its text on; what only passes goes through where a box would be.
                let text = at.get(&(column, *row)).map_or(0, |it| width(&cells[*it]) + 1);
                sheet.across(row * step, start + text..gutter.0 + 1, bus.leaves_heavy(*row), of);
            }
            for row in &bus.to {
                if at.contains_key(&(column + 1, *row)) {
                    sheet.arrows.insert((row * step, gutter.1 - 2));
                } else {
                    sheet.across(row * step, gutter.1 - 2..gutter.1, bus.enters_heavy(*row), of);
                }
            }
        }
    }
    let mut text = heads(out, &starts, &boxes);
    for y in 0..it.rows * step {
        let here = it.nodes.iter().enumerate().filter(|(_, node)| node.row * step == y);
        let mut done = String::new();
        let mut at = 0;
        for (nth, node) in here {
            let start = starts[node.column as usize];
            done += &sheet.text(out, y, at..start);
            done += &painted(out, node, &cells[nth], width(&texts[nth].0));
            at = start + width(&cells[nth]);
        }
        let end = starts.last().copied().unwrap_or(0);
        done += &sheet.text(out, y, at..end);
        text += done.trim_end();
        text.push('\n');
    }
    Some(text.trim_end().to_owned() + "\n")
}

/// `✓ T1`, or only the sign of those that are folded.
fn name(out: &Out, it: &NodeView) -> String {
    match it.tasks[..] {
        [one] => format!("{} {one}", out.look(&it.word).0),
        _ => out.look(&it.word).0.to_owned(),
    }
}

/// The text of a box, as much as fits.
fn shown(it: &NodeView, (name, label): &(String, String), boxes: &[usize]) -> String {
    let left = boxes[it.column as usize].saturating_sub(width(name) + 1);
    let worth = it.tasks.len() > 1 || width(label).min(LEAST_SUBJECT) <= left;
    let label = if worth { cut(label, left) } else { String::new() };
    format!("{name} {label}").trim_end().to_owned()
}

/// The same in colours: its sign and its number in those of its state, all of it bold on the longest way.
fn painted(out: &Out, it: &NodeView, text: &str, name: usize) -> String {
    let name = head(text, name);
    let (bold, rest) = (if it.critical { "1;" } else { "" }, &text[name.len()..]);
    let rest = if it.critical && !rest.is_empty() { out.paint(rest, "1") } else { rest.to_owned() };
    out.paint(&name, &format!("{bold}{}", out.look(&it.word).1)) + &rest
}

/// `wave 1`, or only the number where that is all that fits.
fn heads(out: &Out, starts: &[usize], boxes: &[usize]) -> String {
    let mut text = String::new();
    for (nth, wide) in boxes.iter().enumerate() {
        text += &" ".repeat(starts[nth].saturating_sub(width(&text)));
        let word = format!("wave {}", nth + 1);
        text += &if width(&word) <= *wide { word } else { format!("{}", nth + 1) };
    }
    out.paint(&text, "2") + "\n"
}

/// How wide the boxes of each column are: as wide as they like, then as much narrower as they must be.
fn box_widths(it: &GraphView, texts: &[(String, String)], room: usize) -> Option<Vec<usize>> {
    let (mut least, mut like) = (vec![2; it.columns as usize], vec![2; it.columns as usize]);
    for (node, (name, label)) in it.nodes.iter().zip(texts) {
        let at = node.column as usize;
        let whole = width(name) + 1 + width(label);
        like[at] = like[at].max(whole.min(WIDEST));
        // What is folded has no other name.
        least[at] = least[at].max(if node.tasks.len() > 1 { whole.min(WIDEST) } else { width(name) });
    }
    while like.iter().sum::<usize>() > room {
        let widest =
            (0..like.len()).filter(|at| like[*at] > least[*at]).max_by_key(|at| (like[*at], usize::MAX - at))?;
        like[widest] -= 1;
    }
    Some(like)
}

/// Who leads where, between a column and the one before it.
fn buses(it: &GraphView, right: u32) -> Vec<Bus> {
    let mut links: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut heavy = BTreeSet::new();
    for edge in &it.edges {
        for ends in edge.through.windows(2).filter(|it| it[1].0 == right) {
            links.entry(ends[0].1).or_default().insert(ends[1].1);
            if edge.critical {
                heavy.insert((ends[0].1, ends[1].1));
            }
        }
    }
    let mut all: BTreeMap<BTreeSet<u32>, Vec<u32>> = BTreeMap::new();
    links.into_iter().for_each(|(from, to)| all.entry(to).or_default().push(from));
    let bus = |(to, from): (BTreeSet<u32>, Vec<u32>)| {
        let heavy = heavy.iter().filter(|it| from.contains(&it.0)).copied().collect();
        Bus { from, to, heavy, below: false, track: None }
    };
    let mut all: Vec<Bus> = all.into_iter().map(bus).collect();
    all.sort_by_key(|it| it.span());
    all
}

/// Gives each bus a place for its vertical. One that leaves a row by which another comes in must turn off before that
/// one does; where that goes round in circles, somebody leaves by the free line below. Whether somebody does.
fn lay(buses: &mut [Bus]) -> bool {
    let waits = |buses: &[Bus], at: usize, done: &[bool]| {
        (0..buses.len()).any(|other| other != at && !done[other] && before(&buses[other], &buses[at]))
    };
    let mut done: Vec<bool> = buses.iter().map(Bus::straight).collect();
    let mut taken: Vec<Vec<(u32, u32)>> = Vec::new();
    while done.contains(&false) {
        let open = || (0..buses.len()).filter(|it| !done[*it]);
        let Some(next) = open().find(|it| !waits(buses, *it, &done)) else {
            // The one in whose way most others are.
            let ways = |at: usize| open().filter(|other| *other != at && before(&buses[at], &buses[*other])).count();
            let first = open().filter(|it| !buses[*it].below).max_by_key(|it| (ways(*it), usize::MAX - it));
            match first {
                Some(first) => buses[first].below = true,
                None => break,
            }
            continue;
        };
        let earlier = (0..buses.len()).filter(|it| *it != next && before(&buses[*it], &buses[next]));
        let from = earlier.filter_map(|it| buses[it].track).max().map_or(0, |it| it + 1);
        let (top, end) = buses[next].span();
        let free = |it: &Vec<(u32, u32)>| it.iter().all(|other| other.1 < top || end < other.0);
        let track = (from..taken.len()).find(|it| free(&taken[*it])).unwrap_or(taken.len().max(from));
        taken.resize(taken.len().max(track + 1), vec![]);
        taken[track].push((top, end));
        buses[next].track = Some(track);
        done[next] = true;
    }
    buses.iter().any(|it| it.below)
}

/// Whether one must turn off before another does: it leaves a row by which the other comes in.
fn before(one: &Bus, other: &Bus) -> bool {
    !one.below && !one.straight() && one.from.iter().any(|it| other.to.contains(it))
}

/// A place before, two for each track, an arrow and a space; or only the space between two boxes.
fn gutter_width(buses: &[Bus]) -> usize {
    let tracks = buses.iter().filter_map(|it| it.track).max().map_or(0, |it| it + 1);
    if buses.is_empty() { 2 } else { 4 + 2 * tracks }
}

/// The lines of a picture.
struct Sheet {
    /// How many lines of text a row has.
    step: u32,
    marks: BTreeMap<(u32, usize), Mark>,
    arrows: BTreeSet<(u32, usize)>,
}

impl Sheet {
    /// Adds arms at a place. Of two that are not of one bus, the one that has a vertical is seen.
    fn put(&mut self, at: (u32, usize), arms: u8, heavy: bool, of: usize) {
        let mark = self.marks.entry(at).or_insert(Mark { arms: 0, heavy: false, of });
        let upright = |arms: u8| arms & (UP | DOWN) != 0;
        if mark.of == of || mark.arms == 0 || !(upright(mark.arms) || upright(arms)) {
            *mark = Mark { arms: mark.arms | arms, heavy: mark.heavy || heavy, of };
        } else if upright(arms) {
            *mark = Mark { arms, heavy, of };
        }
    }

    fn across(&mut self, y: u32, xs: std::ops::Range<usize>, heavy: bool, of: usize) {
        xs.for_each(|x| self.put((y, x), LEFT | RIGHT, heavy, of));
    }

    /// Draws a bus into its gutter: from behind the boxes on the left to before the arrows on the right.
    fn draw(&mut self, bus: &Bus, (start, end): (usize, usize), of: usize) {
        let (step, first, last) = (self.step, start + 1, end - 2);
        let Some(track) = bus.track else {
            bus.from.iter().for_each(|it| self.across(it * step, first..last, bus.leaves_heavy(*it), of));
            return;
        };
        let x = first + 1 + 2 * track;
        let mut stops: BTreeMap<u32, u8> = BTreeMap::new();
        for row in &bus.from {
            let (y, heavy) = (row * step + u32::from(bus.below), bus.leaves_heavy(*row));
            if bus.below {
                self.put((row * step, first), LEFT | DOWN, heavy, of);
                self.put((y, first), UP | RIGHT, heavy, of);
            } else {
                self.put((y, first), LEFT | RIGHT, heavy, of);
            }
            self.across(y, first + 1..x, heavy, of);
            *stops.entry(y).or_default() |= LEFT;
        }
        for row in &bus.to {
            self.across(row * step, x + 1..last, bus.enters_heavy(*row), of);
            *stops.entry(row * step).or_default() |= RIGHT;
        }
        let (Some(top), Some(end)) = (stops.keys().next().copied(), stops.keys().next_back().copied()) else { return };
        let lift = u32::from(bus.below);
        let spans: Vec<(u32, u32)> = bus.heavy.iter().map(|it| (it.0 * step + lift, it.1 * step)).collect();
        for y in top..=end {
            let up = if y > top { UP } else { 0 };
            let down = if y < end { DOWN } else { 0 };
            let heavy = spans.iter().any(|it| (it.0.min(it.1)..=it.0.max(it.1)).contains(&y));
            self.put((y, x), up | down | stops.get(&y).copied().unwrap_or(0), heavy, of);
        }
    }

    /// A stretch of a line of the picture.
    fn text(&self, out: &Out, y: u32, xs: std::ops::Range<usize>) -> String {
        let (mut text, mut run, mut was) = (String::new(), String::new(), false);
        for x in xs {
            let mark = self.marks.get(&(y, x)).copied().unwrap_or_default();
            if mark.heavy != was && !run.is_empty() {
                text += &styled(out, &std::mem::take(&mut run), was);
            }
            was = mark.heavy;
            run.push(match (self.arrows.contains(&(y, x)), out.unicode) {
                (true, true) => '→',
                (true, false) => '>',
                (false, unicode) => sign(mark, unicode),
            });
        }
        text + &styled(out, &run, was)
    }
}

fn styled(out: &Out, run: &str, heavy: bool) -> String {
    if run.trim().is_empty() { run.to_owned() } else { out.paint(run, if heavy { "1" } else { "2" }) }
}

fn sign(mark: Mark, unicode: bool) -> char {
    const LIGHT: [char; 16] = [' ', '╵', '╷', '│', '╴', '┘', '┐', '┤', '╶', '└', '┌', '├', '─', '┴', '┬', '┼'];
    const HEAVY: [char; 16] = [' ', '╹', '╻', '┃', '╸', '┛', '┓', '┫', '╺', '┗', '┏', '┣', '━', '┻', '┳', '╋'];
    let arms = usize::from(mark.arms & 15);
    match (unicode, mark.heavy) {
        _ if arms == 0 => ' ',
        (true, false) => LIGHT[arms],
        (true, true) => HEAVY[arms],
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
