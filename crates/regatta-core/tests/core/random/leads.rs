//! Random commands about missions with a lead, messages with router commands, and duties.

use super::*;

impl RandomRun {
    pub(super) fn lead_step(&mut self, which: Index, variant: u8) {
        let board = &self.world.board;
        let led: Vec<MissionId> = board
            .missions
            .values()
            .filter(|mission| mission.lead.is_some())
            .map(|mission| mission.id)
            .collect();
        let mission = if led.is_empty() {
            MissionId(1)
        } else {
            *which.get(&led)
        };
        let duties: Vec<TaskId> = board
            .tasks
            .values()
            .filter(|task| !task.purpose.has_contract())
            .map(|task| task.id)
            .collect();
        match variant % 10 {
            0 if board.counters.mission < 6 => {
                let about = if variant > 128 {
                    lead::LeadSubject::Task(self.task(which))
                } else {
                    lead::LeadSubject::Goal
                };
                let agent = Some(agent(AGENTS[variant as usize % 3]));
                let goal = "reach it".to_owned();
                self.ask(Command::AskMission(lead::LeadRequest {
                    project: shop(),
                    goal,
                    subject: about,
                    agent,
                    message: None,
                    channel: None,
                }));
            }
            1 | 2 if board.counters.task < 3 * MAX_TASKS => {
                let text =
                    ["!q why?", "!dev", "!mission x", "plain", "!leads 2", "!wat"][which.index(6)];
                let channel = ChannelName::new("shop").unwrap();
                let reply_to =
                    (variant > 128 && board.counters.message > 0).then_some(MessageId(1));
                self.ask(Command::Post(PostMessage {
                    channel,
                    text: text.into(),
                    labels: vec![],
                    reply_to,
                }));
                let posted = self
                    .world
                    .log
                    .iter()
                    .rev()
                    .find_map(|event| match &event.event {
                        Event::MessagePosted(message_posted) => {
                            Some(message_posted.message().clone())
                        }
                        _ => None,
                    });
                let message = Box::new(posted.unwrap());
                self.ask(Command::Route {
                    project: shop(),
                    message,
                });
            }
            3 => self.ask(Command::CancelMission {
                mission,
                reason: "enough".into(),
            }),
            4 => {
                let to = (variant > 128).then(|| agent(AGENTS[variant as usize % 3]));
                self.ask(Command::HandOverMission { mission, to });
            }
            5 if board.counters.task < 2 * MAX_TASKS => {
                let task = self.add(variant as usize % MANIFESTS.len(), 2, variant);
                self.ask(Command::AddChild {
                    mission,
                    task,
                    assign: None,
                    how: AssignMode::Direct,
                });
            }
            6 => self.ask(Command::AdoptTask {
                mission,
                task: self.task(which),
            }),
            7 => {
                let live = board
                    .attempts
                    .values()
                    .find(|attempt| attempt.takes_no_slot);
                if let Some((task, attempt, token)) =
                    live.map(|attempt| (attempt.task, attempt.id, attempt.token))
                {
                    self.ask(Command::FinishMission {
                        task,
                        attempt,
                        token,
                        report: "done".into(),
                    });
                }
            }
            _ if !duties.is_empty() => {
                let task = *which.get(&duties);
                if let Some(agent) = self.world.board.tasks[&task].assignee.clone() {
                    let poll = PollRequest {
                        task: Some(task),
                        ..crate::world::poll_of(agent.as_str())
                    };
                    self.report(Report::PollSupervised {
                        poll,
                        facts: Box::default(),
                    });
                }
            }
            _ => {}
        }
    }
}
