import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { getDomain } from 'tldts';
import { systemClock } from '../../base/clock.ts';
import { errorText } from '../../base/errors.ts';
import { ownNames } from '../../composition/slices.ts';
import { mailNames } from '../../config.ts';
import { type Resolver, sameName } from '../../dns/types.ts';
import { createReservedNames } from '../../mail/addresses/reserved-names.ts';
import type { Settings } from '../../settings.ts';
import { EXIT, type Invocation, type Io, Unavailable, UsageError } from '../command.ts';
import { addressesOf, missingRecords } from '../dns.ts';
import { withResolver } from '../open.ts';
import { addDomain, type FirstDomain, knownIn, NOTHING, openAccount, storeOf, unroutedDomain } from './belongings.ts';
import { changeTime, fullName, textOf, withoutLoopback, withSettings, writeWhole } from './files.ts';
import type { Machine } from './machine.ts';
import { readinessOf, runPreflightChecks } from './preflight.ts';
import { agrees, askFor, domainQuestion, hostNameQuestion, mailboxQuestion, type Question } from './questions.ts';
import type { Report } from './report.ts';
import {
  neededChanges,
  refusesAcme,
  type SettingsFile,
  setByOperator,
  settingsFileAt,
  settingsWith,
} from './settings.ts';
import { closedOf, hasSystemd, socketsOf, startUnits } from './units.ts';

interface Job {
  readonly call: Invocation;
  readonly io: Io;
  readonly machine: Machine;
  readonly report: Report;
  /** Only say what would be done. */
  readonly isTrial: boolean;
}

/** Sets the machine up step by step; each step reports its change, or that none was needed. */
export async function setUp(job: Job): Promise<number> {
  const { call, io, machine, report, isTrial } = job;
  const path = call.text('config') ?? (io.env.POSTERN_CONFIG || join(machine.root, 'etc/postern/postern.yaml'));
  const file = settingsFileAt(path);
  const plan = await makePlan(job, file);
  const addresses = await withResolver(plan.settings, (resolver) => addressesOf(call, plan.settings, resolver));
  report.say('This machine\n');
  if (
    !(await runPreflightChecks({ machine, settings: plan.settings, report, sockets: socketsOf(plan.web), addresses }))
  ) {
    report.end('nothing was changed. Correct the fault, then run postern setup again');
    return EXIT.failed;
  }
  report.say('\nSetting up\n');
  const changedAt = await writeSettings(job, file, plan);
  nameInHosts(job, plan, addresses);
  if (!(await start(job, plan, changedAt))) {
    report.end('start the daemon (postern serve), then run postern setup again');
    return EXIT.ok;
  }
  const { known, domain, settings } = plan;
  if (isTrial) {
    if (known.accounts.length === 0) report.step('planned', 'account', 'main, with an API key');
    if (domain) report.step('planned', 'domain', domain.name);
    report.end('run postern setup without --dry-run');
    return EXIT.ok;
  }
  const account = await openAccount({ machine, settings, report });
  if (known.domain !== undefined && !domain) report.step('already', 'domain', known.domain);
  if (account && domain) await addDomain(domain, { account, machine, settings, report });
  await showRecords(job, plan, addresses);
  return EXIT.ok;
}

type Plan = Awaited<ReturnType<typeof makePlan>>;

/** Determines the plan from the options, the settings, the store, and questions. */
async function makePlan(job: Job, file: SettingsFile) {
  const { call, io, machine } = job;
  const before = settingsWith(file, io.env, []);
  // The URL of a database may be readable by the service alone.
  const known = await knownIn(machine, before.settings).catch(() => NOTHING);
  const name = machine.name.includes('.') ? machine.name : fullName(hostsOf(machine) ?? '', machine.name);
  const hostname = await answer(job, hostNameQuestion(name), setByOperator(file, 'hostname'));
  const names = [
    { path: 'hostname', value: hostname },
    { path: 'public_url', value: `https://${hostname}` },
  ];
  const { settings: named } = settingsWith(file, io.env, names);
  // Undefined if there is one.
  const domain =
    call.text('domain') === undefined && known.domain !== undefined ? undefined : await firstDomain(job, named);
  const ours = [...mailNames(named), ...(domain && domain.whyNotIn === undefined ? [domain.name] : [])];
  const email = await answer(job, mailboxQuestion(ours), setByOperator(file, 'smtp.postmaster'));
  // Whether the daemon gets certificates and serves HTTPS.
  const web = !call.flag('no-https') && !refusesAcme(file);
  const { changes } = neededChanges(file, { hostname, email, web });
  const { settings } = settingsWith(file, io.env, changes);
  return { settings, email, known, web, domain };
}

/** Asks for the first domain, and checks whether this host may receive its mail. */
async function firstDomain(job: Job, settings: Settings): Promise<FirstDomain> {
  const reserved = createReservedNames(ownNames(settings));
  const parent = getDomain(settings.hostname) ?? '';
  const suggestion = parent !== '' && reserved.whyReserved(parent) === undefined ? parent : undefined;
  const name = await answer(job, domainQuestion(suggestion, reserved));
  return { name, whyNotIn: await withResolver(settings, (resolver) => whyNotIn(name, settings, resolver)) };
}

/** The answer of an option, else a known value, else that of the operator. */
function answer(job: Job, question: Question, known?: string): Promise<string> {
  const { call, machine, report } = job;
  const given = call.text(question.option);
  if (given === undefined && known !== undefined) return Promise.resolve(known);
  return askFor(question, { machine, given, isTerminal: canAsk(job), say: report.say });
}

/** Whether a person can answer; JSON output is for programs. */
const canAsk = ({ call, io }: Job): boolean => call.format === 'text' && io.terminals.in && io.terminals.out;

const hostsPath = ({ root }: Machine) => join(root, 'etc/hosts');
const hostsOf = (machine: Machine) => textOf(hostsPath(machine));

/** Why this host must not receive the mail of a domain: another server does. Undefined if none does. */
async function whyNotIn(
  domain: string,
  { hostname, inbound }: Settings,
  resolver: Resolver,
): Promise<string | undefined> {
  const answered = await resolver.resolve(domain, 'MX');
  if (answered.kind === 'failure') return 'the DNS gave no answer about its MX records';
  const names = answered.kind === 'records' ? answered.records.map(({ exchange }) => exchange) : [];
  const others = names.filter((name) => name !== '' && name !== '.');
  const isOurs = (name: string) => [hostname, ...inbound.mx_hosts].some((own) => sameName(own, name));
  return others.length === 0 || others.some(isOurs) ? undefined : `its MX records point to ${others.join(', ')}`;
}

/** Writes the missing settings. Returns when the file was last changed. */
async function writeSettings(job: Job, file: SettingsFile, { settings, email, web }: Plan): Promise<number> {
  const { call, machine, report, isTrial } = job;
  const { changes, overwritten } = neededChanges(file, { hostname: settings.hostname, email, web });
  if (changes.length === 0 && !file.isNew) {
    report.step('already', 'settings', file.path);
    return changeTime(file.path);
  }
  const lines = changes.map(({ path, value }) => `${path}: ${value}`).join(', ');
  if (overwritten.length > 0 && !call.flag('yes') && !isTrial) {
    const was = overwritten.map(({ path }) => `${path} (${setByOperator(file, path)})`).join(', ');
    if (!(await agrees(`${file.path} sets ${was}. Replace it?`, { machine, isTerminal: canAsk(job) })))
      throw new UsageError(`${file.path} sets ${was}. To replace it, add --yes. Nothing was changed.`);
  }
  // Readable for the group of its folder, which is that of the daemon.
  if (!isTrial) writeWhole(file.path, withSettings(file.text, changes), 0o640);
  report.step(isTrial ? 'planned' : 'done', 'settings', `${file.path}: ${lines}`);
  return isTrial ? Infinity : changeTime(file.path);
}

/** Corrects a hosts file that sends mail for this host to itself. */
function nameInHosts({ machine, report, isTrial }: Job, { settings }: Plan, addresses: readonly string[]): void {
  const { hostname } = settings;
  const text = hostsOf(machine);
  const changed = text === undefined ? undefined : withoutLoopback(text, hostname, addresses);
  if (changed === undefined) return;
  const path = hostsPath(machine);
  const seen = `${path}: ${hostname} is ${addresses.join(' and ')}, not this machine's loopback address`;
  try {
    if (!isTrial) writeWhole(path, changed, 0o644);
    report.step(isTrial ? 'planned' : 'done', 'hosts file', seen);
  } catch (error) {
    const why = errorText(error);
    report.step('skipped', 'hosts file', `${why}. Correct it by hand: ${seen}`);
  }
}

const READY_MS = 60_000;
const LOOK_MS = 300;

/** Starts the service and waits until it is ready. False if that is up to the operator, because there is no systemd. */
async function start(
  { call, machine, report, isTrial }: Job,
  { settings, web }: Plan,
  changedAt: number,
): Promise<boolean> {
  if (hasSystemd(machine)) {
    const closed = closedOf(call.flag('no-https'));
    const did = await startUnits(machine, { sockets: socketsOf(web), closed, changedAt, isTrial });
    if (did === undefined) report.step('already', 'units', 'enabled and running');
    else report.step(isTrial ? 'planned' : 'done', 'units', did);
  } else report.step('skipped', 'units', 'systemd does not run here');
  if (isTrial) return true;
  const until = systemClock.monotonic() + (hasSystemd(machine) ? READY_MS : 0);
  while (true) {
    const found = await readinessOf({ machine, settings });
    if (found.verdict === 'ok') {
      report.finding(found);
      return true;
    }
    if (systemClock.monotonic() >= until) {
      if (!hasSystemd(machine)) return false;
      throw new Unavailable(`the daemon is not ready: ${found.seen}\nIts log: journalctl -u postern`);
    }
    await pause(LOOK_MS);
  }
}

/** Prints the records that are not published, and the next step. */
async function showRecords(
  { call, machine, report }: Job,
  { settings }: Plan,
  addresses: readonly string[],
): Promise<void> {
  if (addresses.length === 0)
    return report.end('find the public address of this host, then run postern setup --address IP');
  const { missing, unrouted } = await storeOf(machine, settings, async (store) => ({
    missing: await missingRecords({ settings, store, addresses }),
    unrouted: await unroutedDomain(store),
  }));
  const { zone, records, isDone } = missing;
  if (zone !== '') report.say(`\nRecords to publish\n${zone}`);
  const given = call.texts('address').map((address) => ` --address ${address}`);
  if (!isDone) return report.end(`publish these records, then run postern dns --wait${given.join('')}`, records);
  report.end(
    unrouted === undefined ? 'postern doctor' : `postern route add ${unrouted} '*' https://app.example.com/mail`,
  );
}
