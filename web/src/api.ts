// Generated from crates/regatta-api/src/schema/schemas.json by `cargo xtask codegen`. Do not edit.
//
// An optional field of an answer is left out when it has no value; it is never null.

/** A setting of an action with the values from which a person can choose. */
export interface ActionChoice {
  flag: string;
  label: string;
  now?: string;
  of: string[];
  to: string;
}

/** The activity of a task at one time: an agent works on it, its result is checked, or it waits. */
export type Activity = 'working' | 'checking' | {
  waiting: WaitKind;
};

/** A time in which a task had the same activity. */
export interface ActivityInterval {
  attempt?: AttemptId;
  doing: Activity;
  from_wall: number;
  revision: number;
  text: string;
  to_wall?: number;
}

/** How often, and for how long in total, a task was in one activity. */
export interface ActivityTotal {
  doing: Activity;
  ms: number;
  times: number;
}

/** person:NAME, an agent's name, or regatta: */
export type Actor = string;

export interface AgentAdd {
  anyway: boolean;
  command: string[];
  description: string;
  max_tasks: number;
  name: AgentName;
  profile: Profile;
  provider: string | null;
  role: Role;
  runtime: RuntimeName;
}

export interface AgentAddInput {
  anyway?: boolean;
  command?: string[];
  description?: string;
  max_tasks?: number;
  name: AgentName;
  profile?: ProfileInput;
  provider?: string | null;
  role?: Role;
  runtime: RuntimeName;
}

/** Whether an agent could take work. */
export type AgentAvailability = 'idle' | 'busy' | 'parked' | 'offline';

export interface AgentClose {
  name: AgentName;
  reason?: string;
}

/** An event that an agent's program reported, translated by its driver. */
export type AgentEvent = {
  model: string | null;
  said: 'started';
  session: string | null;
} | {
  n: number;
  said: 'turn_started';
} | {
  said: 'message';
  text: string;
} | {
  said: 'thought';
  text: string;
} | ToolCall & {
  said: 'tool';
} | {
  entries: PlanEntry[];
  said: 'plan';
} | AgentRequest & {
  said: 'asked';
} | {
  ask: string;
  said: 'withdrew';
} | {
  said: 'usage';
  session: string | null;
  usage: Usage;
} | {
  said: 'context';
  size: number;
  used: number;
} | {
  detail: string;
  said: 'limited';
  until_wall: number | null;
} | {
  class: FailureClass | null;
  detail: string;
  said: 'turn_ended';
  stop: StopReason;
} | {
  said: 'notice';
  text: string;
};

/** The row of one agent on the page, with its present state. */
export interface AgentLaneView {
  actions: PageAction[];
  agent: AgentName;
  at: DisplayState;
  capacity: Capacity;
  context?: number;
  micro_usd?: number;
  provider: string;
  running: string;
  since_wall: number;
  subject: string;
  task: TaskId | null;
  text: string;
  wanted: string;
  word: string;
}

/** A row of the page's list of agents. */
export interface AgentListRow {
  actions: PageAction[];
  advice?: string;
  agent: AgentName;
  at: DisplayState;
  attempt?: AttemptId;
  band?: ContextBand;
  capacity: Capacity;
  context?: number;
  doing?: string;
  heard_wall?: number;
  micro_usd?: number;
  provider: string;
  running: string;
  since_wall: number;
  subject: string;
  task: TaskId | null;
  text: string;
  wanted: string;
  word: string;
}

/** a checked name: AgentName */
export type AgentName = string;

export interface AgentNameInput {
  name: AgentName;
}

/** A problem because of which the daemon cannot start an agent, with a hint that says how to fix the problem. */
export interface AgentProblem {
  hint: string;
  what: string;
}

/** A request of an agent to a person. */
export type AgentRequest = {
  id: string;
} & ({
  options: PermissionOption[];
  tool: ToolCall;
  want: 'permission';
} | {
  choices: string[];
  schema?: string;
  text: string;
  want: 'question';
});

/** An agent with its state, its tasks, and the number of tasks that it can take. */
export interface AgentView {
  at: DisplayState;
  availability: AgentAvailability;
  capacity: Capacity;
  created_wall: number;
  description: string;
  heard_wall?: number;
  last_failed?: TaskId;
  max_tasks: number;
  name: AgentName;
  of?: AgentName;
  offline?: string;
  parked?: string;
  problems?: AgentProblem[];
  profile?: Profile;
  provider: string | null;
  role: Role;
  runtime: Runtime;
  state: string;
  tasks: TaskId[];
  text?: string;
  updated_wall: number;
  word: string;
}

/** The reason why an agent is idle, or its present work. */
export interface AgentWhyView {
  at: DisplayState;
  availability: AgentAvailability;
  capacity: Capacity;
  created_wall: number;
  description: string;
  heard_wall?: number;
  last_failed?: TaskId;
  line: TaskId[];
  max_tasks: number;
  name: AgentName;
  of?: AgentName;
  offline?: string;
  parked?: string;
  problems?: AgentProblem[];
  profile?: Profile;
  provider: string | null;
  role: Role;
  runtime: Runtime;
  state: string;
  tasks: TaskId[];
  text?: string;
  updated_wall: number;
  waits: WaitReason[];
  word: string;
}

/** A window of the page's list of agents. */
export interface AgentWindow {
  all: number;
  counts: StateCount[];
  offset: number;
  providers: ProviderCount[];
  revision: number;
  rows: AgentListRow[];
  total: number;
}

/** The requests to which an answer applies: only this request, or also similar requests. */
export type AnswerScope = 'mission' | 'once' | 'task' | 'always';

/** anything that a newer version wrote */
export type AnyValue = unknown;

/** A permission request or a question that an agent has asked, with its answer. */
export interface Approval {
  agent: AgentName;
  ask: AgentRequest;
  asked_wall: number;
  assumed?: string;
  attempt: AttemptId;
  closed: boolean;
  decision: ApprovalDecision | null;
  escalate_at: number | null;
  escalated: boolean;
  heard?: boolean;
  id: ApprovalId;
  kept?: boolean;
  mission: MissionId | null;
  project: ProjectName;
  snoozed?: Snooze;
  task: TaskId;
}

/** The answer to a request, with the time and the person, lead agent or policy rule that gave it. */
export interface ApprovalDecision {
  answer: RequestAnswer;
  by: Actor;
  rule?: string;
  wall: number;
}

/** an inbox item */
export type ApprovalId = string;

/** The way in which a task is assigned to an agent. */
export type AssignMode = 'direct' | 'queue' | 'offer';

/** A file that is attached to a message. */
export interface Attachment {
  bytes: number;
  name: string;
  sha256: string;
}

/** An attachment of a message with its content: in `text` if it is text, otherwise in `hex`. */
export interface AttachmentView {
  bytes: number;
  hex?: string;
  message: MessageId;
  name: string;
  sha256: string;
  text?: string;
}

/** An attempt: one run of one agent on one task. */
export interface Attempt {
  agent: AgentName;
  bare?: boolean;
  by_hand?: boolean;
  ended?: AttemptEnd;
  expires_at?: number;
  gates?: GateResult[];
  id: AttemptId;
  lease_ms?: number;
  light?: boolean;
  mission?: MissionId;
  notes?: string[];
  output?: string;
  phase: AttemptPhase;
  ports?: number[];
  project: ProjectName;
  quiet_wall?: number;
  ready_by?: number;
  result?: WorkResult;
  resumes?: ResumePoint;
  runner?: RunnerName;
  sandbox?: string;
  snoozed?: Snooze;
  standing?: SessionOf;
  started_at: number;
  started_wall: number;
  stopping?: AttemptCause;
  supervised: boolean;
  talk?: SessionState;
  talks: boolean;
  task: TaskId;
  token: number;
  until_at?: number;
  used?: Usage;
  wall_at?: number;
}

export interface AttemptAnswer {
  assume?: string | null;
  attempt: AttemptId;
  id: ApprovalId;
  wait_ms?: number;
}

/** A question of an agent to a person, or a request for permission if `permission` is given. */
export interface AttemptAsk {
  assume?: string | null;
  attempt: AttemptId;
  choices?: string[];
  permission?: RequestedAction | null;
  question?: string;
  task: TaskId;
  token: number;
  wait_ms?: number;
}

/** The reason why an attempt ended. */
export type AttemptCause = 'submitted' | 'reported' | 'rested' | 'gave_up' | 'crashed' | 'invalid' | 'rejected' | 'blocked' | 'nothing_changed' | 'scope_escape' | 'lost' | 'stopped' | 'cancelled' | 'environment' | 'timed_out' | 'hung' | 'over_budget' | 'parked' | 'overloaded' | 'no_network' | 'context_full' | 'refused' | 'auth' | 'bad_config';

export interface AttemptChecksInput {
  attempt: AttemptId;
}

/** The results of the checks of one attempt's work. */
export interface AttemptChecksView {
  agent: AgentName;
  attempt: AttemptId;
  checks: CheckRunView[];
  started_wall: number;
}

/** The end of an attempt: its cause, details for people, and the time. */
export interface AttemptEnd {
  cause: AttemptCause;
  detail: string;
  wall: number;
}

/** an attempt id */
export type AttemptId = string;

export interface AttemptIdInput {
  attempt: AttemptId;
}

/** The present phase of an attempt: the agent works, or Regatta checks the finished work. */
export type AttemptPhase = 'working' | 'validating';

/** A question or permission request of an attempt (one run of an agent on a task), with its outcome. */
export interface AttemptRequestView {
  answer: RequestAnswer | null;
  answered: boolean;
  assumed?: string;
  by: string | null;
  id: ApprovalId;
  is_told?: boolean;
  withdrawn: boolean;
}

/** What the agent of one attempt was told and what it answered. */
export interface AttemptResultView {
  answer_html: string[];
  artifacts: string[];
  attempt: AttemptId;
  copy_path?: string;
  follow_ups_html: string[];
  learnings: string[];
  notes_html: string[];
  prompt_html: string | null;
  status: ResultStatus | null;
}

/** One line of the audit log: a change that somebody requested, and its outcome. */
export interface AuditLineView {
  about?: string;
  attempt?: AttemptId;
  by: string;
  from: string;
  key?: string;
  n: number;
  refused?: string;
  revision?: number;
  scope: TokenScope;
  time: string;
  token: string;
  verb: string;
}

/** Selects lines of the audit log: the newest lines or, with `after`, the oldest lines after the line with that number. */
export interface AuditQuery {
  about?: string | null;
  after?: number | null;
  by?: string | null;
  limit?: number | null;
  verb?: string | null;
}

/** A person who writes in an outside service. */
export interface Author {
  id: string;
  name: string;
}

/** A batch: landings (merges of one task's work each) that are merged on top of each other and tested together. */
export interface BatchView {
  at: DisplayState;
  cars: LandingId[];
  failed?: string;
  on?: TaskId;
  ride: LandingProgress;
  state: string;
}

/** a checked name: BranchName */
export type BranchName = string;

export interface BridgePause {
  agent: AgentName;
  paused: boolean;
  service?: Service | null;
}

/** A bridge (connection) of one agent to one service, such as Slack. */
export interface BridgeView {
  agent: AgentName;
  connected?: number;
  dead: number;
  delayed: number;
  known_as?: string;
  name: string;
  off?: string;
  paused: boolean;
  refused: number;
  route?: string;
  sent: number;
  service: Service;
  taken: number;
  trouble?: string;
  waiting: number;
  warning?: string;
}

/** The briefing: everything that an attempt's agent should know before it begins. */
export interface BriefingView {
  agent: AgentName;
  attempt: AttemptId;
  checks: string[];
  landed: LandingView[];
  mission: string | null;
  notes: string[];
  open: TaskBriefView[];
  project: ProjectName;
  siblings: SiblingAttemptView[];
  task: TaskView;
  trunk: string;
}

/** Selects the days for which spending is listed: today, and this number of days before today. */
export interface BudgetListInput {
  days?: number;
}

/** attempt, task, T7, agent:NAME, M3 or day */
export type BudgetScope = string;

/** Sets the ceiling of a budget. */
export interface BudgetSet {
  ceiling?: CeilingInput;
  scope: BudgetScope;
}

/** A budget, and the amount that was spent. */
export interface BudgetView {
  ceiling: Ceiling;
  scope: BudgetScope;
  spent: Spend | null;
}

/** All budgets, and the amounts that were spent today and on some days before. */
export interface BudgetsView {
  budgets: BudgetView[];
  by_agent: [AgentName, Spend][];
  spent: Spend;
  today: Spend;
}

/** A forecast of the time at which a day's spending limit is reached. */
export type CapForecast = {
  when: 'reached';
} | {
  wall: number;
  when: 'at';
} | {
  when: 'not_today';
};

/** The number of attempts that an agent has now, and the maximum number. */
export interface Capacity {
  available: number;
  current: number;
  max: number;
}

/** The class of the cause that several inbox items share. */
export type CauseClass = 'request' | 'model' | 'sign_in' | 'settings' | 'silence' | 'reason';

/** The limits of a budget. */
export interface Ceiling {
  attempts?: number;
  micro_usd?: number;
  tokens?: number;
  turns?: number;
  wall_ms?: number;
}

/** The limits of a budget. */
export interface CeilingInput {
  attempts?: number | null;
  micro_usd?: number | null;
  tokens?: number | null;
  turns?: number | null;
  wall_ms?: number | null;
}

/** The destination of the changes that a turn makes in the repository. */
export type ChangeDestination = 'review' | 'land' | 'pull';

/** The size of a change that waits for a review, and what about it needs a person. */
export interface ChangeSummary {
  added?: number;
  files: number;
  guarded?: string[];
  head: CommitId;
  removed?: number;
}

/** A change that an action of the page lands. */
export interface ChangeToLand {
  confirm: LandConfirmation;
  head: CommitId;
  task: TaskId;
}

/** The size of a change. */
export interface ChangedLines {
  added: number;
  files: number;
  removed: number;
}

/** a checked name: ChannelName */
export type ChannelName = string;

/** The severity of the result of one check of `regatta doctor`. */
export type CheckLevel = 'ok' | 'warn' | 'bad';

/** The result of one check of an attempt's work. */
export interface CheckResultView {
  check: string;
  how: string;
  ms: number;
  output: string;
  passed: boolean;
}

/** One check of an attempt's work, with its output as HTML. */
export interface CheckRunView {
  check: string;
  first_error?: string;
  html: string;
  ms: number;
  passed: boolean | null;
  text: string;
}

/** The treatment of the user's own checkout of the trunk when finished work is merged into the trunk: update it, or leave it as it is. */
export type CheckoutPolicy = 'update' | 'skip';

export interface ClaimAcquire {
  agent: AgentName;
  memo?: string;
  mode?: ClaimMode;
  ttl_ms: number;
  uris: Uri[];
  wait_ms?: number;
}

/** The answer to the question whether some resources (files or other URIs) can be claimed now. */
export interface ClaimCheckView {
  free: boolean;
  holders: ClaimHolder[];
}

/** The holder of a claim (lease) that conflicts with a requested one, with the claimed URI and the remaining time. */
export interface ClaimHolder {
  claim: ClaimId | null;
  ends_in_ms: number | null;
  memo: string;
  owner: ClaimOwner;
  uri: Uri;
}

/** a claim id */
export type ClaimId = string;

/** The rule for overlapping claims: with `Exclusive`, nobody else may hold an overlapping claim; with `Shared`, others may hold overlapping claims that are shared too. */
export type ClaimMode = 'exclusive' | 'shared';

/** The owner of a claim or of a waiting request: an agent (or a person under an agent's name), an attempt, or a landing. */
export type ClaimOwner = {
  agent: AgentName;
} | {
  attempt: AttemptId;
} | {
  landing: LandingId;
};

/** A claim (a lease on files or other resources) that somebody holds. */
export interface ClaimView {
  claim: ClaimId;
  ends_in_ms: number | null;
  granted_wall: number;
  memo: string;
  mode: ClaimMode;
  owner: ClaimOwner;
  until?: string;
  uris: Uri[];
}

/** A request for a claim (a lease on files or other resources) that waits until other claims end. */
export interface ClaimWaitView {
  ends_in_ms: number;
  owner: ClaimOwner;
  uris: Uri[];
  wait: WaitId;
}

/** All claims (leases on files and other resources), and all requests that wait for claims. */
export interface ClaimsView {
  by_work?: WorkClaimView[];
  held: ClaimView[];
  waiting: ClaimWaitView[];
}

/** The present collisions of a project's unfinished work, and counts that show how reliable the warnings have been. */
export interface CollisionForecast {
  collisions: ForecastCollision[];
  lapsed: number;
  proved: number;
  warned: number;
}

/** The grouping of a run's work into commits of the trunk. */
export type CommitGrouping = 'task' | 'wave';

/** a checked name: CommitId */
export type CommitId = string;

/** The form in which a task's finished branch becomes commits of the trunk. */
export type CommitStyle = 'squash' | 'rebase' | 'merge';

/** A path at which merging a task's work with the trunk conflicts, with the kind of conflict. */
export interface Conflict {
  kind: ConflictKind;
  path: string;
}

/** The kind of a merge conflict at a path: the way in which the two sides differ. */
export type ConflictKind = 'content' | 'binary' | 'added' | 'deleted_on_trunk' | 'deleted_by_task' | 'file_and_directory' | 'type' | 'renamed';

/** The treatment of finished work that conflicts with the trunk. */
export type ConflictPolicy = 'fixup' | 'ownership' | 'fail';

/** A check that a file contains a text. */
export interface ContentCheck {
  file: string;
  pattern: string;
}

/** How full the context of an agent's model is. */
export type ContextBand = 'free' | 'filling' | 'full';

/** A thread of an outside service, connected with one agent's session. */
export interface Conversation {
  addressed: number;
  agent: AgentName;
  closed?: boolean;
  created_wall: number;
  deliver: ChangeDestination;
  expired?: boolean;
  held?: HeldRequest[];
  id: ConversationId;
  idle_at?: number;
  idle_ms: number;
  key: string;
  landing_end?: ConversationLandingEnd;
  place: Record<string, string>;
  post_count: number;
  posts: ThreadPost[];
  project: ProjectName;
  prompt?: string;
  pull?: ConversationPull;
  pushed?: PushedWork;
  said?: MessageId[];
  service: Service;
  task?: TaskId;
  thread: string;
  title: string;
  turn_count: number;
  turns: ConversationTurn[];
  updated_wall: number;
  url?: string;
}

export interface ConversationFilter {
  all?: boolean;
  project?: ProjectName | null;
}

/** a conversation id */
export type ConversationId = string;

export interface ConversationIdInput {
  conversation: ConversationId;
}

/** The end of the last landing of a conversation's work. */
export type ConversationLandingEnd = {
  came: 'landed';
  commit: CommitId;
  work: CommitId;
} | {
  came: 'failed';
  reason: string;
  work: CommitId;
};

/** A conversation (a thread in a service such as Slack) as one row of a list. */
export interface ConversationLineView {
  agent: AgentName;
  at: DisplayState;
  dead: number;
  id: ConversationId;
  key: string;
  last: string;
  project: ProjectName;
  queued: number;
  service: Service;
  task?: TaskId;
  title: string;
  turns: number;
  unshown: number;
  updated_wall: number;
  url?: string;
  word: string;
}

/** A conversation in an outside service such as Slack, with the actions on it. */
export interface ConversationPage {
  actions: PageAction[];
  agent: AgentName;
  at: DisplayState;
  dead: number;
  id: ConversationId;
  key: string;
  last: string;
  project: ProjectName;
  queued: number;
  service: Service;
  task?: TaskId;
  title: string;
  turns: number;
  unshown: number;
  updated_wall: number;
  url?: string;
  word: string;
}

/** The pull request that was opened for a conversation's work. */
export interface ConversationPull {
  branch?: string;
  number: number;
  thread?: string;
  url: string;
}

/** One message to the agent, with the agent's work and answer. */
export interface ConversationTurn {
  answer?: string;
  asked_wall: number;
  by: Author;
  context?: string;
  ended_wall?: number;
  looks_at?: [CommitId, CommitId];
  micro_usd?: number;
  n: number;
  place?: Record<string, string>;
  reason?: string;
  reviews?: PullRequest;
  source: string;
  state: TurnState;
  text: string;
  work?: TurnWork;
}

/** The property by which spending is grouped in a table. */
export type CostGrouping = 'provider' | 'mission' | 'agent' | 'model';

/** Today's cost with its breakdown, the results that were achieved, and the budgets. */
export interface CostPage {
  budgets: BudgetView[];
  came: SpendResultsView;
  cap?: number;
  days: number;
  forecast?: CapForecast;
  since_wall: number;
  tables: CostTable[];
  total: CostSum;
}

export interface CostQuery {
  by?: CostGrouping | null;
  days?: number;
}

/** One row of a cost table. */
export interface CostRow {
  about?: string;
  name: string;
  rate?: number;
  spent: Spend;
  tasks: number;
  unpriced?: number;
}

/** The total of some attempts' spending. */
export interface CostSum {
  rate?: number;
  spent: Spend;
  tasks: number;
  unpriced?: number;
}

/** A table that breaks down the total cost by one property, such as the agent. */
export interface CostTable {
  by: CostGrouping;
  rows: CostRow[];
}

/** The amounts that were spent since a day, in total and broken down. */
export interface CostView {
  came: SpendResultsView;
  cap?: number;
  days: number;
  forecast?: CapForecast;
  since_wall: number;
  tables: CostTable[];
  total: CostSum;
}

/** A request to add a team; see [`create`]. */
export interface CreateTeam {
  environments?: Record<string, TeamEnvironmentInput>;
  lead: TeamMemberInput;
  members?: TeamMemberInput[];
  name: TeamName;
  project: ProjectName;
  [other: string]: unknown;
}

/** A rule that a file, such as a lock file, is generated from other files. */
export interface DerivedFile {
  file: PathPattern;
  from: PathPattern[];
}

/** A file in the page's list of changed files. */
export interface DiffFileView {
  added: number;
  closed: boolean;
  note: string;
  outside: boolean;
  path: string;
  removed: number;
  was: string | null;
}

/** The changed files of a task's work, as the page lists them above the diff. */
export interface DiffFilesView {
  base: CommitId;
  comments: SentCommentView[];
  commit: CommitId | null;
  files: DiffFileView[];
}

/** Selects a change of files (diff) to show, by the id of a task or attempt. */
export interface DiffInput {
  id: string;
  since_review?: boolean;
}

/** Some parts of the diff of one file. */
export interface DiffPartsView {
  first: number;
  html: string[];
  rows: number;
  rows_per_part: number;
}

/** The change of files that a task's work makes, as a diff. */
export interface DiffView {
  attempt?: AttemptId;
  base: CommitId;
  commit: CommitId;
  files: string[];
  left_out?: string[];
  patch: string;
  task: TaskId;
}

/** The state of a task, an agent, a team's member, a landing or a conversation as people see it. */
export type DisplayState = 'failed' | 'needs' | 'review' | 'landing' | 'working' | 'waiting' | 'idle' | 'backlog' | 'offline' | 'landed';

/** The result of one of the doctor's checks of the machine, and how to fix a problem. */
export interface DoctorCheck {
  fix?: string;
  id: string;
  level: CheckLevel;
  text: string;
}

/** The results of the checks that `regatta doctor` made on the daemon's machine. */
export interface DoctorView {
  checks: DoctorCheck[];
  providers: ProviderProgram[];
}

/** The answer of a verb that has nothing to report besides its success. */
export type Done = 'done';

export interface DownInput {
  keep_agents?: boolean;
}

/** A request to change a task; see [`edit`]. */
export interface EditTask {
  backlog?: boolean | null;
  blocked_by?: TaskId[] | null;
  description?: string | null;
  files?: PathPattern[] | null;
  issue_type?: IssueType | null;
  paused?: SetPause | null;
  priority?: number | null;
  script?: string | null;
  subject?: string | null;
  validation?: ValidationInput | null;
}

/** A request to change a team's settings; see [`edit`]. */
export interface EditTeam {
  environments?: Record<string, TeamEnvironmentInput> | null;
  lead?: TeamMemberInput | null;
  members?: TeamMemberInput[] | null;
  [other: string]: unknown;
}

export type EmptyInput = Record<string, unknown>;

/** The treatment of work that changed files outside its manifest (the files that the task may change). */
export type EscapePolicy = 'hold_back' | 'block';

/** The way in which a scope escape (a change or needed work outside a task's files) was found. */
export type EscapeSource = 'diff' | 'said';

/** A scope escape: a change that an agent made, or work that it found necessary, outside the files that its task may change. */
export interface EscapeView {
  attempt: AttemptId;
  finding: string;
  follow_up: TaskId | null;
  found: EscapeSource;
  id: string;
  project: ProjectName;
  subject: string;
  suggested_files: string[];
  task: TaskId;
  wall: number;
  worker: AgentName;
}

/** A row of the page's list of events. */
export interface EventRow {
  about: string;
  at?: DisplayState;
  by: string;
  kind: string;
  revision: number;
  subject?: string;
  task?: TaskId;
  text: string;
  wall: number;
}

/** An event (a recorded change of something that the daemon manages), as clients receive it. */
export interface EventView {
  by: string;
  data: unknown;
  kind: string;
  revision: number;
  subject: string;
  time: string;
}

/** A window of the page's list of events, newest first. */
export interface EventWindow {
  next_before?: number;
  revision: number;
  rows: EventRow[];
}

/** The source of an observation about a team member. */
export type EvidenceSource = 'process' | 'protocol' | 'permission' | 'decision';

/** The result that a finished task must have: changed files, or a report. */
export type Expects = 'changes' | 'report';

/** The reason why a turn or an agent's program failed. */
export type FailureClass = 'auth' | 'rate_limit' | 'overloaded' | 'no_network' | 'context_full' | 'refused' | 'crashed' | 'timeout' | 'cancelled' | 'bad_config';

/** A path or a file pattern that somebody holds, for which a task waits, or that changed today. */
export interface FileCell {
  clash: TaskId[];
  held: PathHolder[];
  hot: number;
  path: string;
  wanted: TaskId[];
}

/** Tasks that need the same files without an order between them, with what a person can do. */
export interface FileConflictView {
  actions: PageAction[];
  advice: string;
  is_merge_conflict: boolean;
  path_count: number;
  paths: string[];
  tasks: TaskId[];
  text: string;
}

export interface FileInput {
  path: string;
}

/** The kind of a path in a git tree: plain file, executable, link and so on. */
export type FileKind = 'plain' | 'executable' | 'symlink' | 'submodule' | 'git_directory';

/** A file that tasks of a plan want to change. */
export interface FileOwnerView {
  file: string;
  others: number[];
  owner: number;
  text: string;
}

/** A task that holds files or waits for files. */
export interface FileTaskView {
  agent: AgentName | null;
  at: DisplayState;
  id: TaskId;
  latest_wall?: number;
  subject: string;
  word: string;
}

/** One run of a hook's command. */
export interface Firing {
  agent: AgentName;
  argv: string[];
  cause: FiringCause;
  claim?: FiringClaim;
  cwd: string;
  depth: number;
  ended?: FiringEnd;
  ended_wall?: number;
  fired_wall: number;
  hook: HookId;
  id: FiringId;
  output?: string;
  project: ProjectName | null;
  sandbox: SandboxLevel;
  shut_in?: string;
  timeout_ms: number;
  token: number;
}

/** The message, event or freed claim that triggered a hook. */
export type FiringCause = {
  by: 'message';
  channel: ChannelName;
  message: MessageId;
  sender: Actor;
} | {
  by: 'event';
  kind: string;
  subject: string;
} | {
  by: 'free';
  uri: Uri;
};

/** The claim that a hook holds while its command runs, with the claim's token. */
export interface FiringClaim {
  claim: ClaimId;
  token: number;
}

/** The end of a hook's command. */
export type FiringEnd = {
  exited: number;
} | {
  signalled: number;
} | 'timed_out' | {
  not_run: string;
} | 'lost';

/** a firing id */
export type FiringId = string;

/** The reasons why a task's finished work could not be merged, described for the agent or person that will fix it. */
export interface Fixup {
  commit: CommitId;
  conflicts?: Conflict[];
  output?: string;
  paths: string[];
  settled?: SettledPath[];
}

/** The amount of detail that the page shows for each agent, which depends on the number of agents. */
export type FleetSize = 'few' | 'some' | 'many';

/** The counts of a fleet or of one project. */
export interface FleetSummary {
  agents: number;
  agents_needing_you: number;
  backlog: number;
  blocked_on_person: number;
  completed: number;
  daily_limit_micro_usd?: number;
  failed: number;
  landing: number;
  missions: MissionSummary[];
  needs_you: number;
  project?: ProjectName;
  review: number;
  revision: number;
  running: number;
  slots: number;
  spent_today_micro_usd?: number;
  spent_today_tokens: number;
  waiting: number;
  working: number;
}

/** The summary of the fleet (everything that the daemon manages) at the top of the page. */
export interface FleetSummaryView {
  agents: number;
  composers: PageAction[];
  missions: MissionProgress[];
  needs_you: number;
  projects: ProjectSummary[];
  running: number;
  sentence: SentencePart[];
  size: FleetSize;
  slots: number;
  summary: FleetSummary;
  tasks: number;
  version: string;
}

/** A folder of the map, with totals for everything below it. */
export interface FolderCell {
  clash: TaskId[];
  clashes: number;
  depth: number;
  held: HolderShare[];
  hot: number;
  own: FileCell[];
  path: string;
  spots: number;
  wanted: number;
}

/** Two pieces of unfinished work, or one piece and the trunk, that would conflict if they were merged now. */
export interface ForecastCollision {
  one: TaskId;
  other: TaskId | null;
  paths: string[];
  proved: boolean;
  since_wall: number;
}

/** The result of checking one start gate, with its reason. */
export interface GateResult {
  files?: string[];
  gate: StartGate;
  kind?: WaitKind;
  reason?: string;
  says: GateVerdict;
  tasks?: TaskId[];
}

/** The decision of a start gate about an attempt: start, start with a warning, or wait. */
export type GateVerdict = 'pass' | 'warn' | 'block';

/** A new attempt with everything that the agent needs to work on it. */
export interface GrantedAttempt {
  attempt: AttemptId;
  bearer?: string;
  task: TaskView;
  token: number;
  workspace: string | null;
}

/** A claim (a lease on files or other resources) that was just granted, with the fencing token that only the holder gets. */
export interface GrantedClaim {
  claim: ClaimId;
  token: number;
  ttl_ms: number;
}

/** A line from a node to a node that depends on the first one. */
export interface GraphEdgeView {
  critical: boolean;
  from: number;
  through: [number, number][];
  to: number;
}

/** Selects the tasks of a dependency graph by an id: all tasks of a mission, or one task with its neighbours. */
export interface GraphInput {
  id?: string | null;
  project?: ProjectName | null;
}

/** A node of the graph: one task, or several tasks that are combined to save space. */
export interface GraphNodeView {
  agent?: AgentName;
  at: DisplayState;
  column: number;
  critical: boolean;
  label: string;
  loose?: boolean;
  needs?: TaskId[];
  row: number;
  tasks: TaskId[];
  word: string;
}

/** Tasks and their dependencies as a graph on a grid. */
export interface GraphView {
  columns: number;
  critical: TaskId[];
  edges: GraphEdgeView[];
  nodes: GraphNodeView[];
  rows: number;
  tasks: number;
  text: string;
  title: string;
}

export interface GuideQuery {
  name?: string | null;
}

/** A guide for agents, or a list of the names of all guides. */
export interface GuideView {
  name: string;
  text: string;
  title: string;
}

export interface HeldClaimInput {
  claim: ClaimId;
  token: number;
}

/** A request from a person who may not ask for work. */
export interface HeldRequest {
  by: Author;
  source: string;
  text: string;
  wall: number;
}

/** One holder of claims, and the number of paths in a folder that this holder has claimed. */
export interface HolderShare {
  holder: string;
  spots: number;
  task: TaskId | null;
  until?: string;
  until_wall?: number;
}

/** The action of a hook when it fires. */
export type HookAction = {
  argv: string[];
  cwd: string;
  do: 'run';
} | {
  do: 'route';
};

export interface HookAdd {
  action: HookAction;
  agent?: AgentName | null;
  priority?: number | null;
  project?: ProjectName | null;
  sandbox?: SandboxLevel | null;
  timeout_ms?: number | null;
  trigger: HookTriggerInput;
  when?: HookConditionsInput;
}

/** Further conditions for a hook that was triggered. */
export interface HookConditions {
  claim?: Uri;
  cooldown_ms?: number;
  require_label?: Label;
  ttl_ms?: number;
}

/** Further conditions for a hook that was triggered. */
export interface HookConditionsInput {
  claim?: Uri | null;
  cooldown_ms?: number | null;
  require_label?: Label | null;
  ttl_ms?: number | null;
}

/** a hook id */
export type HookId = string;

export interface HookIdInput {
  hook: HookId;
}

export interface HookLog {
  before?: FiringId | null;
  hook?: HookId | null;
  limit?: number | null;
}

export interface HookPause {
  hook: HookId;
  reason?: string;
}

/** Tests a hook (a rule that runs a command) against an existing message, or against a text that is not posted. */
export interface HookTest {
  channel?: ChannelName | null;
  from?: AgentName | null;
  hook: HookId;
  labels?: Label[];
  message?: MessageId | null;
  text?: string | null;
}

/** The answer to the question whether a message would trigger a hook. */
export interface HookTestView {
  fires: boolean;
  hook: HookId;
  why: string;
}

/** The message, event or freed claim for which a hook waits. */
export type HookTrigger = {
  channel?: ChannelName;
  label?: Label;
  mention?: AgentName;
  on: 'message';
  prefix?: string;
} | {
  kind: string;
  on: 'event';
} | {
  on: 'free';
  uri: Uri;
};

/** The message, event or freed claim for which a hook waits. */
export type HookTriggerInput = {
  channel?: ChannelName | null;
  label?: Label | null;
  mention?: AgentName | null;
  on: 'message';
  prefix?: string | null;
} | {
  kind: string;
  on: 'event';
} | {
  on: 'free';
  uri: Uri;
};

/** A hook, with the number of commands that it is running now. */
export interface HookView {
  action: HookAction;
  agent?: AgentName;
  fired: number;
  fired_wall?: number;
  id: HookId;
  last_skip?: [FiringCause, string];
  made_by: Actor;
  made_wall: number;
  paused?: string;
  priority: number;
  project: ProjectName | null;
  recent?: number[];
  running: number;
  sandbox: SandboxLevel;
  skipped: number;
  timeout_ms: number;
  trigger: HookTrigger;
  waiting?: WaitingTrigger[];
  when: HookConditions;
}

/** Names one thing by its id or name, as a person types it: `T21`, `A5`, `M3`, or an agent's name. */
export interface IdInput {
  id: string;
}

/** Names one thing by its id, with a text about the thing, such as a reason. */
export interface IdWithText {
  id: string;
  text?: string;
}

/** A person's answer to an agent's request in the inbox. */
export interface InboxAnswer {
  alike?: boolean;
  answer: RequestAnswerInput;
  id: ApprovalId;
  reach?: AnswerScope;
}

/** The cause of an inbox item, as far as other items can have the same cause. */
export interface InboxCause {
  class: CauseClass;
  detail: string;
  fix?: string;
  noun: string;
  text: string;
}

/** A choice that a person has for an inbox item, with the API call that carries out the choice. */
export interface InboxChoice {
  choice: string;
  grave?: boolean;
  input: unknown;
  line: string;
  verb: string;
  words?: string;
}

/** The effect of a person's answer to a request in the inbox. */
export interface InboxDecisionView {
  agent: AgentName | null;
  answered: number;
  id: ApprovalId;
  left: number;
  rule: string | null;
  rules: string[];
  subject: string | null;
  task: TaskId | null;
}

/** Q7, a task T9, an attempt A5, budget:day, agent:NAME, bridge:SERVICE:AGENT or a conversation V3 */
export type InboxItem = string;

/** An item of the inbox, with the actions that a person can take on it. */
export interface InboxItemView {
  actions: PageAction[];
  agent: AgentName | null;
  ask?: AgentRequest;
  cause?: InboxCause;
  change?: ChangeSummary;
  choices: string[];
  escalated: boolean;
  group: string;
  id: string;
  kind: InboxKind;
  project?: ProjectName;
  since_wall: number;
  snoozed_until_wall?: number;
  subject: string;
  task?: TaskId;
  ways?: InboxChoice[];
  why: string;
}

/** The kind of help that an inbox item needs from a person. */
export type InboxKind = 'permission' | 'question' | 'review' | 'task' | 'landing' | 'failed' | 'stuck' | 'budget' | 'credential' | 'settings' | 'request';

/** Hides an inbox item for `ms` milliseconds. */
export interface InboxSnooze {
  id: InboxItem;
  ms?: number | null;
}

/** An item of the inbox: something that a person must decide or do. */
export interface InboxView {
  agent: AgentName | null;
  ask?: AgentRequest;
  cause?: InboxCause;
  choices: string[];
  escalated: boolean;
  id: string;
  kind: InboxKind;
  project?: ProjectName;
  since_wall: number;
  snoozed_until_wall?: number;
  subject: string;
  task?: TaskId;
  ways?: InboxChoice[];
  why: string;
}

/** The kind of a task's work, which determines whether the task must name its files and checks before it can start. */
export type IssueType = 'feature' | 'bug' | 'task' | 'docs' | 'chore' | 'ci';

/** Journal records (recorded input and output) of a program that runs on a runner. */
export interface JournalCopy {
  attempt: AttemptId;
  heading?: string | null;
  records?: unknown[];
  runner: RunnerName;
  session: number;
}

/** One record of an attempt's journal (the recorded input and output of its program), with the events derived from it. */
export interface JournalRecordView {
  at_wall: number;
  line: string;
  n: number;
  said: AgentEvent[];
  stream: string;
}

/** Settings of the section `[knowledge]`: where the project keeps what agents learned. */
export interface KnowledgeSettings {
  paths?: string[];
}

/** a checked name: Label */
export type Label = string;

/** When the page asks a person for a confirmation before a change lands. */
export type LandConfirmation = 'unread' | 'always' | 'never';

export interface LandInput {
  claim?: ClaimId | null;
  first?: boolean;
  id: string;
  token?: number | null;
}

/** The number of lines that landed work added or removed, and the number of tokens that each line cost. */
export interface LandedLinesView {
  lines: number;
  tasks: number;
  tokens_each: number;
}

/** The latest work of a mission that was merged into the trunk. */
export interface LandedWork {
  before: string[];
  changed: string[];
  last: CommitId | null;
  step: PlanStep;
}

/** A condition that must be met before a task's work lands (is merged), with its result. */
export interface LandingCondition {
  good: boolean | null;
  text: string;
}

/** a landing id */
export type LandingId = string;

/** The state of a landing as people see it, including landings that are tested or moved as part of another landing's trial merge. */
export type LandingProgress = 'moving' | 'testing' | 'queued' | 'passed' | 'searching' | 'behind' | 'held';

/** Settings of the section `[landing]`: how finished work is tested and merged into the trunk. */
export interface LandingSettings {
  after?: string[];
  batch?: number | null;
  checkout?: CheckoutPolicy;
  confirm?: LandConfirmation;
  max_hold?: Millis;
  merge_timeout?: Millis;
  mode?: QueueMode;
  on_conflict?: ConflictPolicy;
  protected?: PathPattern[];
  push?: string | null;
  radar?: Millis;
  release?: string | null;
  review?: ReviewPolicy;
  reviewer?: AgentName | null;
  slots?: number | null;
  style?: CommitStyle;
  unanswered?: UnansweredPolicy;
  verify?: VerifyMode;
}

/** A landing (the merge of one task's work) that is in the queue or has left it. */
export interface LandingView {
  agent: AgentName;
  at: DisplayState;
  branch: string;
  commit: CommitId | null;
  conflicts: number;
  detail: string;
  ended_wall?: number;
  files: string[];
  fixups: number;
  landing: LandingId;
  position: number | null;
  queued_wall: number;
  settled: number;
  state: string;
  subject: string;
  taken_back_by?: TaskId;
  task: TaskId;
}

/** A group of team members that are started together, as planned for a launch. */
export interface Lane {
  id: string;
  kind: LaneKind;
  members: MemberName[];
  owner: string;
}

/** A bar in the row of an agent or task: a time span, with the state during this time span. */
export interface LaneBar {
  at: DisplayState;
  from: number;
  task?: TaskId;
  text?: string;
  to?: number;
}

/** The states of one agent over time, as bars in the agent's row. */
export interface LaneBarsView {
  agent: AgentName;
  bars: LaneBar[];
}

/** The kind of a lane (a group of team members that are started together). */
export type LaneKind = 'primary' | 'secondary';

/** The lane of a member: the group of team members with which it is started. */
export interface LaneRef {
  id: string;
  kind: LaneKind;
  owner: string;
}

/** The rule for members of one provider. */
export type LaneRule = LaneKind | LaneRuleTable;

/** A provider's rule that is written as a table, such as `{ lane = "secondary", leads = "any" }`. */
export interface LaneRuleTable {
  lane: LaneKind;
  leads?: LeadableTeams | null;
  store?: StoreScope;
}

/** Settings of the section `[lanes]` of `regatta.toml`: how members of teams are grouped when a team starts. */
export interface LaneSettings {
  concurrency?: number;
  failover?: Record<string, string[]>;
  policy?: Record<string, LaneRule>;
}

/** The record of one member in a launch of its team: its settings, its state, and the reason for this state. */
export interface LaunchEntry {
  agent: AgentName;
  alive_wall?: number;
  asked: MemberIdentity;
  attempt?: AttemptId;
  cause?: MemberCause;
  ended_wall?: number;
  evidence?: MemberEvidence[];
  got: MemberIdentity;
  lane?: LaneRef;
  lead: boolean;
  name: MemberName;
  notes?: string[];
  prepared?: boolean;
  program?: ProgramFacts;
  retries: number;
  started_wall?: number;
  state: MemberState;
  task?: TaskId;
  [other: string]: unknown;
}

/** The record of one member in a launch of its team: its settings, its state, and the reason for this state. */
export interface LaunchEntryInput {
  agent: AgentName;
  alive_wall?: number | null;
  asked?: MemberIdentityInput;
  attempt?: AttemptId | null;
  cause?: MemberCause | null;
  ended_wall?: number | null;
  evidence?: MemberEvidence[];
  got?: MemberIdentityInput;
  lane?: LaneRef | null;
  lead?: boolean;
  name: MemberName;
  notes?: string[];
  prepared?: boolean;
  program?: ProgramFactsInput | null;
  retries?: number;
  started_wall?: number | null;
  state: MemberState;
  task?: TaskId | null;
  [other: string]: unknown;
}

/** a launch id */
export type LaunchId = string;

/** The result of a launch so far: whether members are still starting, have failed or were skipped. */
export type LaunchOutcome = 'clean_success' | 'partial_pending' | 'partial_failure' | 'partial_skipped';

/** The progress of a launch, computed from all its members. */
export type LaunchPhase = 'active' | 'finished' | 'reconciled';

/** The lead of a mission: its name, its pending events and timers. */
export interface Lead {
  about: LeadSubject;
  agent: AgentName;
  channel: ChannelName;
  checkpoint_at?: number;
  children: number;
  left_out: number;
  lost?: string;
  message?: MessageId;
  name?: AgentName;
  news?: string[];
  report?: string;
  said?: string;
  stirred: boolean;
  task?: TaskId;
  until_at?: number;
}

/** Settings of the section `[leads]`: missions that an agent leads by giving tasks to workers. */
export interface LeadSettings {
  agent?: AgentName | null;
  checkpoint_interval?: Millis;
  max_children?: number;
  max_leads?: number;
  max_workers?: number;
  timeout?: Millis;
  workers?: AgentName[];
}

/** The work for which a mission with a lead was requested. */
export type LeadSubject = 'goal' | 'backlog' | {
  task: TaskId;
};

/** The teams that a member of a provider may lead. */
export type LeadableTeams = 'any' | 'pure';

/** Changes the limits for attempts on the daemon's machine, such as their number and duration. */
export interface LimitsSet {
  attempt_disk_mb?: number | null;
  attempt_memory_mb?: number | null;
  attempt_timeout_ms?: number | null;
  escalate_ms?: number | null;
  lead_timeout_ms?: number | null;
  max_attempts?: number | null;
  retry_most_ms?: number | null;
  retry_ms?: number | null;
  shutdown_ms?: number | null;
  silence_ms?: number | null;
  startup_ms?: number | null;
}

/** Limits that hold for all projects and agents of this machine together. */
export interface MachineLimits {
  attempt_disk_mb: number;
  attempt_memory_mb: number;
  attempt_timeout_ms: number;
  escalate_ms: number;
  landing_slots: number;
  lead_timeout_ms: number;
  max_attempts: number;
  retry_most_ms: number;
  retry_ms: number;
  shutdown_ms: number;
  silence_ms: number;
  startup_ms: number;
}

/** The current activity of a team member, derived from its session. */
export type MemberActivity = 'absent' | 'dead' | 'coming' | 'idle' | 'working' | 'waiting' | 'hung' | 'ending';

/** The reason why a team member does not run, as a category and a sentence. */
export interface MemberCause {
  kind: MemberCauseKind;
  text: string;
}

/** The category of the reason why a team member does not run. */
export type MemberCauseKind = 'program' | 'sign_in' | 'provider' | 'crashed' | 'timed_out' | 'hung' | 'lost' | 'stopped' | 'environment' | 'no_lead' | 'left_out' | 'lane_unknown' | 'other';

/** A dated observation from which a team member's state follows, shown to people as an explanation. */
export interface MemberEvidence {
  sign: EvidenceSource;
  text: string;
  wall: number;
}

/** The provider and settings with which a member runs. */
export interface MemberIdentity {
  backend?: string;
  cwd?: string;
  effort?: string;
  fast_mode?: boolean;
  model?: string;
  provider: string;
}

/** The provider and settings with which a member runs. */
export interface MemberIdentityInput {
  backend?: string | null;
  cwd?: string | null;
  effort?: string | null;
  fast_mode?: boolean | null;
  model?: string | null;
  provider?: string;
}

/** The way in which the work of a member is separated from the work of others. */
export type MemberIsolation = 'worktree';

/** The present activity of a team's member, with the facts from which it is derived. */
export interface MemberLiveView {
  live: MemberActivity;
  name: MemberName;
  session?: AttemptId;
  silent_ms?: number;
  tasks?: TaskId[];
}

/** a checked name: MemberName */
export type MemberName = string;

/** The state of a team member in a launch of its team. */
export type MemberState = 'stopped' | 'queued' | 'starting' | 'pending_bootstrap' | 'pending_permission' | 'alive' | 'failed_to_start' | 'skipped' | 'degraded';

/** One team member in the summary of its team. */
export interface MemberSummary {
  lane?: LaneKind;
  lead?: boolean;
  name: MemberName;
  provider: string;
  said: string;
  state?: MemberState;
  word: string;
}

/** A message that was posted in a channel. */
export interface Message {
  attachments?: Attachment[];
  channel: ChannelName;
  depth?: number;
  id: MessageId;
  labels: Label[];
  mentions: AgentName[];
  reply_to: MessageId | null;
  sender: Actor;
  text: string;
  thread?: MessageId;
  wall: number;
}

/** a message id */
export type MessageId = string;

/** 500ms, 30s, 10m, 2h or 1d */
export type Millis = string;

export interface MissionAdopt {
  mission?: string | null;
  task: TaskId;
}

/** Creates a mission from a goal. */
export interface MissionAsk {
  agent?: AgentName | null;
  goal: string;
  project?: ProjectName | null;
  task?: TaskId | null;
}

export interface MissionCompare {
  ids: MissionId[];
}

/** A question or a permission request of an agent, with its answer. */
export interface MissionDecision {
  agent: AgentName;
  answer: string;
  answered_wall?: number;
  asked_wall: number;
  at: DisplayState;
  by?: string;
  id: ApprovalId;
  kind: string;
  subject: string;
  task: TaskId;
}

/** The end of a mission, with the date and the final report. */
export interface MissionEnd {
  how: MissionEndKind;
  report?: string;
  wall: number;
}

/** The kind of a mission's end: completed or cancelled. */
export type MissionEndKind = 'done' | 'cancelled';

/** The results of a mission in numbers, for comparison with other missions. */
export interface MissionFiguresView {
  agents: number;
  conflicts: number;
  failed: number;
  fixups: number;
  landed: number;
  mission: MissionId;
  retries: number;
  running: boolean;
  spent: Spend;
  tasks: number;
  time: ActivityTotal[];
  title: string;
  wall_ms: number;
  work_ms: number;
}

/** The final report with which a lead (the agent that leads a mission) ends its mission. */
export interface MissionFinish {
  attempt: AttemptId;
  report: string;
  task: TaskId;
  token: number;
}

export interface MissionHandover {
  id: string;
  to?: AgentName | null;
}

/** a mission id */
export type MissionId = string;

/** Work of a mission that reached the trunk. */
export interface MissionLanding {
  agent: AgentName | null;
  commit: CommitId;
  lines?: ChangedLines;
  subject: string;
  task: TaskId;
  wall: number;
}

/** An agent that worked on a mission, with its attempts as bars over time. */
export interface MissionLane {
  agent: AgentName;
  at: DisplayState;
  bars: LaneBar[];
  task?: TaskId;
  word: string;
}

/** A mission as one row of a list. */
export interface MissionLineView {
  created_wall: number;
  id: MissionId;
  lead: AgentName | null;
  lost: string | null;
  outlook: MissionOutlook;
  place: number | null;
  project: ProjectName;
  spent: Spend;
  state: MissionState;
  summary: string;
  title: string;
  workers: AgentName[];
}

/** The number of a mission's unfinished tasks, and the number of those tasks that cannot continue without a person. */
export interface MissionOutlook {
  held: number;
  landing: number;
  open: number;
  running: number;
  stuck: number;
}

/** The page of one mission. */
export interface MissionPage {
  actions: PageAction[];
  asked_by?: string;
  budget?: Ceiling;
  decisions: MissionDecision[];
  decisions_total: number;
  goal?: string;
  landings: MissionLanding[];
  landings_total: number;
  lanes: MissionLane[];
  lanes_total: number;
  mission: MissionRowView;
  notes?: string[];
  open: TaskRowView[];
  open_total: number;
  report?: string;
  spent: Spend;
  waves: MissionWave[];
}

/** The progress of a mission: how many of its tasks have landed. */
export interface MissionProgress {
  id: MissionId;
  landed: number;
  place?: number;
  tasks: number;
  title: string;
}

/** Selects a mission, and the past revision (number of an event) at which to show the mission. */
export interface MissionReplay {
  at?: number | null;
  id: string;
}

/** A mission as one row of the list of missions. */
export interface MissionRowView {
  at: DisplayState;
  counts: StateCount[];
  created_wall: number;
  ended_wall?: number;
  id: MissionId;
  landed: number;
  lead: AgentName | null;
  project: ProjectName;
  running: boolean;
  spend: string;
  tasks: number;
  text: string;
  title: string;
  word: string;
}

export interface MissionStart {
  adopt?: TaskId[];
  agents?: AgentName[];
  budget?: CeilingInput;
  isolate?: boolean;
  max_workers?: number;
  mode?: StartMode;
  project?: ProjectName | null;
  tasks?: PlannedTaskInput[];
  team?: TeamName | null;
  title: string;
  wave_commits?: boolean;
}

/** The state of a mission that has not ended, which decides whether its tasks start. */
export type MissionState = 'queued' | 'active' | 'draining';

/** A running mission. */
export interface MissionSummary {
  id: MissionId;
  landed: number;
  open: number;
  place?: number;
  stopped?: boolean;
  tasks: number;
  title: string;
}

/** A mission with its title. */
export interface MissionTitle {
  id: MissionId;
  title: string;
}

/** A mission with its tasks and its progress. */
export interface MissionView {
  agents: AgentName[];
  created_wall: number;
  goal?: string;
  held?: GateResult[];
  id: MissionId;
  isolate?: boolean;
  landed?: LandedWork;
  lead?: Lead;
  max_workers: number;
  mode: StartMode;
  outlook: MissionOutlook;
  project: ProjectName;
  result?: MissionEnd;
  running: boolean;
  serial?: PathPattern[];
  serialised?: string;
  settled: boolean;
  spent?: Spend;
  state: MissionState;
  tasks: TaskView[];
  title: string;
  wave_commits?: boolean;
}

/** A wave of a mission: tasks that depend only on tasks of earlier waves. */
export interface MissionWave {
  counts: StateCount[];
  landed: number;
  tasks: number;
  wave: number;
}

export interface MsgAttachment {
  message: MessageId;
  nth?: number;
}

/** Selects messages that satisfy all given conditions. */
export interface MsgHistory {
  after?: MessageId | null;
  before?: MessageId | null;
  channel?: ChannelName | null;
  from?: string | null;
  label?: Label | null;
  limit?: number | null;
  mention?: AgentName | null;
  reply_to?: MessageId | null;
  search?: string | null;
  since?: number | null;
  thread?: MessageId | null;
  until?: number | null;
}

export interface MsgInbox {
  agent: AgentName;
}

export interface MsgRead {
  agent: AgentName;
  channel: ChannelName;
  keep_unread?: boolean;
}

export interface MsgSend {
  agent?: AgentName | null;
  attach?: string[];
  channel: ChannelName;
  labels?: Label[];
  reply_to?: MessageId | null;
  text: string;
}

export interface MsgWait {
  after?: MessageId | null;
  channel?: ChannelName | null;
  from?: string | null;
  label?: Label | null;
  mention?: AgentName | null;
  reply_to?: MessageId | null;
  thread?: MessageId | null;
  timeout_ms?: number;
}

export interface NameQuery {
  count?: number | null;
  prefix?: string | null;
}

/** A new access token, with its secret. */
export interface NewTokenView {
  expired: boolean;
  expires_wall: number | null;
  made_wall: number;
  name: string;
  scope: TokenScope;
  token: string;
}

/** The outcome of a task whose agent reports that no change is needed and whose checks pass. */
export type NotNeededPolicy = 'done' | 'ask';

/** The tone of a note, by which a bridge chooses how to show it. */
export type NoteTone = 'plain' | 'good' | 'trouble' | 'refusal';

/** The section `[notify]`: how people are notified when something needs them. */
export interface NotifySettings {
  command?: string | null;
  desktop?: boolean;
  quiet?: string | null;
}

export interface OfferReply {
  agent: AgentName;
  task: TaskId;
}

/** Finished work that left the landing queue without being merged, with the next step. */
export interface OutOfQueueView {
  actions: PageAction[];
  at: DisplayState;
  landing: LandingView;
  next: string;
  word: string;
}

/** An action that a person can take, as a button of the page and as a shell command. */
export interface PageAction {
  choice?: ActionChoice;
  cli: string;
  first: boolean;
  form?: Record<string, unknown>;
  grave: boolean;
  input: Record<string, unknown>;
  key?: string;
  label: string;
  lands?: ChangeToLand;
  to?: string;
  verb: string;
  words?: string;
}

/** Somebody who holds a claim on a path. */
export interface PathHolder {
  agent: AgentName | null;
  memo: string;
  owner: string;
  since_wall: number;
  task: TaskId | null;
  until?: string;
  until_wall?: number;
}

/** a path in the repository, with *, ? and ** */
export type PathPattern = string;

/** One of the answers that a program offers for its permission request. */
export interface PermissionOption {
  id: string;
  kind: PermissionOptionKind;
  name: string;
}

/** The meaning of one option of a permission request. */
export type PermissionOptionKind = 'allow_once' | 'allow_always' | 'reject_once' | 'reject_always';

/** Asks an agent to break a goal into planned tasks. */
export interface PlanAsk {
  goal: string;
  planner?: AgentName | null;
  project?: ProjectName | null;
  script?: unknown;
  wrong?: string;
}

/** A plan to display with its waves (groups of tasks that run at the same time) and its conflicts. */
export interface PlanDraw {
  agents?: AgentName[];
  project?: ProjectName | null;
  tasks: PlannedTaskInput[];
  title: string;
}

/** One entry of the to-do list that an agent's program keeps for itself. */
export interface PlanEntry {
  status: ToolStatus;
  text: string;
}

export interface PlanShow {
  task: TaskId;
}

/** The state of a plan: still being made, ready to start, or not usable. */
export type PlanState = 'planning' | 'ready' | 'unusable' | 'failed';

/** The position of a task in a plan that runs step by step. */
export interface PlanStep {
  sub: number;
  wave: number;
}

/** A plan before it is started, with its waves (groups of tasks that run at the same time), the owners of files, conflicts, and an estimate. */
export interface PlanView {
  actions: PageAction[];
  agents: AgentName[];
  conflicts: number;
  estimate: string;
  goal?: string;
  owned: FileOwnerView[];
  planner: AgentName | null;
  project: ProjectName;
  state: PlanState;
  task?: TaskId;
  tasks: PlannedTask[];
  text: string;
  title: string;
  warnings: string[];
  waves: string[];
}

export interface PlannedTask {
  after: number[];
  task: PlannedTaskFields;
}

/** A task of a plan that does not exist yet. */
export interface PlannedTaskFields {
  alias: string | null;
  assign: AgentName | null;
  description: string;
  effort: string | null;
  expects: Expects;
  files: PathPattern[];
  issue_type: IssueType;
  priority: number;
  provider: string | null;
  ratchet: string[] | null;
  script: unknown;
  subject: string;
  validation: Validation;
}

/** A task of a plan that does not exist yet. */
export interface PlannedTaskFieldsInput {
  alias?: string | null;
  assign?: AgentName | null;
  description?: string;
  effort?: string | null;
  expects?: Expects;
  files?: PathPattern[];
  issue_type?: IssueType;
  priority?: number;
  provider?: string | null;
  ratchet?: string[] | null;
  script?: unknown;
  subject: string;
  validation?: ValidationInput;
}

export interface PlannedTaskInput {
  after?: number[];
  task: PlannedTaskFieldsInput;
}

export interface PolicyAdd {
  effect: RuleEffect;
  matter?: RuleSubject;
  scope?: RuleScope;
}

/** A rule for agents' tool calls: it allows or denies the calls that it covers, or makes Regatta ask a person about them. */
export interface PolicyRule {
  command?: string;
  effect: RuleEffect;
  exact?: boolean;
  id: RuleId;
  path?: string;
  scope: RuleScope;
  tool?: ToolKind;
  url?: string;
}

/** The settings with which Regatta starts an agent's program: the model, environment variables, extra arguments, and the sandbox. */
export interface Profile {
  args?: string[];
  capabilities?: string[];
  confine?: SandboxLevel;
  cwd?: string;
  effort?: string;
  egress?: string[];
  env?: [string, string][];
  fast_mode?: boolean;
  keys?: SecretVariable[];
  labels?: string[];
  mode?: string;
  model?: string;
  network?: boolean;
  preset?: string;
  read?: string[];
  system_prompt?: string;
  title?: string;
  write?: string[];
}

/** The settings with which Regatta starts an agent's program: the model, environment variables, extra arguments, and the sandbox. */
export interface ProfileInput {
  args?: string[];
  capabilities?: string[];
  confine?: SandboxLevel | null;
  cwd?: string | null;
  effort?: string | null;
  egress?: string[];
  env?: [string, string][];
  fast_mode?: boolean | null;
  keys?: SecretVariable[];
  labels?: string[];
  mode?: string | null;
  model?: string | null;
  network?: boolean | null;
  preset?: string | null;
  read?: string[];
  system_prompt?: string | null;
  title?: string;
  write?: string[];
}

/** The activity of an attempt's program. */
export type ProgramActivity = 'stopping' | 'checking' | 'awaits_permission' | 'awaits_answer' | 'taken_over' | 'held' | 'starting' | 'ending' | 'idle' | 'hung' | 'in_turn';

/** Facts about a member's installed program that were found before it was started. */
export interface ProgramFacts {
  models?: string[];
  path?: string;
  sign_in?: string;
  version?: string;
}

/** Facts about a member's installed program that were found before it was started. */
export interface ProgramFactsInput {
  models?: string[] | null;
  path?: string | null;
  sign_in?: string | null;
  version?: string | null;
}

export interface ProjectAdd {
  name?: ProjectName | null;
  path: string;
  settings?: ProjectSettings;
  trunk?: BranchName | null;
  validation?: string[];
  validation_timeout_ms?: number | null;
}

/** A project's files: who works on each file, until when, and which files several tasks want to change. */
export interface ProjectFilesView {
  conflicts: FileConflictView[];
  folders: FolderCell[];
  project: ProjectName;
  radar: CollisionForecast;
  tasks: FileTaskView[];
  text: string;
}

/** Limits the answer to one project. */
export interface ProjectFilter {
  project?: ProjectName | null;
}

/** a checked name: ProjectName */
export type ProjectName = string;

export interface ProjectNameInput {
  name: ProjectName;
}

/** All settings of a project; each field is a section of `regatta.toml`. */
export interface ProjectSettings {
  knowledge?: KnowledgeSettings;
  landing?: LandingSettings;
  lanes?: LaneSettings;
  leads?: LeadSettings;
  notify?: NotifySettings;
  router?: RouterSettings;
  rule?: StandingRule[];
  run?: RunSettings;
  workspace?: WorkspaceSettings;
}

/** A project with its trunk branch and the path of its repository. */
export interface ProjectSummary {
  name: ProjectName;
  path: string;
  trunk: string;
}

/** A project with its trunk, its checks, and the state of its landing queue. */
export interface ProjectView {
  held?: QueueHold;
  name: ProjectName;
  open_tasks: number;
  path: string;
  queue: number;
  radar: CollisionForecast;
  tip: CommitId | null;
  trunk: string;
  trunk_differs?: string;
  unpushed?: Unpushed;
  validation: string[];
}

/** One provider's part of the total cost line of a day. */
export interface ProviderBand {
  micro_usd: number[];
  name: string;
}

/** A number of agents of one provider. */
export interface ProviderCount {
  count: number;
  provider: string;
}

/** A coding agent's program that Regatta knows by name, with the fact whether the program is installed and signed in. */
export interface ProviderProgram {
  add?: AgentAdd;
  fix: string | null;
  preset: string;
  program: string | null;
  provider: string;
  signed_in: string;
  version: string | null;
}

/** A pull request that Regatta did not open, with its content. */
export interface PullRequest {
  number: number;
  text: string;
}

/** The purpose of a task. */
export type Purpose = {
  work: {
    expects: Expects;
  };
} | {
  explore: {
    task: TaskId;
  };
} | {
  review: {
    commit: CommitId | null;
    task: TaskId;
  };
} | 'lead' | {
  answer: {
    channel: ChannelName;
    root: MessageId;
  };
} | {
  triage: {
    channel: ChannelName;
    message: MessageId;
  };
} | {
  converse: {
    conversation: ConversationId;
  };
} | {
  plan: {
    goal: string;
  };
} | {
  session: SessionOf;
} | {
  merge_remote: {
    remote: string;
  };
};

/** The latest push of a conversation's work to the remote: the pushed commit, and in `failure` the reason if the push failed. */
export interface PushedWork {
  commit: CommitId;
  trouble: string | null;
}

/** A stop of a project's queue: by whom, why and since when. */
export interface QueueHold {
  by: string;
  reason: string;
  wall: number;
}

export interface QueueHoldInput {
  project?: ProjectName | null;
  reason?: string;
}

/** The order in which the landing queue tests finished work: the work of several tasks at the same time, or of one task after the other. */
export type QueueMode = 'speculative' | 'serial';

/** A project's landing queue (finished work that waits to be merged), with the actions on it. */
export interface QueuePage {
  actions: PageAction[];
  batches: BatchView[];
  each: [LandingId, PageAction[]][];
  expected: [LandingId, number][];
  held: QueueHold | null;
  lines: [LandingId, number][];
  out: OutOfQueueView[];
  project: ProjectName;
  queue: LandingView[];
  recent: LandingView[];
  slots: number;
  text: string;
  tip: CommitId | null;
  trunk: string;
  trunk_differs?: string;
  unpushed?: Unpushed;
  usual_ms?: number;
}

/** A project's landing queue (finished work that waits to be merged), with the latest results. */
export interface QueueView {
  batches: BatchView[];
  held: QueueHold | null;
  project: ProjectName;
  queue: LandingView[];
  recent: LandingView[];
  slots: number;
  trunk: string;
  trunk_differs?: string;
  unpushed?: Unpushed;
  usual_ms?: number;
}

/** A runner's request to take part; see [`register`]. */
export interface RegisterRunner {
  agents?: AgentName[];
  identity: string;
  labels?: string[];
  max_tasks: number;
  name: RunnerName;
  token?: string;
  version?: string;
}

export interface RelaunchTeam {
  team: TeamName;
  wait_ms?: number;
}

/** A notable moment of a mission, with its revision (number of the event) and a short text. */
export interface ReplayMarkView {
  at: DisplayState;
  revision: number;
  task?: TaskId;
  text: string;
  wall: number;
}

/** A mission, with its tasks and its landing queue, as it was at one revision (number of an event). */
export interface ReplayView {
  at: number;
  event: string;
  first: number;
  last: number;
  marks: ReplayMarkView[];
  mission: MissionId;
  project: ProjectName;
  queue: LandingView[];
  tasks: TaskRowView[];
  title: string;
  wall: number;
}

/** The answer to an [`AgentRequest`], which a person, a lead agent or the permission policy gave. */
export type RequestAnswer = {
  say: 'allow';
} | {
  say: 'deny';
  words: string | null;
} | {
  say: 'text';
  text: string;
} | {
  say: 'cancelled';
};

/** The answer to an [`AgentRequest`], which a person, a lead agent or the permission policy gave. */
export type RequestAnswerInput = {
  say: 'allow';
} | {
  say: 'deny';
  words?: string | null;
} | {
  say: 'text';
  text: string;
} | {
  say: 'cancelled';
};

/** An action for which an agent requests permission. */
export interface RequestedAction {
  command?: string | null;
  kind?: ToolKind;
  paths?: string[];
  title: string;
  urls?: string[];
}

export interface RestoreTeam {
  backup: TeamBackup;
}

/** The status that a worker reports for its task. */
export type ResultStatus = 'done' | 'failed' | 'blocked' | 'not_needed';

/** The place where the next attempt at a task continues unfinished work: the workspace of an earlier attempt and, if the same agent continues, that attempt's session. */
export interface ResumePoint {
  agent: AgentName;
  runner?: RunnerName;
  session: string | null;
  used: Usage;
  workspace: AttemptId;
}

export interface RetryTeam {
  member: MemberName;
  team: TeamName;
  wait_ms?: number;
}

/** The reviewer whose approval finished work needs before it is merged into the trunk, if any. */
export type ReviewPolicy = 'none' | 'human' | 'agent';

/** The role of an agent: a worker works on tasks, and a lead splits a mission into tasks. */
export type Role = 'lead' | 'worker';

export interface RouteInput {
  message: MessageId;
  project?: ProjectName | null;
}

/** Settings of the section `[router]`: how messages in the project's channel become requests. */
export interface RouterSettings {
  agent?: AgentName | null;
  from?: AgentName[];
  max_answers?: number;
  triage?: TriagePolicy;
}

/** The effect of a standing rule (a rule about all work of a project) on work that matches it: block, warn, or nothing. */
export type RuleAction = 'block' | 'warn' | 'leave';

/** The effect of a policy rule on a tool call that it covers: allow it, deny it, or ask a person. */
export type RuleEffect = 'allow' | 'deny' | 'ask';

/** a rule id */
export type RuleId = string;

export interface RuleIdInput {
  rule: RuleId;
}

/** A standing rule (a rule of a project for all its work) that applies to a tested task or change. */
export interface RuleMatchView {
  action: RuleAction;
  before: string;
  words: string;
}

/** The agents or work to which a policy rule applies, from the narrowest to the widest. */
export type RuleScope = 'all' | {
  task: TaskId;
} | {
  mission: MissionId;
} | {
  agent: AgentName;
} | {
  role: Role;
};

/** The tool calls that a policy rule covers. */
export interface RuleSubject {
  command?: string | null;
  exact?: boolean;
  path?: string | null;
  tool?: ToolKind | null;
  url?: string | null;
}

export interface RuleTest {
  files?: PathPattern[];
  issue_type?: IssueType;
  line?: string | null;
  project?: ProjectName | null;
  task?: TaskId | null;
}

/** A standing rule (a rule of a project for all its work), with its project. */
export interface RuleView {
  action: RuleAction;
  files: PathPattern[];
  name: string;
  pattern: string | null;
  project: ProjectName;
  says: string;
  types: IssueType[];
}

/** Settings of the section `[run]`: how tasks are started, checked and retried. */
export interface RunSettings {
  agents?: string[] | null;
  attempts?: number;
  commits?: CommitGrouping | null;
  derived?: DerivedFile[];
  max_workers?: number | null;
  mode?: StartMode | null;
  not_needed?: NotNeededPolicy;
  on_scope_escape?: EscapePolicy;
  ratchet_sandbox?: SandboxLevel | null;
  results?: string;
  sandbox?: SandboxLevel | null;
  serial_packages?: string[];
  test_names?: boolean;
}

/** The answer of a runner (a machine that works for the daemon) to a call of the daemon: the result, or the error that prevented it. */
export interface RunnerCallResult {
  call: number;
  error?: string | null;
  fault?: SetupFault | null;
  gave?: unknown;
  runner: RunnerName;
  session: number;
}

/** A call of the daemon to a runner. */
export interface RunnerCallView {
  ask: unknown;
  id: number;
}

/** Asks for the calls (requests of the daemon to a runner) that came after the call with number `after`. */
export interface RunnerCalls {
  after?: number;
  runner: RunnerName;
  session: number;
  wait_ms?: number;
}

/** a checked name: RunnerName */
export type RunnerName = string;

/** Selects a runner (a machine that works for the daemon) by its name. */
export interface RunnerNameInput {
  name: RunnerName;
}

/** Output of an attempt's program that runs on a runner (a machine that works for the daemon). */
export interface RunnerOutput {
  attempt: AttemptId;
  runner: RunnerName;
  session: number;
  words: unknown;
}

/** Identifies a runner (a machine that works for the daemon), with the session number that the runner got when it registered. */
export interface RunnerSession {
  runner: RunnerName;
  session: number;
}

/** The daemon's answer to a runner that registers: its session number, and the attempts that belong to it. */
export interface RunnerSessionView {
  attempts: AttemptId[];
  session: number;
}

/** The state of a runner as the daemon sees it, which decides whether the runner gets work. */
export type RunnerState = 'up' | 'draining' | 'offline' | 'lost';

/** A runner: a process on another machine that executes attempts for this daemon. */
export interface RunnerView {
  agents: AgentName[];
  at: DisplayState;
  labels: string[];
  max_tasks: number;
  name: RunnerName;
  running: number;
  seen_wall: number;
  since_wall: number;
  state: RunnerState;
  version: string;
  word: string;
}

/** The way in which Regatta starts an agent's program and talks to it. */
export type Runtime = {
  runtime: 'scripted';
} | {
  argv: string[];
  runtime: 'command';
} | {
  argv: string[];
  runtime: 'acp';
} | {
  argv: string[];
  runtime: 'claude';
} | {
  app_server: boolean;
  argv: string[];
  runtime: 'codex';
} | {
  runtime: 'outside';
};

/** The name of a runtime: the way in which Regatta drives an agent's program. */
export type RuntimeName = 'scripted' | 'command' | 'acp' | 'claude' | 'codex' | 'codex_server' | 'outside';

/** The strictness of the sandbox in which an agent's program runs. */
export type SandboxLevel = 'strict' | 'workspace' | 'off';

/** A change or needed work outside a task's files, with the attempt and agent that found it. */
export interface ScopeEscape {
  attempt: AttemptId;
  finding: string;
  found: EscapeSource;
  suggested_files: string[];
  wall: number;
  worker: AgentName;
}

export interface ScopeReport {
  attempt: AttemptId;
  finding: string;
  suggested_files?: string[];
  task: TaskId;
  token: number;
}

/** The source from which Regatta reads a secret when it starts an agent's program. */
export type SecretSource = {
  env: string;
} | {
  file: string;
} | {
  command: string;
};

/** A secret, such as an API key, that the agent's program gets in an environment variable. */
export interface SecretVariable {
  from: SecretSource;
  name: string;
}

/** A comment on lines of a change that a person has sent to the task's agent. */
export interface SentCommentView {
  answer: string | null;
  attempt: AttemptId | null;
  from: number;
  line: number;
  old: boolean;
  path: string;
  text: string;
}

/** A part of the sentence that summarizes the fleet (everything that the daemon manages) at the top of the page. */
export interface SentencePart {
  strong: boolean;
  text: string;
  to?: string;
}

/** An outside service in which people can talk to agents. */
export type Service = 'slack' | 'github' | 'linear' | 'telegram';

/** Marks an attempt that is the session of a team member, and names the member and the launch. */
export interface SessionOf {
  launch: LaunchId;
  member: MemberName;
}

/** The state of the session of a supervised attempt's program: the prompts for it, and its reports of usage, limits and turns. */
export interface SessionState {
  cancels: number;
  closing: boolean;
  context: [number, number] | null;
  heard: number;
  held: string | null;
  in_turn: boolean;
  last: TurnEnd | null;
  limited: [number | null, string] | null;
  model: string | null;
  plan: PlanEntry[];
  rotating?: number;
  session: string | null;
  sessions: ([string | null, Usage])[];
  tells: string[];
  turns: number;
}

/** A request to pause a task or to end its pause. */
export type SetPause = {
  because: string;
} | 'no';

/** A project's settings file that cannot be applied, with the error. */
export interface SettingsFileFault {
  project: ProjectName;
  why: string;
}

/** A conflicting path that was resolved by taking the version of the task that owns the file. */
export interface SettledPath {
  is_trunks: boolean;
  path: string;
}

/** The part of the setup that prevented a program from starting. */
export type SetupFault = 'agent' | 'task';

/** Another attempt (run of an agent on a task) in the same project that is running. */
export interface SiblingAttemptView {
  agent: AgentName;
  attempt: AttemptId;
  files: PathPattern[];
  progress: string;
  subject: string;
  task: TaskId;
}

/** A one-time sign-in with which a browser can open the web page. */
export interface SignInView {
  code: string;
  lasts_ms: number;
  url: string;
}

/** The time until which an inbox item is hidden, as two clocks measure it. */
export interface Snooze {
  until_at: number;
  until_wall: number;
}

/** A changed path that is not a plain file before the change, after it, or both. */
export interface SpecialFile {
  after?: FileKind;
  before?: FileKind;
  path: string;
  target?: string;
  unpublished?: boolean;
}

/** An amount that was spent: tokens and money, turns, attempts and running time. */
export interface Spend {
  attempts: number;
  turns: number;
  usage: Usage;
  wall_ms: number;
}

/** The results that were achieved with the money that was spent. */
export interface SpendResultsView {
  dropped_tasks: number;
  each?: number;
  failed_attempts: number;
  landed: CostSum;
  lines?: LandedLinesView;
  wasted: CostSum;
}

/** A rule about all work of a project, from a section `[[rule]]`. */
export interface StandingRule {
  action?: RuleAction;
  files?: PathPattern[];
  name?: string;
  pattern?: string | null;
  says?: string;
  types?: IssueType[];
}

/** One of the six conditions that are checked before an attempt starts. */
export type StartGate = 'base_sync' | 'file_manifest' | 'dependency_graph' | 'misalignment_breaker' | 'wave_cap' | 'base_ancestry';

/** The rule for when a mission's tasks may start. */
export type StartMode = 'flow' | 'waves';

export interface StartTeam {
  left_out?: MemberName[];
  team: TeamName;
  wait_ms?: number;
}

/** A number of tasks or agents in one state. */
export interface StateCount {
  at: DisplayState;
  count: number;
}

/** The number of a provider's agents that were in each state, minute by minute. */
export interface StateSharesView {
  lanes: number;
  minutes: [number, number[]][];
  provider: string;
}

/** A summary of everything that the daemon manages. */
export interface StatusView {
  agents: AgentView[];
  completed: number;
  config_faults?: SettingsFileFault[];
  failed: number;
  landing: number;
  missions: MissionId[];
  needs_you: number;
  progress: MissionProgress[];
  projects: ProjectView[];
  summary: FleetSummary;
  tasks: TaskView[];
  unreadable?: UnreadableRowView[];
  url: string;
  waiting: number;
  working: number;
}

export interface StopInput {
  again?: boolean;
  drain?: boolean;
  id?: string | null;
}

/** The reason why a turn ended. */
export type StopReason = 'max_tokens' | 'max_turns' | 'refusal' | 'cancelled' | 'end_turn' | 'error';

export interface StopTeam {
  reason?: string;
  team: TeamName;
  wait_ms?: number;
}

/** The answer of the verb `check`. */
export type StoreIsSound = 'ok';

/** The part of a team that shares one store, that is, the data files of a provider's programs. */
export type StoreScope = 'lane' | 'team';

/** An attempt's finished work, as a commit that Regatta keeps in its own git repository for the project. */
export interface Submission {
  attempt: AttemptId;
  base: CommitId;
  changed: string[];
  commit: CommitId;
  reverts?: boolean;
  special?: SpecialFile[];
  undoes?: TaskId;
}

export interface TaskAdd {
  alias?: string | null;
  assign?: AgentName | null;
  backlog?: boolean;
  blocked_by?: TaskId[];
  description?: string;
  effort?: string | null;
  expects?: Expects;
  files?: PathPattern[];
  how?: AssignMode;
  issue_type?: IssueType;
  priority?: number;
  project?: ProjectName | null;
  provider?: string | null;
  ratchet?: string[] | null;
  script?: unknown;
  subject: string;
  validation?: ValidationInput;
}

export interface TaskAssign {
  how?: AssignMode;
  task: TaskId;
  to?: AgentName | null;
}

/** A task with only its most important fields. */
export interface TaskBriefView {
  agent: AgentName | null;
  files: PathPattern[];
  subject: string;
  task: TaskId;
  word: string;
}

export interface TaskCancel {
  reason?: string | null;
  task: TaskId;
}

export interface TaskFail {
  attempt: AttemptId;
  reason?: string | null;
  task: TaskId;
  token: number;
}

export interface TaskFinish {
  attempt: AttemptId;
  learnings?: string[];
  not_needed?: boolean;
  output?: string | null;
  task: TaskId;
  token: number;
}

/** An entry of a task's history: something that happened in one of the task's attempts. */
export interface TaskHistoryView {
  attempt: AttemptId;
  failed_check?: boolean;
  text: string;
  wall: number;
}

/** a task id */
export type TaskId = string;

export interface TaskList {
  all?: boolean;
  limit?: number;
  mission?: string | null;
  project?: ProjectName | null;
  status?: TaskStatus[];
}

/** A row of the page's list of tasks. */
export interface TaskListRow {
  added?: number;
  agent: AgentName | null;
  at: DisplayState;
  blocked_by: TaskId[];
  commit?: string;
  id: TaskId;
  micro_usd?: number;
  mission: MissionId | null;
  priority: number;
  project: ProjectName;
  rank: number;
  removed?: number;
  since_wall: number;
  subject: string;
  text: string;
  wave: number;
  word: string;
}

/** A task with all details, for the task's own page. */
export interface TaskPage {
  actions: PageAction[];
  activity?: ProgramActivity;
  agent?: AgentName;
  alias?: string;
  asks?: ApprovalId;
  asleep?: boolean;
  assignee?: AgentName;
  at: DisplayState;
  attempt?: AttemptId;
  attempts?: Attempt[];
  blocked_by: TaskId[];
  branch: string;
  check_count: number;
  checklist: LandingCondition[];
  conflicts?: string[];
  created_wall: number;
  description: string;
  effort?: string;
  escapes?: ScopeEscape[];
  failures: number;
  files: PathPattern[];
  fixup?: Fixup;
  fixups?: number;
  gates?: GateResult[];
  heard_wall?: number;
  id: TaskId;
  issue_type: IssueType;
  landed?: CommitId;
  landing?: LandingId;
  last_cause?: AttemptCause;
  life?: TaskTimeline;
  live?: string;
  log: AttemptId | null;
  mission?: MissionId;
  mission_title?: string;
  model?: string;
  needs?: WaitKind;
  not_before?: number;
  notes?: string[];
  now_as?: CommitId;
  offer_until?: number;
  output?: string;
  paused?: string;
  plan?: boolean;
  priority: number;
  progress: string;
  project: ProjectName;
  provider?: string;
  purpose?: Purpose;
  quiet_wall?: number;
  rank: number;
  ratchet?: string[];
  reason?: string;
  resume?: ResumePoint;
  reviewed?: CommitId;
  running: string;
  script?: string;
  settled_conflicts?: string[];
  shares_commit?: boolean;
  snoozed?: Snooze;
  spent?: Spend;
  status: TaskStatus;
  sub_wave?: number;
  subject: string;
  submission?: Submission;
  time: LaneBar[];
  tries: Attempt[];
  unanswered?: boolean;
  undone_by?: TaskId;
  updated_wall: number;
  validation: Validation;
  waits: WaitReason[];
  wanted: string;
  warnings?: string[];
  wave: number;
  word: string;
  workspace?: string;
}

export interface TaskPoll {
  agent: AgentName;
  by_hand?: boolean;
  lease_ms?: number | null;
  project?: ProjectName | null;
  wait_ms?: number;
  workspace?: boolean;
}

export interface TaskProgress {
  attempt: AttemptId;
  task: TaskId;
  text: string;
  token: number;
}

/** A task as one row of a list. */
export interface TaskRowView {
  agent: AgentName | null;
  at: DisplayState;
  blocked_by: TaskId[];
  id: TaskId;
  micro_usd?: number;
  mission: MissionId | null;
  priority: number;
  project: ProjectName;
  rank: number;
  since_wall: number;
  subject: string;
  text: string;
  wave: number;
  word: string;
}

export interface TaskSet {
  edit: EditTask;
  script?: unknown;
  task: TaskId;
}

/** The status of a task, from the backlog to its end. */
export type TaskStatus = 'backlog' | 'unassigned' | 'offered' | 'pending' | 'in_progress' | 'validating' | 'in_review' | 'landing' | 'completed' | 'failed' | 'cancelled' | 'needs_human';

/** All activities of a task since it was added, as intervals and totals. */
export interface TaskTimeline {
  left_out?: number;
  stretches: ActivityInterval[];
  sums: ActivityTotal[];
}

/** A task with its status in one word and the reasons why it waits. */
export interface TaskView {
  activity?: ProgramActivity;
  agent?: AgentName;
  alias?: string;
  asks?: ApprovalId;
  asleep?: boolean;
  assignee?: AgentName;
  at: DisplayState;
  attempt?: AttemptId;
  attempts?: Attempt[];
  blocked_by: TaskId[];
  conflicts?: string[];
  created_wall: number;
  description: string;
  effort?: string;
  escapes?: ScopeEscape[];
  failures: number;
  files: PathPattern[];
  fixup?: Fixup;
  fixups?: number;
  gates?: GateResult[];
  heard_wall?: number;
  id: TaskId;
  issue_type: IssueType;
  landed?: CommitId;
  landing?: LandingId;
  last_cause?: AttemptCause;
  life?: TaskTimeline;
  live?: string;
  mission?: MissionId;
  model?: string;
  needs?: WaitKind;
  not_before?: number;
  notes?: string[];
  now_as?: CommitId;
  offer_until?: number;
  output?: string;
  paused?: string;
  priority: number;
  progress: string;
  project: ProjectName;
  provider?: string;
  purpose?: Purpose;
  quiet_wall?: number;
  rank: number;
  ratchet?: string[];
  reason?: string;
  resume?: ResumePoint;
  reviewed?: CommitId;
  script?: string;
  settled_conflicts?: string[];
  shares_commit?: boolean;
  snoozed?: Snooze;
  spent?: Spend;
  status: TaskStatus;
  sub_wave?: number;
  subject: string;
  submission?: Submission;
  tries?: number;
  unanswered?: boolean;
  undone_by?: TaskId;
  updated_wall: number;
  validation: Validation;
  waits: WaitReason[];
  warnings?: string[];
  wave: number;
  word: string;
  workspace?: string;
}

/** A window of the page's list of tasks. */
export interface TaskWindow {
  all: number;
  counts: StateCount[];
  is_counting: boolean;
  micro_usd?: number;
  missions: MissionTitle[];
  needs_you: number;
  offset: number;
  revision: number;
  rows: TaskListRow[];
  total: number;
  unlisted: number;
}

/** A team with the settings that a person asked for. */
export interface Team {
  again?: boolean;
  created_wall: number;
  deleted_wall?: number;
  environments: Record<string, TeamEnvironment>;
  launch?: LaunchId;
  lead: TeamMember;
  members: TeamMember[];
  name: TeamName;
  project: ProjectName;
  updated_wall: number;
  [other: string]: unknown;
}

/** The content of a team's backup file: its settings and the record of its latest launch. */
export interface TeamBackup {
  launch?: TeamLaunchInput | null;
  team: TeamInput;
  [other: string]: unknown;
}

/** The content of a team's backup file: its settings and the record of its latest launch. */
export interface TeamBackupData {
  launch?: TeamLaunch;
  team: Team;
  [other: string]: unknown;
}

export interface TeamEdit {
  edit: EditTeam;
  team: TeamName;
}

/** Settings with which members' programs are started: variables, keys, arguments and access rights. */
export interface TeamEnvironment {
  args: string[];
  confine?: SandboxLevel;
  egress?: string[];
  env: Record<string, string>;
  keys: SecretVariable[];
  mode?: string;
  read?: string[];
  write?: string[];
  [other: string]: unknown;
}

/** Settings with which members' programs are started: variables, keys, arguments and access rights. */
export interface TeamEnvironmentInput {
  args?: string[];
  confine?: SandboxLevel | null;
  egress?: string[];
  env?: Record<string, string>;
  keys?: SecretVariable[];
  mode?: string | null;
  read?: string[];
  write?: string[];
  [other: string]: unknown;
}

/** Selects which teams to list. */
export interface TeamFilter {
  deleted?: boolean;
}

/** A team with the settings that a person asked for. */
export interface TeamInput {
  again?: boolean;
  created_wall: number;
  deleted_wall?: number | null;
  environments?: Record<string, TeamEnvironmentInput>;
  launch?: LaunchId | null;
  lead: TeamMemberInput;
  members?: TeamMemberInput[];
  name: TeamName;
  project: ProjectName;
  updated_wall: number;
  [other: string]: unknown;
}

/** The record of one start of a team, with the state of each member. */
export interface TeamLaunch {
  begun_wall: number;
  bootstrap_expected_members: MemberName[];
  expected_members: MemberName[];
  id: LaunchId;
  lanes: Lane[];
  members: LaunchEntry[];
  project: ProjectName;
  reconciled_wall?: number;
  revision: number;
  stopping?: string;
  superseded?: boolean;
  team: TeamName;
  told?: string;
  updated_wall: number;
  [other: string]: unknown;
}

/** The record of one start of a team, with the state of each member. */
export interface TeamLaunchInput {
  begun_wall: number;
  bootstrap_expected_members?: MemberName[];
  expected_members: MemberName[];
  id: LaunchId;
  lanes?: Lane[];
  members: LaunchEntryInput[];
  project: ProjectName;
  reconciled_wall?: number | null;
  revision?: number;
  stopping?: string | null;
  superseded?: boolean;
  team: TeamName;
  told?: string | null;
  updated_wall?: number;
  [other: string]: unknown;
}

/** The settings of a team's member or lead, as a person wrote them. */
export interface TeamMember {
  backend?: string;
  cwd?: string;
  effort?: string;
  environment?: string;
  fast_mode?: boolean;
  isolation?: MemberIsolation;
  max_tasks?: number;
  model?: string;
  name: MemberName;
  provider?: string;
  role?: string;
  script?: string;
  workflow?: string;
  [other: string]: unknown;
}

/** The settings of a team's member or lead, as a person wrote them. */
export interface TeamMemberInput {
  backend?: string | null;
  cwd?: string | null;
  effort?: string | null;
  environment?: string | null;
  fast_mode?: boolean | null;
  isolation?: MemberIsolation | null;
  max_tasks?: number | null;
  model?: string | null;
  name: MemberName;
  provider?: string | null;
  role?: string | null;
  script?: string | null;
  workflow?: string | null;
  [other: string]: unknown;
}

/** a checked name: TeamName */
export type TeamName = string;

export interface TeamNameInput {
  team: TeamName;
}

/** A team with three states, and with the actions on the team. */
export interface TeamPage {
  actions: PageAction[];
  desired: Team;
  each: [MemberName, PageAction[]][];
  history?: TeamLaunch[];
  live: MemberLiveView[];
  resolved?: TeamLaunch;
  summary: TeamSummary;
  up: boolean;
}

/** The state of a team in a few values and one sentence, for lists and pages. */
export interface TeamSummary {
  alive: number;
  degraded?: string;
  deleted?: boolean;
  expected: number;
  launch?: LaunchId;
  members: MemberSummary[];
  mixed: boolean;
  outcome?: LaunchOutcome;
  phase?: LaunchPhase;
  project: ProjectName;
  revision: number;
  said: string;
  team: TeamName;
}

/** A team with all details: the summary as in the list of teams, the request of a person (`desired`), the decision of the planner (`resolved`), and the programs that run (`live`). */
export interface TeamView {
  desired: Team;
  history?: TeamLaunch[];
  live: MemberLiveView[];
  resolved?: TeamLaunch;
  summary: TeamSummary;
  up: boolean;
}

/** The receiver of a message that a person sent to the agent on a task. */
export interface TellView {
  attempt: AttemptId | null;
  task: TaskId;
}

/** One post in the thread of a conversation. */
export type ThreadPost = {
  answer?: string;
  begun?: boolean;
  dead?: string;
  n: number;
  refs?: string[];
  shown: number;
  stage: number;
} & ({
  source: string;
  what: 'seen';
} | {
  turn: number;
  what: 'turn';
} | {
  ahead: number;
  turn: number;
  what: 'queued';
} | {
  approval: ApprovalId;
  what: 'ask';
} | {
  text: string;
  tone: NoteTone;
  what: 'note';
} | {
  what: 'pull';
});

/** Today's cost of all agents. */
export interface TodaySpendView {
  bands?: ProviderBand[];
  cap: number | null;
  forecast?: CapForecast;
  line: [number, number][];
  text: string;
  today: Spend;
}

export interface TokenAdd {
  expires_ms?: number | null;
  name: string;
  scope: TokenScope;
}

export interface TokenNameInput {
  name: string;
}

/** The scope of an access token: the kind of holder for whom the token was created. */
export type TokenScope = 'admin' | 'operator' | 'viewer' | 'runner' | 'attempt' | 'lead';

/** An access token as a list shows it. */
export interface TokenView {
  expired: boolean;
  expires_wall: number | null;
  made_wall: number;
  name: string;
  scope: TokenScope;
}

/** A tool call of the model. */
export interface ToolCall {
  arguments?: string;
  command?: string;
  id: string;
  is_cut?: boolean;
  kind: ToolKind;
  output?: string;
  paths?: string[];
  status: ToolStatus;
  title: string;
  urls?: string[];
}

/** The kind of a tool call, with the names of the Agent Client Protocol. */
export type ToolKind = 'read' | 'edit' | 'delete' | 'move' | 'search' | 'execute' | 'think' | 'fetch' | 'switch_mode' | 'other';

/** The progress of a tool call of the model. */
export type ToolStatus = 'pending' | 'in_progress' | 'completed' | 'failed';

/** One entry of a transcript: a tool call, a message and so on. */
export interface TranscriptEntryView {
  class: string;
  html: string;
  is_open: boolean;
  number: number;
}

/** A line of a transcript that contains a text. */
export interface TranscriptHitView {
  entry: number;
  line?: number;
}

/** Lines of one entry of a transcript. */
export interface TranscriptLinesView {
  html: string;
  total: number;
}

export interface TranscriptQuery {
  attempt: AttemptId;
  from?: number;
  limit?: number;
}

/** The lines of a transcript that contain a text. */
export interface TranscriptSearchView {
  hits: TranscriptHitView[];
  is_complete: boolean;
  total: number;
}

/** Entries of an attempt's transcript, which are the rows of the page's log. */
export interface TranscriptWindowView {
  entries: TranscriptEntryView[];
  failures: number[];
  is_complete: boolean;
  records: number;
  total: number;
  version: number;
}

/** The treatment of a person's message that is not a command such as `!mission`. */
export type TriagePolicy = 'agent' | 'task' | 'off';

/** The end of a turn (one prompt and the work that follows): the reason, and details for people. */
export interface TurnEnd {
  class: FailureClass | null;
  detail: string;
  stop: StopReason;
}

/** The progress of a turn. */
export type TurnState = 'working' | 'done' | 'failed' | 'stopped' | 'queued';

/** The changes that a turn made in the repository. */
export interface TurnWork {
  base: CommitId;
  branch: string;
  changed: string[];
  checks?: string;
  commit: CommitId;
  count: number;
}

/** The treatment of finished work whose agent continued with an assumption because nobody answered its question in time. */
export type UnansweredPolicy = 'wait' | 'land';

/** Landed work that could not yet be pushed to the remote that the setting `push` names. */
export interface Unpushed {
  commit: CommitId;
  reason: string;
  remote: string;
  since_wall: number;
}

/** The number of messages in one channel that an agent has not read. */
export interface UnreadView {
  channel: ChannelName;
  mentions: number;
  read: MessageId;
  unread: number;
}

/** A row of the database that cannot be read, with the error. */
export interface UnreadableRowView {
  id: string;
  table: string;
  why: string;
}

/** scheme://path, with *, ? and ** where the scheme takes patterns */
export type Uri = string;

export interface UrisInput {
  uris: Uri[];
}

/** Tokens and cost of one session of an agent's program, summed since the session began. */
export interface Usage {
  cache_write: number;
  cached_input: number;
  input: number;
  micro_usd?: number;
  output: number;
}

/** The checks that a task's finished work must pass: files that must exist or contain a text, and commands that must succeed. */
export interface Validation {
  content_check: ContentCheck[];
  files_exist: string[];
  lint: string[];
  tests: string[];
}

/** The checks that a task's finished work must pass: files that must exist or contain a text, and commands that must succeed. */
export interface ValidationInput {
  content_check?: ContentCheck[];
  files_exist?: string[];
  lint?: string[];
  tests?: string[];
}

/** The commits that are tested by themselves before they become part of the trunk. */
export type VerifyMode = 'every' | 'tip';

/** a wait id */
export type WaitId = string;

/** The kinds of reasons why a task can wait. */
export type WaitKind = 'dep' | 'claim' | 'slot' | 'machine' | 'gate' | 'wave' | 'lane' | 'rate_limit' | 'budget' | 'policy' | 'review' | 'question' | 'permission' | 'queue' | 'conflict' | 'provider' | 'runner' | 'backoff' | 'offer' | 'lead' | 'disk' | 'paused';

/** One reason why a task waits: its kind, and a sentence for people. */
export interface WaitReason {
  kind: WaitKind;
  text: string;
}

/** A trigger that waits until the URI that the hook claims is free. */
export interface WaitingTrigger {
  cause: FiringCause;
  depth: number;
}

/** The explanation why a task waits. */
export interface WhyView {
  clear?: WaitReason[];
  commands?: string[];
  past: TaskHistoryView[];
  task: TaskView;
}

/** Resources that a running attempt or a landing (work that is being merged) holds automatically. */
export interface WorkClaimView {
  owner: ClaimOwner;
  uris: Uri[];
}

/** The short result that a worker reports at the end. */
export interface WorkResult {
  artifacts: string[];
  detail: string;
  issue_id: string;
  kept_at?: string;
  learnings?: string[];
  status: ResultStatus;
  type: string;
  worktree_path?: string;
}

/** Settings of the section `[workspace]`: how the working trees of attempts are prepared. */
export interface WorkspaceSettings {
  copy?: PathPattern[];
  disk_mb?: number | null;
  pool?: number;
  port_range?: [number, number];
  ports?: number;
  setup?: string[];
  setup_timeout?: Millis;
  sparse?: string[];
}

/** The input of each verb, and the data of its answer. */
export interface Verbs {
  'agent.add': { input: AgentAddInput; answer: AgentView };
  'agent.close': { input: AgentClose; answer: AgentView };
  'agent.list': { input: EmptyInput; answer: AgentView[] };
  'agent.rm': { input: AgentNameInput; answer: Done };
  'attempt.answer': { input: AttemptAnswer; answer: AttemptRequestView };
  'attempt.ask': { input: AttemptAsk; answer: AttemptRequestView };
  'attempt.checks': { input: AttemptChecksInput; answer: CheckResultView[] };
  'attempt.transcript': { input: TranscriptQuery; answer: JournalRecordView[] };
  'audit': { input: AuditQuery; answer: AuditLineView[] };
  'backup': { input: FileInput; answer: string };
  'bridge.list': { input: EmptyInput; answer: BridgeView[] };
  'bridge.pause': { input: BridgePause; answer: BridgeView[] };
  'briefing': { input: AttemptIdInput; answer: BriefingView };
  'budget.list': { input: BudgetListInput; answer: BudgetsView };
  'budget.set': { input: BudgetSet; answer: BudgetsView };
  'check': { input: EmptyInput; answer: StoreIsSound };
  'claim.acquire': { input: ClaimAcquire; answer: GrantedClaim };
  'claim.check': { input: UrisInput; answer: ClaimCheckView };
  'claim.list': { input: EmptyInput; answer: ClaimsView };
  'claim.release': { input: HeldClaimInput; answer: Done };
  'claim.renew': { input: HeldClaimInput; answer: GrantedClaim };
  'conversation.accept': { input: ConversationIdInput; answer: Conversation };
  'conversation.close': { input: ConversationIdInput; answer: Conversation };
  'conversation.list': { input: ConversationFilter; answer: ConversationLineView[] };
  'conversation.refuse': { input: ConversationIdInput; answer: Conversation };
  'conversation.show': { input: ConversationIdInput; answer: Conversation };
  'conversation.stop': { input: ConversationIdInput; answer: Conversation };
  'cost': { input: CostQuery; answer: CostView };
  'diff': { input: DiffInput; answer: DiffView };
  'doctor': { input: EmptyInput; answer: DoctorView };
  'down': { input: DownInput; answer: number };
  'drop': { input: IdWithText; answer: TaskView };
  'graph': { input: GraphInput; answer: GraphView };
  'guide': { input: GuideQuery; answer: GuideView[] };
  'hook.add': { input: HookAdd; answer: HookView };
  'hook.list': { input: EmptyInput; answer: HookView[] };
  'hook.log': { input: HookLog; answer: Firing[] };
  'hook.pause': { input: HookPause; answer: HookView };
  'hook.resume': { input: HookIdInput; answer: HookView };
  'hook.rm': { input: HookIdInput; answer: Done };
  'hook.test': { input: HookTest; answer: HookTestView };
  'inbox.answer': { input: InboxAnswer; answer: InboxDecisionView };
  'inbox.list': { input: ProjectFilter; answer: InboxView[] };
  'inbox.snooze': { input: InboxSnooze; answer: InboxView | null };
  'land': { input: LandInput; answer: TaskView };
  'limits.set': { input: LimitsSet; answer: Done };
  'limits.show': { input: EmptyInput; answer: MachineLimits };
  'mission.adopt': { input: MissionAdopt; answer: TaskView };
  'mission.ask': { input: MissionAsk; answer: MissionView };
  'mission.cancel': { input: IdWithText; answer: MissionView };
  'mission.compare': { input: MissionCompare; answer: MissionFiguresView[] };
  'mission.finish': { input: MissionFinish; answer: Done };
  'mission.handover': { input: MissionHandover; answer: MissionView };
  'mission.list': { input: ProjectFilter; answer: MissionLineView[] };
  'mission.replay': { input: MissionReplay; answer: ReplayView };
  'mission.show': { input: IdInput; answer: MissionView };
  'mission.start': { input: MissionStart; answer: MissionView };
  'msg.attachment': { input: MsgAttachment; answer: AttachmentView };
  'msg.history': { input: MsgHistory; answer: Message[] };
  'msg.inbox': { input: MsgInbox; answer: UnreadView[] };
  'msg.read': { input: MsgRead; answer: Message[] };
  'msg.send': { input: MsgSend; answer: Message };
  'msg.wait': { input: MsgWait; answer: Message };
  'name': { input: NameQuery; answer: AgentName | null | AgentName[] };
  'open': { input: EmptyInput; answer: SignInView };
  'pause': { input: IdWithText; answer: TaskView };
  'plan.ask': { input: PlanAsk; answer: PlanView };
  'plan.draw': { input: PlanDraw; answer: PlanView };
  'plan.show': { input: PlanShow; answer: PlanView };
  'policy.add': { input: PolicyAdd; answer: PolicyRule };
  'policy.list': { input: EmptyInput; answer: PolicyRule[] };
  'policy.rm': { input: RuleIdInput; answer: Done };
  'project.add': { input: ProjectAdd; answer: ProjectView };
  'project.list': { input: EmptyInput; answer: ProjectView[] };
  'project.rm': { input: ProjectNameInput; answer: Done };
  'queue': { input: ProjectFilter; answer: QueueView[] };
  'queue.accept': { input: ProjectFilter; answer: Done };
  'queue.hold': { input: QueueHoldInput; answer: Done };
  'queue.release': { input: ProjectFilter; answer: Done };
  'resume': { input: IdInput; answer: TaskView | AgentView | null | Done };
  'retry': { input: IdInput; answer: TaskView };
  'revise': { input: IdWithText; answer: TaskView };
  'route': { input: RouteInput; answer: Done };
  'rule.list': { input: ProjectFilter; answer: RuleView[] };
  'rule.test': { input: RuleTest; answer: RuleMatchView[] };
  'runner.answer': { input: RunnerCallResult; answer: Done };
  'runner.beat': { input: RunnerSession; answer: AttemptId[] };
  'runner.calls': { input: RunnerCalls; answer: RunnerCallView[] };
  'runner.copy': { input: JournalCopy; answer: number };
  'runner.drain': { input: RunnerNameInput; answer: AttemptId[] };
  'runner.leave': { input: RunnerSession; answer: Done };
  'runner.list': { input: EmptyInput; answer: RunnerView[] };
  'runner.register': { input: RegisterRunner; answer: RunnerSessionView };
  'runner.rm': { input: RunnerNameInput; answer: Done };
  'runner.said': { input: RunnerOutput; answer: boolean };
  'scope.follow': { input: IdInput; answer: TaskView };
  'scope.list': { input: ProjectFilter; answer: EscapeView[] };
  'scope.report': { input: ScopeReport; answer: EscapeView[] };
  'show': { input: IdInput; answer: TaskView | Attempt | AgentView | MissionView | Approval };
  'siblings': { input: AttemptIdInput; answer: SiblingAttemptView[] };
  'status': { input: ProjectFilter; answer: StatusView };
  'stop': { input: StopInput; answer: MissionId[] | TaskId[] | TaskView | FiringId };
  'takeover': { input: IdInput; answer: TaskView };
  'task.accept': { input: OfferReply; answer: TaskView };
  'task.add': { input: TaskAdd; answer: TaskView };
  'task.assign': { input: TaskAssign; answer: TaskView };
  'task.cancel': { input: TaskCancel; answer: TaskView };
  'task.explore': { input: IdInput; answer: TaskView };
  'task.fail': { input: TaskFail; answer: TaskView };
  'task.finish': { input: TaskFinish; answer: TaskView };
  'task.list': { input: TaskList; answer: TaskView[] };
  'task.poll': { input: TaskPoll; answer: GrantedAttempt | null };
  'task.progress': { input: TaskProgress; answer: TaskView };
  'task.reject': { input: OfferReply; answer: TaskView };
  'task.set': { input: TaskSet; answer: TaskView };
  'team.backup': { input: TeamNameInput; answer: TeamBackupData };
  'team.create': { input: CreateTeam; answer: TeamView };
  'team.delete': { input: TeamNameInput; answer: TeamView };
  'team.edit': { input: TeamEdit; answer: TeamView };
  'team.explain': { input: TeamNameInput; answer: string[] };
  'team.launch': { input: StartTeam; answer: TeamView };
  'team.list': { input: TeamFilter; answer: TeamSummary[] };
  'team.relaunch': { input: RelaunchTeam; answer: TeamView };
  'team.restore': { input: RestoreTeam; answer: TeamView };
  'team.retry': { input: RetryTeam; answer: TeamView };
  'team.show': { input: TeamNameInput; answer: TeamView };
  'team.stop': { input: StopTeam; answer: TeamView };
  'team.undelete': { input: TeamNameInput; answer: TeamView };
  'tell': { input: IdWithText; answer: TellView };
  'token.add': { input: TokenAdd; answer: NewTokenView };
  'token.list': { input: EmptyInput; answer: TokenView[] };
  'token.rm': { input: TokenNameInput; answer: Done };
  'undo': { input: IdInput; answer: TaskView };
  'why': { input: IdInput; answer: WhyView | AgentWhyView };
}

/** The entities of each topic of the live stream. */
export interface Topics {
  bars: LaneBarsView;
  conversations: ConversationPage;
  cost: CostPage;
  files: ProjectFilesView;
  graph: GraphView;
  head: FleetSummaryView;
  inbox: InboxItemView;
  lanes: AgentLaneView;
  mission: MissionPage;
  missions: MissionRowView;
  queue: QueuePage;
  runners: RunnerView;
  shares: StateSharesView;
  spend: TodaySpendView;
  task: TaskPage;
  tasks: TaskRowView;
  teams: TeamPage;
}
