//! The states of a landing, and the only table of the changes that each state allows.

use serde::{Deserialize, Serialize};

use super::{CarriedLanding, Landing};
use crate::ids::{CommitId, LandingId};
use crate::transition::{UnlistedTransition, write_state};

/// The progress of a landing: waiting in the queue, in a trial merge, passed, or moving the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LandingState {
    Queued,
    /// A trial merge is running: the landing is merged on top of the landings `ahead` of it and the
    /// result is validated.
    Trying {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ahead: Vec<LandingId>,
        /// Trunk commit on which the trial merge is based. Set when landings of this trial have
        /// reached the trunk since the trial began.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<CommitId>,
        /// Landings of this trial merge that get no checks of their own (setting `verify = "tip"`).
        /// No trial ends with such a landing, so the state of the files directly after it is never
        /// tested.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unverified: Vec<LandingId>,
        /// Set if the running trial merge's result will be ignored, because a landing of the trial
        /// left the queue or the trunk moved to another commit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        void: bool,
    },
    /// The trial merge passed: `new` is the merge on top of the trunk commit `old`. The landing
    /// waits until the trunk can move.
    Validated {
        old: CommitId,
        new: CommitId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<CarriedLanding>,
    },
    /// The trunk is being moved from `old` to `new`. `fence` is the number of the claim that
    /// permits the move.
    Moving {
        old: CommitId,
        new: CommitId,
        fence: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carries: Vec<CarriedLanding>,
    },
}

/// A change of a landing's state. A trial is a test merge of a landing on top of the trunk and of
/// the landings ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LandingChange {
    /// A trial merge that ends with this landing begins.
    Begin {
        ahead: Vec<LandingId>,
        unverified: Vec<LandingId>,
    },
    /// The trial merge passed: all its checks succeeded.
    Pass {
        old: CommitId,
        new: CommitId,
        carries: Vec<CarriedLanding>,
    },
    /// The trial merge failed.
    Fail,
    /// A commit of the landing's branch failed its checks, so the branch lands as one commit.
    Squash,
    /// The trial merge or the move of the trunk ended without a result, and this landing is not at
    /// fault. It is queued again.
    Return,
    /// The trunk begins to move to the last commit of this landing's trial merge.
    Move { fence: u64 },
    /// The results of this landing's trial merges no longer count. A move of the trunk that has
    /// begun continues.
    Discard,
    /// Another landing of the queue has reached the trunk as this commit.
    OtherLanded {
        landing: LandingId,
        commit: CommitId,
    },
    /// Another landing left the queue without reaching the trunk.
    OtherLeft { landing: LandingId },
}

impl LandingState {
    /// The names of all states.
    pub const NAMES: [&'static str; 4] = ["queued", "trying", "validated", "moving"];

    /// Returns the state's name in the API.
    pub fn name(&self) -> &'static str {
        match self {
            LandingState::Queued => "queued",
            LandingState::Trying { .. } => "trying",
            LandingState::Validated { .. } => "validated",
            LandingState::Moving { .. } => "moving",
        }
    }

    /// Returns the landing's next state after `change`, or an error if its present state does not
    /// allow this change.
    pub fn after(self, change: LandingChange) -> Result<LandingState, UnlistedTransition> {
        use LandingState::*;
        Ok(match (self, change) {
            (Queued, LandingChange::Begin { ahead, unverified }) => Trying {
                ahead,
                base: None,
                unverified,
                void: false,
            },
            (Trying { .. }, LandingChange::Pass { old, new, carries }) => {
                Validated { old, new, carries }
            }
            (Trying { .. }, LandingChange::Fail | LandingChange::Squash) => Queued,
            (Trying { .. } | Validated { .. } | Moving { .. }, LandingChange::Return) => Queued,
            (Validated { old, new, carries }, LandingChange::Move { fence }) => Moving {
                old,
                new,
                fence,
                carries,
            },

            (state @ (Queued | Moving { .. }), LandingChange::Discard) => state,
            (state @ Trying { .. }, LandingChange::Discard) => state.voided(),
            (Validated { .. }, LandingChange::Discard) => Queued,

            (
                Trying {
                    mut ahead,
                    unverified,
                    void,
                    ..
                },
                LandingChange::OtherLanded { landing, commit },
            ) if ahead.contains(&landing) => {
                // The other landing reached the trunk with the commit that this trial merge is
                // based on, so the trial stays valid.
                ahead.retain(|id| *id != landing);
                Trying {
                    ahead,
                    base: Some(commit),
                    unverified,
                    void,
                }
            }
            (state @ Trying { .. }, LandingChange::OtherLanded { .. }) => state.voided(),
            (Validated { new, carries, .. }, LandingChange::OtherLanded { landing, commit })
                if commit_of(&carries, landing) == Some(&commit) =>
            {
                Validated {
                    old: commit,
                    new,
                    carries: without(carries, landing),
                }
            }
            (Validated { .. }, LandingChange::OtherLanded { .. }) => Queued,
            (
                Moving {
                    new,
                    fence,
                    carries,
                    ..
                },
                LandingChange::OtherLanded { landing, commit },
            ) if commit_of(&carries, landing).is_some() => Moving {
                old: commit,
                new,
                fence,
                carries: without(carries, landing),
            },
            (state @ (Queued | Moving { .. }), LandingChange::OtherLanded { .. }) => state,

            (
                Trying {
                    ahead,
                    base,
                    unverified,
                    ..
                },
                LandingChange::OtherLeft { landing },
            ) if ahead.contains(&landing) => Trying {
                ahead,
                base,
                unverified,
                void: true,
            },
            (Validated { carries, .. }, LandingChange::OtherLeft { landing })
                if commit_of(&carries, landing).is_some() =>
            {
                Queued
            }
            (state, LandingChange::OtherLeft { .. }) => state,

            (state, change) => {
                return Err(UnlistedTransition {
                    machine: "a landing",
                    state: state.name(),
                    event: change.name(),
                });
            }
        })
    }

    /// Returns this state with the result of a running trial merge marked as one that will be
    /// ignored.
    fn voided(self) -> LandingState {
        match self {
            LandingState::Trying {
                ahead,
                base,
                unverified,
                ..
            } => LandingState::Trying {
                ahead,
                base,
                unverified,
                void: true,
            },
            state => state,
        }
    }
}

impl LandingChange {
    fn name(&self) -> &'static str {
        match self {
            LandingChange::Begin { .. } => "begin a trial",
            LandingChange::Pass { .. } => "pass a trial",
            LandingChange::Fail => "fail a trial",
            LandingChange::Squash => "be squashed",
            LandingChange::Return => "return to the queue",
            LandingChange::Move { .. } => "move the trunk",
            LandingChange::Discard => "lose its results",
            LandingChange::OtherLanded { .. } => "see another landing land",
            LandingChange::OtherLeft { .. } => "see another landing leave",
        }
    }
}

/// Returns the commit that a trial merge made of `landing`, if the trial contained it. `carries`
/// lists the trial's commits.
fn commit_of(carries: &[CarriedLanding], landing: LandingId) -> Option<&CommitId> {
    let carried = carries.iter().find(|carried| carried.landing == landing);
    carried.map(|carried| &carried.commit)
}

fn without(mut carries: Vec<CarriedLanding>, landing: LandingId) -> Vec<CarriedLanding> {
    carries.retain(|carried| carried.landing != landing);
    carries
}

impl Landing {
    /// Changes the state of the landing, for example from queued to being tried. No other code
    /// writes the state.
    pub(crate) fn change_state(&mut self, change: LandingChange) {
        let next = self.state.clone().after(change);
        write_state(&mut self.state, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(digit: char) -> CommitId {
        CommitId::new(&digit.to_string().repeat(40)).unwrap()
    }

    fn carried(landing: u64, digit: char) -> CarriedLanding {
        CarriedLanding::new(LandingId(landing), commit(digit))
    }

    fn trying(ahead: &[u64], base: Option<char>, void: bool) -> LandingState {
        LandingState::Trying {
            ahead: ahead.iter().copied().map(LandingId).collect(),
            base: base.map(commit),
            unverified: vec![],
            void,
        }
    }

    fn validated(old: char, carries: Vec<CarriedLanding>) -> LandingState {
        LandingState::Validated {
            old: commit(old),
            new: commit('f'),
            carries,
        }
    }

    fn moving(old: char, carries: Vec<CarriedLanding>) -> LandingState {
        LandingState::Moving {
            old: commit(old),
            new: commit('f'),
            fence: 7,
            carries,
        }
    }

    /// L2 is the landing. Its trial is on top of L1. `None` means that the pair is an error.
    #[test]
    fn each_pair_of_state_and_change_has_its_result() {
        let both = || vec![carried(1, 'b'), carried(2, 'f')];
        let own = || vec![carried(2, 'f')];
        let states = || {
            [
                LandingState::Queued,
                trying(&[1], None, false),
                validated('a', both()),
                moving('a', both()),
            ]
        };
        let begin = LandingChange::Begin {
            ahead: vec![LandingId(1)],
            unverified: vec![],
        };
        let pass = LandingChange::Pass {
            old: commit('a'),
            new: commit('f'),
            carries: both(),
        };
        let landed = |landing, digit| LandingChange::OtherLanded {
            landing: LandingId(landing),
            commit: commit(digit),
        };
        let left = |landing| LandingChange::OtherLeft {
            landing: LandingId(landing),
        };
        let [queued, same_trying, same_validated, same_moving] = states().map(Some);
        let q = || Some(LandingState::Queued);
        let void = || Some(trying(&[1], None, true));
        let table = [
            (begin, [same_trying.clone(), None, None, None]),
            (pass, [None, same_validated.clone(), None, None]),
            (LandingChange::Fail, [None, q(), None, None]),
            (LandingChange::Squash, [None, q(), None, None]),
            (LandingChange::Return, [None, q(), q(), q()]),
            (
                LandingChange::Move { fence: 7 },
                [None, None, same_moving.clone(), None],
            ),
            (
                LandingChange::Discard,
                [queued, void(), q(), same_moving.clone()],
            ),
            // L1 landed as the commit that the trial made of it.
            (
                landed(1, 'b'),
                [
                    q(),
                    Some(trying(&[], Some('b'), false)),
                    Some(validated('b', own())),
                    Some(moving('b', own())),
                ],
            ),
            // L1 landed as another commit.
            (
                landed(1, 'c'),
                [
                    q(),
                    Some(trying(&[], Some('c'), false)),
                    q(),
                    Some(moving('c', own())),
                ],
            ),
            // A landing landed that is not in the trial.
            (landed(9, 'c'), [q(), void(), q(), same_moving.clone()]),
            (left(1), [q(), void(), q(), same_moving.clone()]),
            (left(9), [q(), same_trying, same_validated, same_moving]),
        ];
        for (change, row) in table {
            for (state, expected) in states().into_iter().zip(row) {
                let next = state.clone().after(change.clone());
                assert_eq!(next.ok(), expected, "{state:?} {change:?}");
            }
        }
        let error = LandingState::Queued.after(LandingChange::Fail).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a landing that is queued cannot fail a trial"
        );
    }
}
