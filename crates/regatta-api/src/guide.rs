//! Guides: how an agent's day goes, as the program itself tells it. `regatta guide` prints them, and every agent can
//! read them as a resource.

/// One guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guide {
    pub name: &'static str,
    pub title: &'static str,
    pub text: &'static str,
}

/// All there are, in the order of a day.
pub const GUIDES: [Guide; 5] = [
    Guide { name: "triage", title: "What to do next", text: TRIAGE },
    Guide { name: "start", title: "Starting on a task", text: START },
    Guide { name: "finish", title: "Finishing a task", text: FINISH },
    Guide { name: "landing", title: "Landing by hand, beside others", text: LANDING },
    Guide { name: "lead", title: "Leading a mission", text: LEAD },
];

/// The guide of that name.
pub fn find(name: &str) -> Option<&'static Guide> {
    GUIDES.iter().find(|it| it.name.eq_ignore_ascii_case(name))
}

const TRIAGE: &str = "\
# What to do next
1. Read what was said to you: `regatta msg inbox YOUR-NAME`, or the tool `msg_read`.
2. See who else is at work, on which files: `regatta status`, or `siblings`. Work that another lead or its workers have
   is not yours.
3. See what is ready: `regatta task list`. A task that waits says why: `regatta why T7`.
4. Take one that nobody has: `regatta task poll --as YOUR-NAME`, or `task_action` with `claim`. What you are given is
   yours until you finish it, give it up, or fall silent for too long.
5. Found work that is nobody's task yet? Add it: `regatta task add`, or `task_add`. Say which files it touches and how it
   is checked; without that it waits for a person.
";

const START: &str = "\
# Starting on a task
1. Read the task and its manifest: `my_task`. You may change the files it names. A change anywhere else is found from the
   diff and held back.
2. You have a workspace of your own, at the tip of the trunk. Commit there as you like: nothing of it touches the trunk
   until it has landed.
3. Need a port, or a file beside your manifest? Claim it: `claim_acquire`. Never wait for a file by looking again and
   again: ask with a wait.
4. Say what you are doing now and then: `progress`. Ask when you cannot go on: `ask`.
";

const FINISH: &str = "\
# Finishing a task
1. Run the checks that the task names. They are run again for you, on your work and on what it is merged with.
2. Say what you did in the `detail` of your result: call `finish`, or without tools write the file that `REGATTA_RESULT`
   names. Then end your turn.
3. You do not merge. The landing queue merges your work onto the trunk, validates exactly that tree, and lands it. If it
   conflicts, somebody is sent to mend it; you are told.
4. Working from outside, without Regatta's workspaces? See the guide `landing`.
";

const LANDING: &str = "\
# Landing by hand, beside others
The trunk moves for one at a time. Whoever moves it holds the claim `workspace://PROJECT/default`; the queue does, and so
must you.
1. Stake it, and stand in line for it:
   `regatta claim acquire workspace://PROJECT/default --as YOUR-NAME --ttl 120s --wait 60s`
   It answers with a claim and a token. After the wait (exit 5) take other work, and try again later: somebody else lands.
2. See that your work still fits: `regatta queue`, `regatta diff T7`. What conflicts is mended in your workspace, not under
   the claim.
3. Land under your claim: `regatta land --now T7 --claim C9 --token 1234`. The trunk moves only if the claim is still
   yours: one that ran out while you slept is refused at the ref.
4. It is announced for you, with the label `coord:merge`. Watch for those of others: `regatta msg wait PROJECT -L coord:merge`.
5. Give it back: `regatta claim release C9 --token 1234`. Renew it while you need it: `regatta claim renew`. Never hold it
   while you write code; it ends by itself after ten minutes whatever you renew.
";

const LEAD: &str = "\
# Leading a mission
You break a goal into tasks, have others do them, and report. You write no code yourself: what you change does not land.
1. Look first: `mission` (your goal, your tasks), `siblings` (other leads and their files), `task_list` (what waits).
2. Plan few tasks that touch different files. Each says what, which files (`files`), how it is checked (`tests`), and after
   which others (`blocked_by`). Add them with `task_add`; take one that waits in the project with `task_action` `adopt`.
3. End your turn. You are woken when a task has landed, failed or needs somebody, when a worker asks, or when somebody
   calls you by name. Do not look again and again: nothing is lost while you rest.
4. Woken? Your prompt says what happened. Answer questions (`answer`), send work back (`tell`), cancel what is not needed.
5. Other leads land too: `coord:merge` tells which files changed. A worker that is hit by it is told by the queue.
6. Nothing is open any more, or you can do no more: `mission_finish` with a report of what was reached and what was not.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guides_have_names_of_their_own_and_fit_a_model() {
        for guide in GUIDES {
            assert_eq!(find(&guide.name.to_uppercase()), Some(&guide));
            assert!(guide.text.starts_with("# ") && guide.text.len() < 4_000, "{}", guide.name);
            assert!(guide.text.lines().all(|it| it.len() <= 130), "{}", guide.name);
        }
    }
}
