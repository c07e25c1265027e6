// The setup: health, agents and their programs, budgets, limits, permissions, tokens, bridges and projects. What a verb
// can change has a form; for the rest the page shows the lines to write.

import { EmptyState, ShellLine } from '../components';
import { plain } from '../format';
import { topic } from '../live/client';
import { queryParam } from '../route';
import { Panel, Table, useTopics } from '../ui';
import { BridgesSection, PermissionsSection, TokensSection, bridgeState, ruleText } from './setup-access';
import { AgentsSection, ProgramsSection } from './setup-agents';
import { type Fetched, useCall } from './setup-call';
import { BudgetsSection, LimitsSection } from './setup-limits';
import type { DoctorCheck, DoctorView, ProjectView, RuleView } from '../api';
import './setup.css';

const LEVELS = { ok: ['✓', 'good', 'ok'], warn: ['!', 'late', 'warning'], bad: ['✕', 'bad', 'problem'] } as const;
const LEVEL_ORDER: DoctorCheck['level'][] = ['bad', 'warn', 'ok'];

/** Returns the number of problems and warnings as a text. */
export function healthText(checks: DoctorCheck[]): string {
  const count = (level: DoctorCheck['level'], noun: string) => {
    const found = checks.filter((check) => check.level === level).length;
    return found > 0 ? `${found} ${noun}${found === 1 ? '' : 's'}` : '';
  };
  return [count('bad', 'problem'), count('warn', 'warning')].filter(Boolean).join(', ') || 'no problems';
}

/** A fix: a command with a copy button, or a sentence. */
function Fix({ text }: { text: string }) {
  return /^(regatta|npm|pipx|git|apt|sudo|cargo) \S+[^;:]*$/.test(text) ? <ShellLine line={text} /> : <code>{plain(text, 300)}</code>;
}

/** The results of `regatta doctor` on the daemon's machine, worst first. */
function HealthSection({ doctor }: { doctor: Fetched<DoctorView> }) {
  const checks = [...(doctor.data?.checks ?? [])].sort((a, b) => LEVEL_ORDER.indexOf(a.level) - LEVEL_ORDER.indexOf(b.level));
  return (
    <Panel
      title="Health"
      aside={
        <>
          <span class="aside">{doctor.data && `${healthText(checks)} in ${checks.length} checks`}</span>
          <button type="button" class="do" onClick={doctor.reload}>
            Check again
          </button>
          <ShellLine line="regatta doctor" />
        </>
      }
    >
      {doctor.problem && <p class="error">{doctor.problem}</p>}
      {!doctor.data && !doctor.problem && <p class="empty">loading…</p>}
      <ul class="checklist">
        {checks.map((check, index) => (
          <li key={`${check.id}${index}`} data-row tabIndex={0}>
            <span class={LEVELS[check.level][1]}>
              {LEVELS[check.level][0]} {LEVELS[check.level][2]}
            </span>
            <b>{plain(check.id, 80)}</b>
            <span>
              {plain(check.text, 300)}
              {check.fix && (
                <span class="fix">
                  <Fix text={check.fix} />
                </span>
              )}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function projectSettings(project: ProjectView): string {
  const commands = project.validation.map((command) => JSON.stringify(command)).join(', ');
  return `[project]\nname = ${JSON.stringify(project.name)}\ntrunk = ${JSON.stringify(project.trunk)}\n\n[validation]\ncommands = [${commands}]\n\n[landing]\nreview = "human"`;
}

function ProjectsSection({ projects, rules }: { projects: Fetched<ProjectView[]>; rules: Fetched<RuleView[]> }) {
  const first = projects.data?.[0];
  return (
    <>
      <Panel title="Projects" aside={<ShellLine line="regatta project list" />}>
        {projects.problem && <p class="error">{projects.problem}</p>}
        {projects.data?.length === 0 && (
          <EmptyState title="No projects yet" text="A project is a git repository whose work Regatta schedules, tests and lands.">
            <ShellLine line="cd REPOSITORY && regatta init" />
          </EmptyState>
        )}
        {projects.data && projects.data.length > 0 && (
          <Table heads={['Name', 'Trunk', 'Path', 'Checks', '>Open tasks']}>
            {projects.data.map((project) => (
              <tr key={project.name} data-row tabIndex={0}>
                <td class="name">{project.name}</td>
                <td class="mono">{plain(project.trunk, 80)}</td>
                <td class="mono">{plain(project.path, 200)}</td>
                <td class="mono">{project.validation.map((command) => plain(command, 120)).join(' && ') || <span class="late">! none</span>}</td>
                <td class="right">{project.open_tasks}</td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      {first && (
        <Panel title="Settings of a project" aside={<ShellLine line="regatta config show --origin" />}>
          <p class="intro">
            Settings of a project are in <code>regatta.toml</code> in its repository, so that they are reviewed like code. The daemon reads a change within a second. For example:
          </p>
          <pre class="snippet" tabIndex={0}>
            {plain(projectSettings(first), 1_000)}
          </pre>
        </Panel>
      )}
      <Panel title="Standing rules" aside={<ShellLine line="regatta rule list" />}>
        <p class="intro">
          A rule is told to agents or checked on every change. Rules are <code>[[rule]]</code> tables in <code>regatta.toml</code>.
        </p>
        {rules.problem && <p class="error">{rules.problem}</p>}
        {rules.data?.length === 0 && <p class="empty">No project has a standing rule.</p>}
        {rules.data && rules.data.length > 0 && (
          <Table heads={['Project', 'Rule', 'Action', 'Text', 'Files']}>
            {rules.data.map((rule) => (
              <tr key={`${rule.project}${rule.name}`} data-row tabIndex={0}>
                <td>{rule.project}</td>
                <td>{plain(rule.name ?? '', 80)}</td>
                <td>{ruleText(rule.action)}</td>
                <td class="subject">{plain(rule.says ?? '', 300)}</td>
                <td class="mono">{ruleText(rule.files)}</td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
    </>
  );
}

const SECTIONS = ['health', 'agents', 'programs', 'budgets', 'limits', 'permissions', 'tokens', 'bridges', 'projects'] as const;
type Section = (typeof SECTIONS)[number];
const TITLES: Record<Section, string> = { health: 'Health', agents: 'Agents', programs: 'Programs', budgets: 'Budgets', limits: 'Limits', permissions: 'Permissions', tokens: 'Access tokens', bridges: 'Bridges', projects: 'Projects' };

export function Setup() {
  useTopics('head');
  void topic('head').changed.value;
  const version = topic('head').get('head')?.version ?? '';
  const section = SECTIONS.find((name) => name === queryParam('section')) ?? 'health';
  const doctor = useCall('doctor');
  const agents = useCall('agent.list');
  const budgets = useCall('budget.list');
  const limits = useCall('limits.show');
  const policy = useCall('policy.list');
  const tokens = useCall('token.list');
  const bridges = useCall('bridge.list');
  const projects = useCall('project.list');
  const rules = useCall('rule.list');
  const checks = doctor.data?.checks ?? [];
  const count = (data: unknown[] | undefined | null) => (data ? String(data.length) : '');
  const brokenBridges = bridges.data?.filter((bridge) => bridgeState(bridge).colour === 'bad').length ?? 0;
  const asides: Record<Section, [text: string, colour?: string]> = {
    health: [doctor.data ? healthText(checks).replace('no problems', '✓') : '', checks.some((check) => check.level === 'bad') ? 'bad' : checks.some((check) => check.level === 'warn') ? 'late' : 'good'],
    agents: [count(agents.data)],
    programs: [doctor.data ? `${doctor.data.providers.filter((program) => program.program !== null).length} installed` : ''],
    budgets: [count(budgets.data?.budgets)],
    limits: [''],
    permissions: [count(policy.data)],
    tokens: [count(tokens.data)],
    bridges: brokenBridges > 0 ? [`${brokenBridges} failing`, 'bad'] : [count(bridges.data)],
    projects: [count(projects.data)],
  };
  return (
    <div class="setup">
      <nav class="setup-nav" aria-label="Sections of the setup">
        {SECTIONS.map((name) => (
          <a key={name} href={name === 'health' ? '/setup' : `/setup?section=${name}`} aria-current={name === section ? 'page' : undefined}>
            {TITLES[name]} <small class={asides[name][1] ?? ''}>{asides[name][0]}</small>
          </a>
        ))}
        <small class="aside">Regatta {version}</small>
      </nav>
      <div>
        {section === 'health' && <HealthSection doctor={doctor} />}
        {section === 'agents' && <AgentsSection agents={agents} doctor={doctor} />}
        {section === 'programs' && <ProgramsSection doctor={doctor} />}
        {section === 'budgets' && <BudgetsSection budgets={budgets} />}
        {section === 'limits' && <LimitsSection limits={limits} />}
        {section === 'permissions' && <PermissionsSection policy={policy} />}
        {section === 'tokens' && <TokensSection tokens={tokens} />}
        {section === 'bridges' && <BridgesSection bridges={bridges} />}
        {section === 'projects' && <ProjectsSection projects={projects} rules={rules} />}
      </div>
    </div>
  );
}
