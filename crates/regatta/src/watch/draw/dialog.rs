//! Draws the open dialog, such as the help or a text input, on top of the page.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};

use crate::watch::draw::{safe_line, titled_block};
use crate::watch::keys::KEY_HELP;
use crate::watch::model::{Dialog, ScreenModel};

pub(super) fn draw_dialog(model: &ScreenModel, over: &Dialog, frame: &mut Frame<'_>) {
    let (title, lines) = match over {
        Dialog::Help => {
            let row = |(keys, what): &(&str, &str)| Line::raw(format!("{keys:<12} {what}"));
            (" Keys ", KEY_HELP.iter().map(row).collect::<Vec<_>>())
        }
        Dialog::ActionText { action, text, .. } => {
            let form = action
                .form
                .as_ref()
                .map(|form| format!("the fields of this form, as JSON: {form}"));
            let mut lines = vec![Line::raw(safe_line(&action.label))];
            lines.extend(form.map(|form| Line::raw(safe_line(&form))));
            lines.extend([
                Line::raw(format!("> {}_", safe_line(text))),
                Line::raw("Enter sends, Esc cancels"),
            ]);
            (" In your own words ", lines)
        }
        Dialog::Confirm { action, group } => {
            let many = if group.len() > 1 {
                format!(" ({} times)", group.len())
            } else {
                String::new()
            };
            let what = Line::raw(format!(
                "{}{many}? This cannot be undone.",
                safe_line(&action.label)
            ));
            let cli = Line::raw(format!("same from a shell: {}", safe_line(&action.cli)));
            (
                " Sure? ",
                vec![what, cli, Line::raw("y confirms, n or Esc cancels")],
            )
        }
        Dialog::Comment { place, text } => {
            let about = place
                .as_ref()
                .map_or("the whole change".into(), |(path, line)| {
                    format!("{path} line {line}")
                });
            let lines = vec![
                Line::raw(safe_line(&about)),
                Line::raw(format!("> {}_", safe_line(text))),
                Line::raw("Enter saves a draft, R sends it; an empty comment deletes the draft"),
            ];
            (" What should be different here? ", lines)
        }
        Dialog::Filter { .. } => (
            " Filter tasks by text ",
            vec![Line::raw(format!("/{}_", safe_line(&model.filter)))],
        ),
    };
    let screen = frame.area();
    let width = screen.width.saturating_sub(4).min(72);
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(screen.height);
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).block(titled_block(model, title.into(), true)),
        area,
    );
}
