import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { getDomain } from 'tldts';
import { systemClock } from '../base/clock.ts';
import { ownNames } from '../composition/slices.ts';
import { mailNames } from '../config.ts';
import { type Resolver, sameName } from '../dns/types.ts';
import { blockedAddresses, hostAddresses } from '../examination/addresses.ts';
import { examine } from '../examination/examine.ts';
import { type Check, type Finding, placesOf, type World, warning } from '../examination/finding.ts';
import { outgoing } from '../examination/listening.ts';
import { clockCheck, disk, memory, nameServers, readiness } from '../examination/machine.ts';
import { createReservedNames } from '../mail/reserved-names.ts';
import type { Settings } from '../settings.ts';
import { type Command, Denied, EXIT, type Invocation, type Io, Unavailable, UsageError } from './command.ts';
import { addressesOf, addressOption, missingRecords } from './dns.ts';
import { withResolver } from './open.ts';
import { addDomain, type Known, knownIn, NOTHING, openAccount, storeOf, unroutedDomain } from './setup/belongings.ts';
import { fullName, readText, withoutLoopback, withSettings, writeWhole } from './setup/files.ts';
import { createMachine, type Machine } from './setup/machine.ts';
import {
  agrees,
  answerOf,
  domainQuestion,
  hostNameQuestion,
  mailboxQuestion,
  type Question,
} from './setup/questions.ts';
import { createReport, type Report } from './setup/report.ts';
import {
  neededChanges,
  refusesAcme,
  type SettingsFile,
  setByOperator,
  settingsFileAt,
  settingsWith,
} from './setup/settings.ts';
import { hasSystemd, ports, socketsOf, startUnits } from './setup/units.ts';

export const setup: Command = createSetup(createMachine);

/** The command, for a machine that is examined when it runs. */
export function createSetup(machineOf: () => Machine): Command {
  return {
    name: 'setup',
    summary:
      'Makes this machine a mail host: asks three questions, looks at the machine, writes the settings, starts the ' +
      'service, adds an account, a key and a domain, and prints the DNS records to publish.',
    options: {
      hostname: { type: 'string', value: 'NAME', help: 'host name of this server, such as mx.example.com' },
      domain: { type: 'string', value: 'DOMAIN', help: 'first domain, for mail in and out' },
      email: { type: 'string', value: 'ADDRESS', help: 'your mailbox on another server, for mail to postmaster' },
      address: addressOption,
      'no-https': { type: 'boolean', help: 'no certificates and no HTTPS: a web server in front does both' },
      yes: { type: 'boolean', help: 'replace settings of the file without asking' },
      'dry-run': { type: 'boolean', help: 'change nothing; say what would be done' },
    },
    notes:
      'Asks only for what is neither given nor known. Run it again at any time: what is so already stays, and a run that\n' +
      'failed goes on. It accepts the terms of the certificate authority (acme.directory) for you.\n\n' +
      '  sudo postern setup\n' +
      '  sudo postern setup --hostname mx.example.com --domain in.example.com --email you@example.net',
    async run(call, io) {
      const machine = machineOf();
      if (!machine.isRoot)
        throw new Denied('it writes settings and starts services: run it as root (sudo postern setup)');
      return setUp({ call, io, machine, report: createReport(call, io), isTrial: call.flag('dry-run') });
    },
  };
}

interface Job {
  readonly call: Invocation;
  readonly io: Io;
  readonly machine: Machine;
  readonly report: Report;
  /** Only say what would be done. */
  readonly isTrial: boolean;
}

async function setUp(job: Job): Promise<number> {
  const { call, io, machine, report, isTrial } = job;
  const path = call.text('config') ?? (io.env.POSTERN_CONFIG || join(machine.root, 'etc/postern/postern.yaml'));
  const file = settingsFileAt(path);
  const plan = await makePlan(job, file);
  const addresses = await withResolver(plan.settings, (resolver) => addressesOf(call, plan.settings, resolver));
  report.say('This machine\n');
  if (!(await look(job, plan, addresses))) {
    report.end('correct the fault, then run postern setup again; nothing was changed');
    return EXIT.failed;
  }
  report.say('\nSetting up\n');
  const changed = await writeSettings(job, file, plan);
  nameInHosts(job, plan, addresses);
  if (!(await start(job, plan, changed))) {
    report.end('start the daemon (postern serve), then run postern setup again');
    return EXIT.ok;
  }
  if (isTrial) {
    if (plan.known.accounts.length === 0) report.step('planned', 'account', 'main, with an API key');
    if (plan.domain) report.step('planned', 'domain', plan.domain.domain);
    report.end('run postern setup without --dry-run');
    return EXIT.ok;
  }
  const account = await openAccount({ machine, settings: plan.settings, report });
  if (account && plan.domain)
    await addDomain({ account, ...plan.domain }, { machine, settings: plan.settings, report });
  else if (!plan.domain) report.step('already', 'domain', plan.known.domain ?? 'there is one');
  await showRecords(job, plan, addresses);
  return EXIT.ok;
}

interface Plan {
  /** As they will be. */
  readonly settings: Settings;
  readonly email: string;
  readonly known: Known;
  /** The domain to add; undefined if there is one. */
  readonly domain: { readonly domain: string; readonly elsewhere: readonly string[] } | undefined;
  /** Whether the daemon gets certificates and serves HTTPS. */
  readonly web: boolean;
}

/** Finds out what is wanted: from the options, the settings, the store, and questions. */
async function makePlan(job: Job, file: SettingsFile): Promise<Plan> {
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
  const reserved = createReservedNames(ownNames(named));
  const domain =
    call.text('domain') === undefined && known.domain !== undefined
      ? undefined
      : await answer(job, domainQuestion(getDomain(hostname) ?? undefined, reserved));
  const elsewhere =
    domain === undefined ? [] : await withResolver(named, (resolver) => otherServers(domain, named, resolver));
  const ours = [...mailNames(named), ...(domain !== undefined && elsewhere.length === 0 ? [domain] : [])];
  const email = await answer(job, mailboxQuestion(ours), setByOperator(file, 'smtp.postmaster'));
  const web = !call.flag('no-https') && !refusesAcme(file);
  const { changes } = neededChanges(file, { hostname, email, web });
  const { settings } = settingsWith(file, io.env, changes);
  return { settings, email, known, web, domain: domain === undefined ? undefined : { domain, elsewhere } };
}

/** The answer of an option, else what is known already, else that of the operator. */
function answer({ call, io, machine, report }: Job, question: Question, known?: string): Promise<string> {
  const given = call.text(question.option);
  if (given === undefined && known !== undefined) return Promise.resolve(known);
  const isTerminal = io.terminals.in && io.terminals.out;
  return answerOf(question, { machine, given, isTerminal, say: report.say });
}

const hostsPath = ({ root }: Machine) => join(root, 'etc/hosts');
const hostsOf = (machine: Machine) => readText(hostsPath(machine));

/** The servers of others that take the mail of a domain now; none if one of them is ours. */
async function otherServers(domain: string, { hostname, inbound }: Settings, resolver: Resolver): Promise<string[]> {
  const answered = await resolver.resolve(domain, 'MX');
  const names = answered.kind === 'records' ? answered.records.map(({ exchange }) => exchange) : [];
  const ours = [hostname, ...inbound.mx_hosts];
  if (names.some((name) => ours.some((own) => sameName(own, name)))) return [];
  return names.filter((name) => name !== '' && name !== '.');
}

/** Examines the machine, and says what it finds. False if a port is taken: then nothing can be set up. */
async function look({ machine, report }: Job, { settings, web }: Plan, addresses: readonly string[]): Promise<boolean> {
  return withResolver(settings, async (resolver) => {
    const world = worldOf(settings, resolver, machine);
    const isRunning = (await collect(world, readiness)).every(({ verdict }) => verdict === 'ok');
    const addressCheck: Check = { name: 'addresses', run: () => hostAddresses(addresses, world) };
    const lists: Check = {
      name: 'block lists',
      async *run() {
        yield* await blockedAddresses(addresses, resolver);
      },
    };
    const portCheck: Check = { name: 'ports', run: () => ports(machine, socketsOf(web), isRunning) };
    const others = [addressCheck, nameServers, clockCheck, disk, memory, outgoing, lists];
    const [taken, ...found] = await Promise.all([portCheck, ...others].map((check) => collect(world, check)));
    for (const finding of taken ?? []) report.finding(finding);
    // Most of them end with the records that are published next, and none keeps the service from starting.
    for (const finding of found.flat()) report.finding(asWarning(finding));
    return (taken ?? []).every(({ verdict }) => verdict !== 'fault');
  });
}

const asWarning = ({ check, verdict, seen, advice }: Finding): Finding =>
  verdict === 'fault' ? warning(check, seen, advice ?? '') : { check, verdict, seen, ...(advice && { advice }) };

const NO_DAEMON = 'the daemon has not run here yet';

function worldOf(settings: Settings, resolver: Resolver, { root }: Machine): World {
  return {
    settings,
    resolver,
    store: undefined,
    noStore: NO_DAEMON,
    queue: undefined,
    noQueue: NO_DAEMON,
    places: placesOf(settings),
    clock: systemClock,
    settingsFile: undefined,
    reach: undefined,
    root,
  };
}

async function collect(world: World, check: Check): Promise<Finding[]> {
  const found: Finding[] = [];
  for await (const finding of examine({ world, checks: [check] })) found.push(finding);
  return found;
}

/** Writes what the settings file lacks. Returns whether it changed. */
async function writeSettings(job: Job, file: SettingsFile, { settings, email, web }: Plan): Promise<boolean> {
  const { call, io, machine, report, isTrial } = job;
  const { changes, overwritten } = neededChanges(file, { hostname: settings.hostname, email, web });
  if (changes.length === 0 && !file.isNew) {
    report.step('already', 'settings', file.path);
    return false;
  }
  const lines = changes.map(({ path, value }) => `${path}: ${value}`).join(', ');
  if (overwritten.length > 0 && !call.flag('yes') && !isTrial) {
    const was = overwritten.map(({ path }) => `${path} (${setByOperator(file, path)})`).join(', ');
    const isTerminal = io.terminals.in && io.terminals.out;
    if (!(await agrees(`${file.path} sets ${was}. Replace it?`, { machine, isTerminal })))
      throw new UsageError(`${file.path} sets ${was}; to replace it, add --yes. Nothing was changed.`);
  }
  // Readable for the group of its folder, which is that of the daemon.
  if (!isTrial) writeWhole(file.path, withSettings(file.text, changes), 0o640);
  report.step(isTrial ? 'planned' : 'done', 'settings', `${file.path}: ${lines}`);
  return true;
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
    const why = error instanceof Error ? error.message : String(error);
    report.step('skipped', 'hosts file', `${why}. Correct it by hand: ${seen}`);
  }
}

const READY_MS = 60_000;
const LOOK_MS = 300;

/** Starts the service and waits until it is ready. False if that is up to the operator, because there is no systemd. */
async function start({ machine, report, isTrial }: Job, { settings, web }: Plan, changed: boolean): Promise<boolean> {
  if (hasSystemd(machine)) {
    const did = await startUnits(machine, { sockets: socketsOf(web), changed, isTrial });
    if (did === undefined) report.step('already', 'units', 'enabled and running');
    else report.step(isTrial ? 'planned' : 'done', 'units', did);
  } else report.step('skipped', 'units', 'systemd does not run here');
  if (isTrial) return true;
  const until = systemClock.monotonic() + (hasSystemd(machine) ? READY_MS : 0);
  while (true) {
    const [found] = await withResolver(settings, (resolver) =>
      collect(worldOf(settings, resolver, machine), readiness),
    );
    if (found?.verdict === 'ok') {
      report.finding(found);
      return true;
    }
    if (systemClock.monotonic() >= until) {
      if (!hasSystemd(machine)) return false;
      throw new Unavailable(`the daemon is not ready: ${found?.seen}\nIts log: journalctl -u postern`);
    }
    await pause(LOOK_MS);
  }
}

/** Prints the records that are not published, and the next step. */
async function showRecords({ machine, report }: Job, { settings }: Plan, addresses: readonly string[]): Promise<void> {
  if (addresses.length === 0)
    return report.end('find the public address of this host, then run postern setup --address ADDRESS');
  const { missing, unrouted } = await storeOf(machine, settings, async (store) => ({
    missing: await missingRecords({ settings, store, addresses }),
    unrouted: await unroutedDomain(store),
  }));
  const { zone, records, isDone } = missing;
  if (zone !== '') report.say(`\nRecords to publish\n${zone}`);
  if (!isDone) return report.end('publish these records, then run postern dns --wait', records);
  report.end(
    unrouted === undefined ? 'postern doctor' : `postern route add ${unrouted} '*' https://app.example.com/mail`,
  );
}
