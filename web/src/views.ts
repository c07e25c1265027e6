// The types of the entities that the daemon sends. The field names are those of regatta-api's page views. The page shows
// these values and computes no state itself.

export { type DisplayState, STATES } from './states';
import type { DisplayState, MemberActivity, MemberState } from './states';

export interface Action {
  label: string;
  verb: string;
  input: Record<string, unknown>;
  cli: string;
  first?: boolean;
  grave?: boolean;
  key?: string;
  words?: string;
  form?: Form;
  choice?: Choice;
  /** Called with the result after the call succeeded. Exists only in the page. */
  after?: (result: unknown) => void;
  /** The same action for the other items of a group. Exists only in the page. */
  also?: Action[];
}

/** Options of an action; `to` is the JSON pointer and `flag` the command-line flag for the chosen one. */
export interface Choice {
  label: string;
  to: string;
  flag: string;
  of: string[];
  now?: string;
}

/** The restricted JSON Schema that agents send. */
export interface Form {
  properties?: Record<string, { type?: string; title?: string; description?: string; enum?: string[]; oneOf?: { const: string; title?: string }[]; default?: unknown }>;
  required?: string[];
}

export interface Head {
  sentence: { text: string; strong: boolean; to?: string }[];
  needs_you: number;
  running: number;
  slots: number;
  agents: number;
  size: 'few' | 'some' | 'many';
  projects: { name: string; trunk: string; path: string }[];
  missions: { id: string; title: string; landed: number; tasks: number }[];
  version: string;
  /** The actions for new work, such as a plan, a mission or a task. The first one is the default. */
  composers: Action[];
  tasks: number;
}

export interface InboxItem {
  id: string;
  kind: string;
  /** Empty for items about an agent, a budget or a conversation. */
  task?: string | null;
  project?: string | null;
  agent: string | null;
  subject: string;
  why: string;
  since_wall: number;
  escalated: boolean;
  group: string;
  actions: Action[];
}

export interface Lane {
  agent: string;
  provider: string;
  at: DisplayState;
  /** The state in one word, which may be more specific than the word of `at`. */
  word: string;
  text: string;
  task: string | null;
  subject: string;
  since_wall: number;
  capacity: { current: number; max: number };
  wanted: string;
  running: string;
  context?: number;
  micro_usd?: number;
  actions: Action[];
}

export interface StateSpan {
  from: number;
  to?: number;
  at: DisplayState;
  task?: string;
  text?: string;
}

export interface LaneHistory {
  agent: string;
  bars: StateSpan[];
}

export interface ProviderHistory {
  provider: string;
  lanes: number;
  minutes: [number, number[]][];
}

export interface Landing {
  landing: string;
  task: string;
  subject: string;
  agent: string;
  position: number | null;
  state: string;
  at: DisplayState;
  detail: string;
  commit: string | null;
  files: string[];
  queued_wall: number;
  branch: string;
  conflicts: number;
  fixups: number;
}

/** Landings that are tested together in one trial. `cars` has their ids in merge order. */
export interface Batch {
  ride: 'moving' | 'passed' | 'testing' | 'searching' | 'queued' | 'behind' | 'held';
  state: string;
  at: DisplayState;
  cars: string[];
  on?: string;
  failed?: string;
}

export interface MergeQueue {
  project: string;
  trunk: string;
  held: { by: string; reason: string; wall: number } | null;
  trunk_differs?: string;
  unpushed?: { remote: string; commit: string; reason: string; since_wall: number };
  slots: number;
  queue: Landing[];
  batches: Batch[];
  recent: Landing[];
  tip: string | null;
  text: string;
  actions: Action[];
  each: [string, Action[]][];
  /** The expected landing time of each landing, from the durations of earlier ones. */
  expected: [string, number][];
}

export interface Usage {
  input: number;
  cached_input: number;
  cache_write: number;
  output: number;
  micro_usd?: number;
}

export interface Spend {
  usage: Usage;
  turns: number;
  attempts: number;
  wall_ms: number;
}

/** When the cap of the day is reached at the current rate. */
export type Forecast = { when: 'reached' } | { when: 'at'; wall: number } | { when: 'not_today' };

export interface DaySpend {
  today: Spend;
  cap: number | null;
  forecast?: Forecast;
  line: [number, number][];
  /** The cost per provider, most expensive first, with one sum per point of the line. */
  bands?: { name: string; micro_usd: number[] }[];
  text: string;
}

/** A total cost. `unpriced` is the number of tokens for which no program reported a price. */
export interface SpendSum {
  tasks: number;
  spent: Spend;
  unpriced?: number;
  rate?: number;
}

export interface CostRow extends SpendSum {
  name: string;
  about?: string;
}

export interface CostTable {
  by: 'provider' | 'mission' | 'agent' | 'model';
  rows: CostRow[];
}

export interface Cost {
  days: number;
  since_wall: number;
  tables: CostTable[];
  total: SpendSum;
  cap?: number;
  forecast?: Forecast;
  came: {
    landed: SpendSum;
    each?: number;
    wasted: SpendSum;
    failed_attempts: number;
    dropped_tasks: number;
    lines?: { tasks: number; lines: number; tokens_each: number };
  };
  budgets?: { scope: unknown; ceiling: Record<string, number>; spent: Spend | null }[];
}

export interface TaskSummary {
  id: string;
  project: string;
  mission: string | null;
  subject: string;
  word: string;
  at: DisplayState;
  /** The position in lists, the most urgent first. */
  rank: number;
  agent: string | null;
  text: string;
  since_wall: number;
  blocked_by: string[];
  wave: number;
  priority: number;
  micro_usd?: number;
}

/** The layout of the task graph, with waves as columns. Edges refer to nodes by index; `through` lists the cells of an
 * edge as column and row. */
export interface Graph {
  title: string;
  text: string;
  tasks: number;
  columns: number;
  rows: number;
  nodes: { column: number; row: number; tasks: string[]; label: string; word: string; at: DisplayState; agent?: string; needs?: string[]; critical: boolean }[];
  edges: { from: number; to: number; through: [number, number][]; critical: boolean }[];
  critical: string[];
}

export interface TaskPage {
  id: string;
  project: string;
  subject: string;
  description: string;
  word: string;
  at: DisplayState;
  waits: { kind: string; text: string }[];
  live?: string;
  agent: string | null;
  blocked_by: string[];
  files: string[];
  progress: string;
  reason: string | null;
  spent?: Spend;
  mission: string | null;
  submission: { commit: string; base: string; changed: string[] } | null;
  /** The commit that a person reviewed last and sent back. */
  reviewed?: string;
  landed: string | null;
  gates?: { gate: string; says: string; reason: string }[];
  warnings?: string[];
  updated_wall: number;
  checklist: { good: boolean | null; text: string }[];
  time: StateSpan[];
  tries: { id: string; agent: string; started_wall: number; ended: { cause: string; detail: string; wall: number } | null }[];
  log: string | null;
  wanted: string;
  running: string;
  branch: string;
  /** Whether the task's report is a plan. */
  plan?: boolean;
  actions: Action[];
}

export interface ClaimHolder {
  owner: string;
  task: string | null;
  agent: string | null;
  since_wall: number;
  until_wall?: number;
  until?: string;
  memo: string;
}

/** A path or a pattern. `clash` lists tasks that conflict there, and `hot` is the number of changes that landed today. */
export interface FileEntry {
  path: string;
  held: ClaimHolder[];
  wanted: string[];
  hot: number;
  clash: string[];
}

export interface FolderHolder {
  holder: string;
  task: string | null;
  spots: number;
  until_wall?: number;
  until?: string;
}

/** A folder with totals of everything below it. `own` are the files directly in it. */
export interface Folder {
  path: string;
  depth: number;
  spots: number;
  held: FolderHolder[];
  wanted: number;
  hot: number;
  clashes: number;
  clash: string[];
  own: FileEntry[];
}

export interface Files {
  project: string;
  folders: Folder[];
  text: string;
  radar: { collisions: { one: string; other: string | null; paths: string[]; since_wall: number }[]; warned: number; proved: number; lapsed: number };
}

export interface Identity {
  provider?: string;
  backend?: string;
  model?: string;
  effort?: string;
}

export interface Launch {
  id: string;
  lanes: { id: string; kind: string; owner: string; members: string[] }[];
  members: { name: string; state: MemberState; lane?: { id: string; kind: string }; asked: Identity; got: Identity; notes?: string[] }[];
  begun_wall: number;
}

export interface Team {
  summary: { said: string; degraded?: string; members: { name: string; lead?: boolean; lane?: string; provider: string; said: string }[] };
  desired: { name: string; lead: Identity & { name: string }; members: (Identity & { name: string })[] };
  resolved?: Launch;
  live: { name: string; live: MemberActivity; tasks?: string[] }[];
  history?: Launch[];
  actions: Action[];
  each: [string, Action[]][];
}

export interface Conversation {
  id: string;
  service: string;
  agent: string;
  project: string;
  title: string;
  url?: string;
  task?: string;
  word: string;
  at: DisplayState;
  turns: number;
  queued: number;
  last: string;
  unshown: number;
  dead: number;
  updated_wall: number;
  actions: Action[];
}

export interface Runner {
  name: string;
  state: string;
  labels: string[];
  agents: string[];
  running: number;
  max_tasks: number;
  version: string;
  since_wall: number;
  seen_wall: number;
}

export interface PlannedTask {
  task: { subject: string; description?: string; files?: string[]; assign?: string | null; [other: string]: unknown };
  /** Indexes of the blockers in the plan, starting at 0. */
  after: number[];
}

export interface Plan {
  project: string;
  title: string;
  goal?: string;
  task?: string;
  planner: string | null;
  state: 'planning' | 'ready' | 'unusable' | 'failed';
  text: string;
  tasks: PlannedTask[];
  waves: string[];
  owned: { file: string; owner: number; others: number[]; text: string }[];
  conflicts: number;
  warnings: string[];
  agents: string[];
  estimate: string;
  actions: Action[];
}
