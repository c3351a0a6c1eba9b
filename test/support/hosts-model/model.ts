import type { Spool } from '../../../src/queue/delivery.ts';
import { nameAdopter } from '../../../src/store/membership.ts';
import { isSilent } from '../../../src/store/rows/hosts.ts';
import { openStore } from '../../../src/store/store.ts';
import { createTestClock, createWatch } from '../clock.ts';
import { createTestLog } from '../log.ts';
import { randomFrom } from '../random-text.ts';
import { borrowSpool, type TestSpool } from '../shared-spool.ts';
import { createMemoryDatabase } from './memory-database.ts';
import { type HostProcess, type Left, openProcess } from './process.ts';

const HOSTS = ['a', 'b', 'c'];
const SECONDS = 180;
/** From when on all endpoints are up. */
const UP_AT_MS = 120_000;
/** How long everything may take to arrive after the last fault. Seconds. */
const CALM_SECONDS = 900;
const DAY_MS = 86_400_000;

/** A machine: its disk survives a process, until it is lost too. */
interface Machine {
  readonly host: string;
  readonly spool: Spool;
  readonly wrongMs: number;
  process: HostProcess | undefined;
  /** Seconds at which it starts again, and at which its faults end. */
  startsAt: number;
  calmAt: number;
  isGone: boolean;
}

interface Attempt {
  readonly process: HostProcess;
  readonly startedAt: number;
  isTaken: boolean;
  isOver: boolean;
}

/** What a run showed. */
export interface Outcome {
  readonly acknowledged: number;
  readonly lost: readonly string[];
  /** Mail that was sent twice, of which the first attempt was in flight when its host died or was cut off. */
  readonly again: number;
  /** What must never happen. */
  readonly faults: readonly string[];
  readonly adopted: number;
  /** What happened, by kind. */
  readonly events: Readonly<Record<string, number>>;
}

const FAULT_NAMES = ['cut', 'slow', 'mute', 'loses', 'kill', 'lose', 'stop', 'clone'] as const;
type FaultName = (typeof FAULT_NAMES)[number];

/**
 * Runs hosts through faults that a seed chooses, until everything is calm again, and tells what became of the mail.
 * `only`: one fault of one host, until the others have taken over.
 */
export async function runModel(seed: number, left: Left = {}, only?: FaultName): Promise<Outcome> {
  const random = randomFrom(seed);
  const watch = createWatch();
  const clock = createTestClock(undefined, watch.quiet);
  const database = createMemoryDatabase();
  const raw = await openStore(database);
  const queues: TestSpool[] = [];
  const processes: HostProcess[] = [];
  const lapses = new Map<HostProcess, number>();
  const attempts = new Map<string, Attempt[]>();
  const posted = new Set<string>();
  const acknowledged = new Set<string>();
  const disturbed = new Map<HostProcess, number>();
  const faults: string[] = [];
  const events: Record<string, number> = {};
  let second = 0;
  let again = 0;
  let started = 0;

  const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T;
  const upTo = (most: number) => Math.floor(random() * most);
  const note = (what: string) => {
    events[what] = (events[what] ?? 0) + 1;
  };
  const pause = (ms: number) =>
    new Promise<void>((resolve) => {
      clock.after(ms, resolve);
    });

  /** Whether clocks are off by a day: mail that has a time follows them, and none has then. */
  const isWrong = random() < 0.5;

  /** Whether a host may have lost its mail to another during an attempt: it was killed, or lost its lease. */
  const hasLapsed = ({ process, startedAt }: Attempt) =>
    process.link.isDead || (lapses.get(process) ?? Number.NEGATIVE_INFINITY) >= startedAt;

  const outside = {
    database,
    clock,
    async carry(process: HostProcess, recipient: string): Promise<boolean> {
      const before = attempts.get(recipient) ?? [];
      const one: Attempt = { process, startedAt: clock.monotonic(), isTaken: false, isOver: false };
      attempts.set(recipient, [...before, one]);
      const row = await raw.copies.one({ id: `${recipient.slice(0, -8)}-000000000000` });
      const who = `${recipient} by ${process.host}${process.number} at ${clock.monotonic()}`;
      const taken = before.filter(({ isTaken }) => isTaken);
      if (!left.fencing && !left.copies) {
        if (!process.member.isLive()) faults.push(`sent without a lease: ${who}`);
        else if (row && row.host !== process.host) faults.push(`sent by a host that does not have it: ${who}`);
      }
      if (taken.length > 0 && (!row || row.state === 'settled')) faults.push(`sent after it had ended: ${who}`);
      else if (before.some((other) => (other.isTaken || !other.isOver) && !hasLapsed(other)))
        faults.push(`sent by two at one time: ${who}`);
      await pause(random() < 0.05 ? upTo(90_000) : 20 + upTo(2000));
      const isUp = !recipient.startsWith('down') && (clock.monotonic() > UP_AT_MS || upTo(10) > 3);
      // A server may have got all of it when the connection broke.
      one.isTaken = isUp && (!process.link.isDead || random() < 0.5);
      if (one.isTaken && taken.length > 0) again++;
      await pause(10);
      one.isOver = true;
      return one.isTaken;
    },
    async post(delivery: string): Promise<boolean> {
      await pause(20 + upTo(400));
      const isUp = clock.monotonic() > UP_AT_MS || upTo(10) > 3;
      if (isUp) posted.add(delivery);
      return isUp;
    },
  };

  async function begin(machine: Machine): Promise<HostProcess> {
    const { host, spool, wrongMs } = machine;
    const number = ++started;
    const process = await openProcess(
      { host, spool, wrongMs, number, left, random: randomFrom(seed * 1000 + number) },
      outside,
    );
    processes.push(process);
    return process;
  }

  function start(machine: Machine): void {
    machine.startsAt = Number.POSITIVE_INFINITY;
    void begin(machine).then(async (process) => {
      machine.process = process;
      const result = await process.start();
      if (result !== 'runs' && machine.process === process) machine.startsAt = second + 10;
      note(result === 'runs' ? 'started' : 'refused');
    });
  }

  async function machineOf(host: string): Promise<Machine> {
    const spool = await borrowSpool({ clock, log: createTestLog() }, watch);
    queues.push(spool);
    const wrongMs = isWrong ? pick([0, DAY_MS, -DAY_MS]) : upTo(60_000) - 30_000;
    return { host, spool, wrongMs, process: undefined, startsAt: 0, calmAt: 0, isGone: false };
  }

  const machines: Machine[] = [];
  for (const host of HOSTS) machines.push(await machineOf(host));
  const spare = await machineOf('');
  const isUp = ({ process }: Machine) => process !== undefined && !process.link.isDead;

  /** A second process of a host, with a queue of its own, for a while. */
  async function clone({ host }: Machine): Promise<void> {
    const process = await begin({ ...spare, host });
    if ((await process.start()) !== 'runs') return note('clone refused');
    note('clone ran');
    await pause(20_000);
    if (!process.link.isDead) await process.stop();
  }

  const FAULTS: Readonly<Record<FaultName, (machine: Machine) => void>> = {
    cut({ process }) {
      if (process) process.link.isCut = true;
    },
    slow({ process }) {
      if (process) process.link.slowMs = pick([500, 3000, 8000]);
    },
    mute({ process }) {
      if (process) process.link.isMute = true;
    },
    loses({ process }) {
      if (process) process.link.loses = 0.2;
    },
    kill(machine) {
      machine.process?.kill();
      machine.startsAt = second + pick([1, 10, 100]) + upTo(20);
    },
    lose(machine) {
      // One host is left.
      if (machines.filter(({ isGone }) => isGone).length === HOSTS.length - 1) return FAULTS.kill(machine);
      machine.process?.kill();
      machine.isGone = true;
      machine.startsAt = Number.POSITIVE_INFINITY;
    },
    stop(machine) {
      const { process } = machine;
      void process?.stop().then(() => {
        machine.startsAt = second + upTo(120);
      });
    },
    clone(machine) {
      void clone(machine);
    },
  };

  function calm({ process }: Machine): void {
    if (!process) return;
    process.link.isCut = false;
    process.link.slowMs = 20;
    process.link.isMute = false;
    process.link.loses = 0;
  }

  /** Clients of a running host. */
  function use(process: HostProcess): void {
    const acknowledge = (id: string | undefined) => {
      if (id !== undefined) acknowledged.add(id);
    };
    if (random() < 0.25)
      void process
        .send(pick(['smtp://up.test', 'smtp://late.test']), isWrong || random() < 0.5 ? 0 : upTo(120_000))
        .then(acknowledge);
    if (random() < 0.15) void process.take(pick(['https://up.test/', 'https://late.test/'])).then(acknowledge);
  }

  async function pass(): Promise<void> {
    for (let part = 0; part < 4; part++) {
      await clock.advance(250);
      for (const host of HOSTS) {
        const live = processes.filter((one) => one.host === host && !one.link.isDead && one.member.isLive());
        if (live.length > 1) faults.push(`two processes of ${host} may send at ${clock.monotonic()}`);
      }
      for (const process of processes) if (!process.member.isLive()) lapses.set(process, clock.monotonic());
    }
    second++;
  }

  /** A host that has just become an adopter is slow, and ends in the middle of it. */
  function disturb(machine: Machine): void {
    const { process } = machine;
    if (!process || process.log.of('host.lost').length === (disturbed.get(process) ?? 0)) return;
    disturbed.set(process, process.log.of('host.lost').length);
    if (only || random() < 0.3) return;
    process.link.slowMs = 1500;
    machine.calmAt = second + 20;
    clock.after(upTo(10_000), () => {
      if (process.link.isDead) return;
      const what = pick(['kill', 'stop', 'cut'] as const);
      note(`${what} of an adopter`);
      FAULTS[what](machine);
      machine.calmAt = second + pick([10, 100]);
    });
  }

  const isDone = (id: string) => posted.has(id) || (attempts.get(id) ?? []).some(({ isTaken }) => isTaken);

  for (const machine of machines) start(machine);
  while (second < SECONDS) {
    await pass();
    for (const machine of machines) {
      if (machine.isGone) continue;
      if (!isUp(machine) && machine.startsAt === Number.POSITIVE_INFINITY && machine.process?.link.isDead)
        // It ended because another process runs as its host.
        machine.startsAt = second + 30;
      if (second >= machine.calmAt) calm(machine);
      if (!isUp(machine)) {
        if (second >= machine.startsAt) start(machine);
        continue;
      }
      if (machine.process) use(machine.process);
      disturb(machine);
      if (only ? machine === machines[0] && second === 40 : random() < 0.04) {
        const what = only ?? pick(FAULT_NAMES);
        note(what);
        FAULTS[what](machine);
        machine.calmAt = second + (only ? 120 : 5 + upTo(random() < 0.4 ? 120 : 20));
      }
    }
  }
  const isAllDone = async () => [...acknowledged].every(isDone) && !(await raw.copies.one({}));
  for (const end = second + CALM_SECONDS; second < end && !(await isAllDone()); ) {
    await pass();
    for (const machine of machines) {
      calm(machine);
      if (!machine.isGone && !isUp(machine) && machine.process?.link.isDead) start(machine);
    }
    // A host that was stopped, and then lost: by hand.
    for (const lost of machines.filter(({ isGone }) => isGone)) {
      const [row, by] = [await raw.hosts.one({ id: lost.host }), machines.find((one) => isUp(one))];
      if (row && by && row.incarnation === null && !isSilent(row) && !row.adopter)
        await nameAdopter(raw, row, by.host, new Date(clock.now()));
    }
  }
  for (const process of processes) process.kill();
  for (const queue of queues) await queue.close();
  const adopted = processes.reduce((sum, { log }) => sum + log.of('host.lost').length, 0);
  return {
    acknowledged: acknowledged.size,
    lost: [...acknowledged].filter((id) => !isDone(id)),
    ...{ again, faults, adopted, events },
  };
}
