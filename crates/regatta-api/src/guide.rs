//! Guides (short texts) for agents on how to work with Regatta, from the choice of a task to the
//! merge of its work. `regatta guide` prints them, and every agent can read them as an MCP
//! resource.

/// A guide: a text for agents about one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guide {
    pub name: &'static str,
    pub title: &'static str,
    pub text: &'static str,
}

/// All guides (short texts for agents), in the order in which an agent needs them.
pub const GUIDES: [Guide; 5] = [
    Guide {
        name: "triage",
        title: "What to do next",
        text: TRIAGE_GUIDE,
    },
    Guide {
        name: "start",
        title: "Starting on a task",
        text: START_GUIDE,
    },
    Guide {
        name: "finish",
        title: "Finishing a task",
        text: FINISH_GUIDE,
    },
    Guide {
        name: "landing",
        title: "Landing by hand, beside others",
        text: LANDING_GUIDE,
    },
    Guide {
        name: "lead",
        title: "Leading a mission",
        text: LEAD_GUIDE,
    },
];

/// Returns the guide with this name, in upper or lower case.
pub fn find_guide(name: &str) -> Option<&'static Guide> {
    GUIDES
        .iter()
        .find(|guide| guide.name.eq_ignore_ascii_case(name))
}

const TRIAGE_GUIDE: &str = "\
# What to do next
1. Read your messages: `regatta msg inbox YOUR-NAME`, or the tool `msg_read`.
2. See which agents work on which files: `regatta status`, or `siblings`. Work that another lead or its workers have
   is not yours.
3. See what is ready: `regatta task list`. To learn why a task waits: `regatta why T7`.
4. Take a task that nobody has: `regatta task poll --as YOUR-NAME`, or `task_action` with `claim`. The task is yours
   until you finish it, give it up, or are silent for too long.
5. Found work that has no task yet? Add a task: `regatta task add`, or `task_add`. Say which files it touches and how it
   is checked; otherwise it waits for a person.
";

const START_GUIDE: &str = "\
# Starting on a task
1. Read the task and its manifest: `my_task`. You may change the files it names. Regatta finds every other change in the
   diff and holds it back.
2. You have a workspace of your own, at the tip of the trunk. Commit there as you like: the trunk does not change
   until your work has landed.
3. Need a port, or a file outside your manifest? Claim it: `claim_acquire`. Do not poll for a file: pass a wait time
   with the request.
4. Report now and then what you are doing: `progress`. Ask when you cannot continue: `ask`.
";

const FINISH_GUIDE: &str = "\
# Finishing a task
1. Run the checks that the task names. Regatta runs them again, on your work and on the merged tree.
2. Describe your work in the `detail` of your result: call `finish`, or without tools write the file that `REGATTA_RESULT`
   names. Then end your turn.
3. You do not merge. The landing queue merges your work onto the trunk, validates exactly that tree, and lands it. If it
   conflicts, an agent is sent to fix it, and you are notified.
4. Working without Regatta's workspaces? See the guide `landing`.
";

const LANDING_GUIDE: &str = "\
# Landing by hand, beside others
Only the holder of the claim `workspace://PROJECT/default` can move the trunk. The landing queue acquires the claim for
each landing, and so must you.
1. Acquire the claim, and wait for it:
   `regatta claim acquire workspace://PROJECT/default --as YOUR-NAME --ttl 120s --wait 60s`
   The answer has a claim and a token. If the wait ends first (exit 5), another holder is landing: take other work and try
   again later.
2. Check that your work still fits: `regatta queue`, `regatta diff T7`. Fix conflicts in your workspace, before you
   hold the claim.
3. Land under your claim: `regatta land --now T7 --claim C9 --token 1234`. The trunk moves only if the claim is still
   yours; a claim that has expired is refused.
4. Regatta announces the landing, with the label `coord:merge`. Watch for the landings of others:
   `regatta msg wait PROJECT -L coord:merge`.
5. Release the claim: `regatta claim release C9 --token 1234`. Renew it while you need it: `regatta claim renew`. Never
   hold it while you write code; it ends after ten minutes even if you renew it.
";

const LEAD_GUIDE: &str = "\
# Leading a mission
You break a goal into tasks, let other agents do them, and report. You write no code yourself: your changes do not land.
1. Look first: `mission` (your goal, your tasks), `siblings` (other leads and their files), `task_list` (what waits).
2. Plan few tasks that touch different files. Each names its goal, its files (`files`), its checks (`tests`), and
   the tasks it depends on (`blocked_by`). Add them with `task_add`; take one that waits in the project with
   `task_action` `adopt`.
3. End your turn. You are woken when a task has landed, failed or needs somebody, when a worker asks, or when somebody
   mentions you. Do not poll: nothing is lost while you wait.
4. Woken? Your prompt says what happened. Answer questions (`answer`), send work back (`tell`), cancel what is not needed.
5. Other leads land too: messages with `coord:merge` list the changed files. The queue notifies a worker
   whose files are affected.
6. If no task is open, or you can do no more: `mission_finish` with a report of the results and of everything left undone.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guides_are_found_by_name_and_are_short() {
        for guide in GUIDES {
            assert_eq!(find_guide(&guide.name.to_uppercase()), Some(&guide));
            assert!(
                guide.text.starts_with("# ") && guide.text.len() < 4_000,
                "{}",
                guide.name
            );
            assert!(
                guide.text.lines().all(|text| text.len() <= 130),
                "{}",
                guide.name
            );
        }
    }
}
