import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { type Counter, type Metrics, NO_METRICS } from '../base/metrics.ts';
import type { Codec, Heard } from './reply.ts';
import { keyOf, startRound, TURNS, turnsOf } from './round.ts';
import type { Server } from './servers.ts';
import type { RecordType } from './types.ts';

/** Asks the name servers one question under one deadline. */
export interface Asking {
  ask(name: string, type: RecordType, deadline: number): Promise<Heard>;
  stop(): void;
}

interface Deps {
  readonly clock: Clock;
  readonly log: Log;
  readonly codec: Codec;
  readonly servers: () => readonly Server[];
  /** A question id that nobody can guess. */
  readonly newId: () => number;
  readonly metrics?: Metrics | undefined;
}

/** Questions on their way at one time: each is a socket or two. */
const MOST_AT_ONCE = 256;
/** So many questions in a row without a sign of life make an outage: then nobody is waited for as long as usual. */
const SILENCES = 10;
const NOTE_EVERY_MS = 60_000;

/** The part that asks. It prefers the server that answered last. */
export function createAsking(deps: Deps, settings: { readonly timeoutMs: number }): Asking {
  const { clock } = deps;
  const outage = createOutage(clock, deps.log);
  const count = createCount(deps.metrics);
  let preferred = '';
  let running = 0;
  let stopped = false;
  const line: (() => void)[] = [];
  const ends = new Set<() => void>();

  async function ask(name: string, type: RecordType, deadline: number): Promise<Heard> {
    if (running >= MOST_AT_ONCE) await new Promise<void>((resolve) => line.push(resolve));
    running++;
    const began = clock.monotonic();
    try {
      const heard = await askAll(name, type, deadline);
      count(type, heard, clock.monotonic() - began);
      if (!stopped) outage.note(name, heard);
      return heard;
    } finally {
      running--;
      line.shift()?.();
    }
  }

  function askAll(name: string, type: RecordType, deadline: number): Promise<Heard> {
    const ms = Math.min(deadline - clock.monotonic(), outage.lasts() ? settings.timeoutMs / TURNS : settings.timeoutMs);
    if (stopped || ms <= 0) return Promise.resolve({ kind: 'failure', reason: stopped ? 'unreachable' : 'timeout' });
    return new Promise((resolve) => {
      const end = () => round.end({ kind: 'failure', reason: 'unreachable' });
      const round = startRound(deps, turnsOf(deps.servers(), preferred), name, type, ms, (heard, server) => {
        ends.delete(end);
        if (server) preferred = keyOf(server);
        resolve(heard);
      });
      ends.add(end);
      round.begin();
    });
  }

  return Object.freeze({
    ask,
    stop() {
      stopped = true;
      for (const end of [...ends]) end();
    },
  });
}

/** Counts questions by what was heard; each pair of type and result is bound once. */
function createCount(metrics: Metrics = NO_METRICS): (type: RecordType, heard: Heard, ms: number) => void {
  const seconds = metrics.histogram('postern_dns_seconds');
  const counters = new Map<string, Counter>();
  return (type, heard, ms) => {
    const result = heard.kind === 'failure' ? heard.reason : heard.reply.rcode === 3 ? 'nxdomain' : 'answered';
    const key = `${type} ${result}`;
    const counter = counters.get(key) ?? metrics.counter('postern_dns_questions_total', { type, result });
    counters.set(key, counter);
    counter.add();
    seconds.observe(ms / 1000);
  };
}

/** Notices when nobody answers any more. */
function createOutage(clock: Clock, log: Log) {
  let silences = 0;
  let notedAt = -Infinity;
  const lasts = () => silences >= SILENCES;
  return {
    lasts,
    note(name: string, heard: Heard): void {
      const silent = heard.kind === 'failure' && (heard.reason === 'timeout' || heard.reason === 'unreachable');
      silences = silent ? silences + 1 : 0;
      if (!silent || !lasts() || clock.monotonic() - notedAt < NOTE_EVERY_MS) return;
      notedAt = clock.monotonic();
      log.warn('dns.fault', { note: 'the name servers do not answer', name, reason: heard.reason });
    },
  };
}
